"""An operator or a function, and how it is applied to a value and to a column."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from protocols.algebra.types import ColumnType, SqlType


class Unfit(ValueError):
    """Raised if a function does not take such arguments; the message says why."""


@dataclass(frozen=True)
class Signature:
    """The types of a function's arguments, after they were cast, and of its result."""

    arguments: tuple[SqlType, ...]
    result: SqlType


#: (type of the result, arguments) → whether the function has a value for all operands. An argument
#: that is not a constant is given as `...`.
NeverFails: TypeAlias = Callable[[ColumnType, Sequence[Any]], bool]


def always(_type: ColumnType, _arguments: Sequence[Any]) -> bool:
    return True


def never(_type: ColumnType, _arguments: Sequence[Any]) -> bool:
    return False


@dataclass(frozen=True)
class Function:
    """One entry of the catalogue."""

    name: str
    #: Types of the given arguments → the signature; raises Unfit if there is none.
    signature: Callable[[Sequence[SqlType]], Signature]
    #: (type of the result, arguments) → the value; raises NoValue where the databases raise an
    #: error.
    value: Callable[..., Any]
    #: (type of the result, texts of the arguments) → the text in DuckDB's SQL.
    #: None if DuckDB has no such function: then no source evaluates it.
    sql: Callable[[ColumnType, Sequence[str]], str] | None
    #: (type of the result, columns) → the column; None falls back to `value`, value by value.
    column: Callable[..., pl.Series | None] | None = None
    #: The result is NULL if any argument is. If false, `value` receives None like any other value.
    null_in_null_out: bool = True
    #: If it never fails, it may be evaluated for rows that do not need it. Otherwise such rows have
    #: to be masked.
    never_fails: NeverFails = never

    def of(self, type_: ColumnType, arguments: Sequence[Any]) -> Any:
        """The value for these arguments."""
        if self.null_in_null_out and None in arguments:
            return None
        found = self.value(type_, *arguments)
        # One NaN object for all: rows are dictionary keys in the reference algebra.
        return math.nan if found != found else found

    def of_columns(self, type_: ColumnType, columns: Sequence[pl.Series]) -> pl.Series:
        """The same for whole columns; a constant is a column of one value."""
        found = self.column(type_, *columns) if self.column is not None else None
        return self._value_by_value(type_, columns) if found is None else found

    def _value_by_value(self, type_: ColumnType, columns: Sequence[pl.Series]) -> pl.Series:
        rows = zip(*_of_one_length(columns), strict=True)
        values = [self.of(type_, row) for row in rows]
        return pl.Series(values, dtype=type_.dtype, strict=True)


def _of_one_length(columns: Sequence[pl.Series]) -> list[list[Any]]:
    """The values of the columns; a constant, a column of one value, is repeated."""
    height = next((len(column) for column in columns if len(column) != 1), 1)
    return [
        column.to_list() * height if len(column) == 1 else column.to_list() for column in columns
    ]


def infix(operator: str) -> Callable[[ColumnType, Sequence[str]], str]:
    """The SQL text of a binary operator."""
    return lambda _type, texts: f"({texts[0]} {operator} {texts[1]})"


def call(function: str) -> Callable[[ColumnType, Sequence[str]], str]:
    """The SQL text of a function call."""
    return lambda _type, texts: f"{function}({', '.join(texts)})"
