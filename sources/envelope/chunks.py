"""Decoded records in columns: consecutive ones of one partition, or those of several in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.envelope.form import RECORD, Place, Records
from sources.partitions import Partition

_HEAD_NAMES = ("record", "version", "order", "count", "ts_ms", "digest")


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
    #: The number of its partition among the source's partitions.
    partition: Numbers

    def __len__(self) -> int:
        return len(self.record)

    def where(self, which: "slice | NDArray[np.bool_] | Numbers") -> "Heads":
        return Heads(*(column[which] for column in vars(self).values()))

    @property
    def last(self) -> Place:
        return Place(int(self.version[-1]), int(self.order[-1]), int(self.count[-1]))


def heads_of(records: Records, offsets: Numbers, partition: int) -> Heads:
    columns = {name: records.heads.get_column(name).to_numpy() for name in _HEAD_NAMES}
    found = len(columns["record"])
    return Heads(offset=offsets[columns["record"]], partition=np.full(found, partition), **columns)


def no_heads() -> Heads:
    return Heads(*[np.empty(0, np.int64)] * len(fields(Heads)))


@dataclass(frozen=True, eq=False)
class Chunk:
    """Decoded records, in the order of their places."""

    heads: Heads
    #: Relation → its signed rows, in the order of their records.
    rows: Mapping[Relation, pl.DataFrame]
    #: Version → the global transaction that it is a part of.
    parts: Mapping[int, GlobalPart]

    def where(self, which: "slice | NDArray[np.bool_]") -> "Chunk":
        """Some of the records, with their rows."""
        heads = self.heads.where(which)
        if len(heads) == len(self.heads):
            return self
        rows = {relation: _of_records(rows, heads.record) for relation, rows in self.rows.items()}
        return replace(self, heads=heads, rows=rows)


@dataclass(frozen=True, eq=False)
class Decoded:
    """Consecutive records of one partition, in columns."""

    chunk: Chunk
    partition: Partition
    #: All records of the partition below this offset are in this piece or in an earlier one.
    next_offset: int
    #: The reason why the record at `next_offset` cannot be taken.
    fault: SourceViolation | None = None


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Chunks that follow each other, as one; its rows do not tell their records any more."""
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(_all_heads(chunks), _all_rows(chunks), _all_parts(chunks))


def interleaved(chunks: Sequence[Chunk], after: Place) -> Chunk:
    """Chunks of several partitions as one, in the order of places.

    Records that stand in several of them, or not after a place, are left out.
    """
    heads, starts = _all_heads(chunks), np.cumsum([0, *(len(each.heads) for each in chunks)])
    numbered = [
        replace(
            each,
            rows={r: _renumbered(rows, each.heads, int(start)) for r, rows in each.rows.items()},
        )
        for each, start in zip(chunks, starts[:-1], strict=True)
    ]
    inorder = np.lexsort((heads.order, heads.version))
    rank = np.empty(len(inorder), np.int64)
    rank[inorder] = np.arange(len(inorder))
    rows = {
        relation: found.with_columns(
            pl.Series(RECORD, rank[found.get_column(RECORD).to_numpy()])
        ).sort(RECORD, maintain_order=True)
        for relation, found in _all_rows(numbered).items()
    }
    ordered = replace(heads.where(inorder), record=np.arange(len(inorder)))
    version, order = ordered.version, ordered.order
    first = np.ones(len(inorder), bool)
    first[1:] = (version[1:] != version[:-1]) | (order[1:] != order[:-1])
    later = (version > after.version) | ((version == after.version) & (order > after.order))
    return Chunk(ordered, rows, _all_parts(chunks)).where(first & later)


def of_two_globals(chunks: Sequence[Chunk]) -> int | None:
    """The first version that is a part of different global transactions in different chunks."""
    for version in sorted({version for chunk in chunks for version in chunk.parts}):
        found = {c.parts.get(version) for c in chunks if (c.heads.version == version).any()}
        if len(found) > 1:
            return version
    return None


def _renumbered(rows: pl.DataFrame, heads: Heads, start: int) -> pl.DataFrame:
    """The rows with the places of their records among these heads, counted from `start`."""
    places = start + np.searchsorted(heads.record, rows.get_column(RECORD).to_numpy())
    return rows.with_columns(pl.Series(RECORD, places))


def _all_heads(chunks: Sequence[Chunk]) -> Heads:
    columns = zip(*(vars(chunk.heads).values() for chunk in chunks), strict=True)
    return Heads(*(np.concatenate(column) for column in columns))


def _all_rows(chunks: Sequence[Chunk]) -> dict[Relation, pl.DataFrame]:
    relations = dict.fromkeys(relation for chunk in chunks for relation in chunk.rows)
    found = {r: [chunk.rows[r] for chunk in chunks if r in chunk.rows] for r in relations}
    return {r: pl.concat(rows) if len(rows) > 1 else rows[0] for r, rows in found.items()}


def _all_parts(chunks: Sequence[Chunk]) -> dict[int, GlobalPart]:
    return {version: part for chunk in chunks for version, part in chunk.parts.items()}


def _of_records(rows: pl.DataFrame, records: Numbers) -> pl.DataFrame:
    """The rows that belong to these records; both are in order."""
    if not len(records):
        return rows.clear()
    wanted = rows.get_column(RECORD).to_numpy()
    places = np.searchsorted(records, wanted)
    return rows.filter(records[np.minimum(places, len(records) - 1)] == wanted)
