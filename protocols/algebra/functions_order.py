"""GREATEST and LEAST: they ignore NULL, and return NULL only if all values are NULL."""

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import polars as pl

from protocols.algebra.function import Function, Signature, Unfit, always, call
from protocols.algebra.types import ColumnType, SqlType


def _of_one_type(types: Sequence[SqlType]) -> Signature:
    if len(set(types)) != 1:
        raise Unfit("GREATEST and LEAST take values of one type")
    return Signature(tuple(types), types[0])


def _best(choose: Callable[..., Any]) -> Callable[..., Any]:
    def applied(_type: ColumnType, *values: Any) -> Any:
        there = [value for value in values if value is not None]
        return choose(there, key=_rank) if there else None

    return applied


def _rank(value: Any) -> Any:
    """NaN is above all other numbers."""
    return (value != value, value) if isinstance(value, float) else value


def _best_column(better: Callable[[pl.Series, pl.Series], pl.Series]) -> Callable[..., pl.Series]:
    def applied(_type: ColumnType, *columns: pl.Series) -> pl.Series:
        height = next((len(column) for column in columns if len(column) != 1), 1)
        return reduce(
            both,
            (
                column.new_from_index(0, height) if len(column) == 1 else column
                for column in columns
            ),
        )

    def both(best: pl.Series, other: pl.Series) -> pl.Series:
        return other.zip_with(best.is_null() | better(other, best).fill_null(False), best)

    return applied


ORDER: Iterable[Function] = (
    Function(
        "greatest",
        _of_one_type,
        _best(max),
        call("greatest"),
        _best_column(operator.gt),
        null_in_null_out=False,
        never_fails=always,
    ),
    Function(
        "least",
        _of_one_type,
        _best(min),
        call("least"),
        _best_column(operator.lt),
        null_in_null_out=False,
        never_fails=always,
    ),
)
