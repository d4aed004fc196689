"""What an operator or a function is, and how it is applied to a value and to a column."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from protocols.algebra.types import ColumnType, SqlType


class Unfit(ValueError):
    """A function does not take such arguments; the message says why."""


@dataclass(frozen=True)
class Signature:
    """What a function takes, once its arguments have been cast, and what it gives."""

    arguments: tuple[SqlType, ...]
    result: SqlType


#: Says of a function, from the type of its result and its arguments, those that are no constants
#: being `...`, that there is nothing for which it has no value.
NeverFails: TypeAlias = Callable[[ColumnType, Sequence[Any]], bool]


def always(_type: ColumnType, _arguments: Sequence[Any]) -> bool:
    return True


def never(_type: ColumnType, _arguments: Sequence[Any]) -> bool:
    return False


@dataclass(frozen=True)
class Function:
    """One entry of the catalogue."""

    name: str
    #: From the types of the arguments at hand; Unfit where there is none.
    signature: Callable[[Sequence[SqlType]], Signature]
    #: (type of the result, arguments) → the value; NoValue where the databases raise an error.
    value: Callable[..., Any]
    #: The text in DuckDB, from the type of the result and the texts of the arguments.
    sql: Callable[[ColumnType, Sequence[str]], str]
    #: (type of the result, columns) → the column, or None to take the reference, value by value.
    column: Callable[..., pl.Series | None] | None = None
    #: NULL as soon as one argument is; otherwise `value` is given None like any other value.
    null_in_null_out: bool = True
    #: Then it may be worked out for rows that do not need it; for others it costs a mask.
    never_fails: NeverFails = never

    def of(self, type_: ColumnType, arguments: Sequence[Any]) -> Any:
        """The value for these arguments."""
        if self.null_in_null_out and None in arguments:
            return None
        found = self.value(type_, *arguments)
        # One NaN object for all: rows are dictionary keys in the reference algebra.
        return math.nan if found != found else found

    def of_columns(self, type_: ColumnType, columns: Sequence[pl.Series]) -> pl.Series:
        """The same of whole columns; a constant is a column of one value."""
        found = self.column(type_, *columns) if self.column is not None else None
        return self._value_by_value(type_, columns) if found is None else found

    def _value_by_value(self, type_: ColumnType, columns: Sequence[pl.Series]) -> pl.Series:
        rows = zip(*_of_one_length(columns), strict=True)
        values = [self.of(type_, row) for row in rows]
        return pl.Series(values, dtype=type_.dtype, strict=True)


def _of_one_length(columns: Sequence[pl.Series]) -> list[list[Any]]:
    """A constant comes as a column of one value."""
    height = next((len(column) for column in columns if len(column) != 1), 1)
    return [
        column.to_list() * height if len(column) == 1 else column.to_list() for column in columns
    ]


def infix(operator: str) -> Callable[[ColumnType, Sequence[str]], str]:
    """The text of a binary operator."""
    return lambda _type, texts: f"({texts[0]} {operator} {texts[1]})"


def call(function: str) -> Callable[[ColumnType, Sequence[str]], str]:
    """The text of a function call."""
    return lambda _type, texts: f"{function}({', '.join(texts)})"
