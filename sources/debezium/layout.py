"""The tables of a database as Debezium's records show them: column → the form of its values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import polars as pl

from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation

#: A column of JSON values as cells of a type; raises if a value is not of this form.
Reader: TypeAlias = Callable[[list[Any], ColumnType], pl.Series]
#: Stands in a row after an update for a large value that the update left as it was.
UNCHANGED = "__debezium_unavailable_value"
_BITS_64 = 2**64


@dataclass(frozen=True)
class TableLayout:
    """One table."""

    relation: Relation
    #: Its name in records: schema and table.
    table: tuple[str, str]
    #: Column → the form of its values, by the names in `READERS`.
    forms: Mapping[str, str]

    def series(self, column: str, values: list[Any]) -> pl.Series:
        """The cells of a column."""
        type_ = self.relation.type_of(column)
        return READERS[self.forms[column]](values, type_).alias(column)


def _plain(values: list[Any], type_: ColumnType) -> pl.Series:
    return pl.Series(values, dtype=type_.dtype)


def _numbers(values: list[Any], type_: ColumnType) -> pl.Series:
    """Doubles; the ones that JSON has no number for come as texts."""
    return pl.Series([float(v) if isinstance(v, str) else v for v in values], dtype=type_.dtype)


def _singles(values: list[Any], type_: ColumnType) -> pl.Series:
    """Doubles with the exact values of numbers of single precision, which come rounded."""
    numbers = [float(v) if isinstance(v, str) else v for v in values]
    return pl.Series(numbers, dtype=pl.Float32).cast(type_.dtype)


def _unsigned(values: list[Any], type_: ColumnType) -> pl.Series:
    """Numbers of 64 bits without a sign, which come as if they had one."""
    numbers = [None if value is None else Decimal(value % _BITS_64) for value in values]
    return pl.Series(numbers, dtype=type_.dtype)


def _decimals(values: list[Any], type_: ColumnType) -> pl.Series:
    return pl.Series(values, dtype=pl.String).cast(type_.dtype)


def _days(values: list[Any], type_: ColumnType) -> pl.Series:
    return pl.Series(values, dtype=pl.Int32).cast(type_.dtype)


def _microseconds(values: list[Any], type_: ColumnType) -> pl.Series:
    return pl.Series(values, dtype=pl.Int64).cast(type_.dtype)


def _milliseconds(values: list[Any], type_: ColumnType) -> pl.Series:
    return (pl.Series(values, dtype=pl.Int64) * 1000).cast(type_.dtype)


def _instants(values: list[Any], type_: ColumnType) -> pl.Series:
    """Texts such as 2024-03-31T02:30:00.123456Z, with as many digits of a second as needed."""
    texts = pl.Series(values, dtype=pl.String)
    return texts.str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us").cast(type_.dtype)


def _padded(values: list[Any], _type: ColumnType) -> pl.Series:
    """Texts of a fixed length, whose blanks at the end mean nothing."""
    return pl.Series(values, dtype=pl.String).str.strip_chars_end(" ")


READERS: Mapping[str, Reader] = {
    "plain": _plain,
    "number": _numbers,
    "single": _singles,
    "unsigned": _unsigned,
    "decimal": _decimals,
    "days": _days,
    "microseconds": _microseconds,
    "milliseconds": _milliseconds,
    "instant": _instants,
    "padded": _padded,
}
