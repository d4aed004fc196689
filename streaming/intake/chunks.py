"""Consecutive records of one topic, decoded into columns: between the lookahead and the feed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.envelope import RECORD, Records

_HEAD_NAMES = ("record", "version", "order", "count", "ts_ms", "digest")


class Place(NamedTuple):
    """The place of a record in its topic: number `order` of the `size` records of a version."""

    version: int
    order: int
    size: int


@dataclass(frozen=True, eq=False)
class Heads:
    """The heads of some records, as arrays: a handful of records is the usual case."""

    #: The index among the decoded records, by which rows refer to their record.
    record: Numbers
    offset: Numbers
    version: Numbers
    order: Numbers
    count: Numbers
    ts_ms: Numbers
    digest: Numbers

    def __len__(self) -> int:
        return len(self.record)

    def where(self, which: "slice | NDArray[np.bool_]") -> "Heads":
        return Heads(*(column[which] for column in vars(self).values()))

    @property
    def last(self) -> Place:
        return Place(int(self.version[-1]), int(self.order[-1]), int(self.count[-1]))


def heads_of(records: Records, offsets: Numbers) -> Heads:
    columns = {name: records.heads.get_column(name).to_numpy() for name in _HEAD_NAMES}
    return Heads(offset=offsets[columns["record"]], **columns)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive records of one topic, decoded."""

    heads: Heads
    #: Relation → its signed rows, in the order of their records.
    rows: Mapping[Relation, pl.DataFrame]
    parts: Mapping[int, GlobalPart]
    #: All records below this offset are in this chunk or in an earlier one.
    next_offset: int
    #: The reason why the record at `next_offset` cannot be taken.
    fault: SourceViolation | None = None

    def where(self, which: "slice | NDArray[np.bool_]") -> "Chunk":
        """Some of the records, with their rows."""
        heads = self.heads.where(which)
        if len(heads) == len(self.heads):
            return self
        rows = {relation: _of_records(rows, heads.record) for relation, rows in self.rows.items()}
        return replace(self, heads=heads, rows=rows)


def _of_records(rows: pl.DataFrame, records: Numbers) -> pl.DataFrame:
    """The rows that belong to these records; both are in order."""
    if not len(records):
        return rows.clear()
    wanted = rows.get_column(RECORD).to_numpy()
    places = np.searchsorted(records, wanted)
    return rows.filter(records[np.minimum(places, len(records) - 1)] == wanted)
