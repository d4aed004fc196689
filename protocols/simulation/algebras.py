"""Conversions of the two algebras for the simulator: deltas from rows, and rows from deltas.

Simulated sources hold plain bags, whichever algebra the protocol uses. So one schedule can run in
both algebras and must end in the same states.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import polars as pl

from protocols.algebra.bag import Bag, BagLog, bag
from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame, picked
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.algebra.types import ColumnType
from protocols.exchange.mailbox import Log


class Algebra(Protocol):
    """Converts rows to an algebra and back."""

    def log(self) -> Log[Any]:
        """A new, empty log of one relation."""
        ...

    def delta(self, types: Mapping[str, ColumnType], rows: Bag) -> Any:
        """The rows as a delta; `types` has the type of each of their columns."""
        ...

    def changes(self, types: Mapping[str, ColumnType], version: int, rows: Bag) -> Any:
        """The changes of a version in the form that a log appends."""
        ...

    def rows(self, delta: Any) -> Bag:
        """The rows of a delta, equal ones merged."""
        ...


class _Bags:
    """The reference: there is nothing to convert."""

    def log(self) -> Log[Any]:
        return BagLog()

    def delta(self, types: Mapping[str, ColumnType], rows: Bag) -> Bag:  # noqa: ARG002
        return rows

    def changes(
        self,
        types: Mapping[str, ColumnType],  # noqa: ARG002
        version: int,
        rows: Bag,
    ) -> tuple[int, Bag]:
        return version, rows

    def rows(self, delta: Bag) -> Bag:
        return delta


class _Frames:
    """The production algebra."""

    def log(self) -> Log[Any]:
        return FrameLog()

    def delta(self, types: Mapping[str, ColumnType], rows: Bag) -> Frame:
        schema = {column: types[column].dtype for column in rows.columns}
        data = [(*row, count) for row, count in rows.counts.items()]
        return Frame(pl.DataFrame(data, schema={**schema, COUNT: pl.Int64()}, orient="row"))

    def changes(self, types: Mapping[str, ColumnType], version: int, rows: Bag) -> pl.DataFrame:
        return self.delta(types, rows).data.with_columns(pl.lit(version, pl.Int64).alias(VERSION))

    def rows(self, delta: Frame) -> Bag:
        data = picked(delta.data, [*delta.columns, COUNT]).rows()
        return bag(delta.columns, [(tuple(map(one_nan, row[:-1])), row[-1]) for row in data])


def one_nan(value: Any) -> Any:
    """Replaces every NaN by the same object: rows are dictionary keys, and NaN equals no other."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


ALGEBRAS: Mapping[str, Algebra] = {"bag": _Bags(), "frame": _Frames()}
