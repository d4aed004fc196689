"""Definitions shared by writing and reading: names, and the form of a decoded batch."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import orjson
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.errors import SourceViolation
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.history import UNKNOWN

VERSION = "_version"
RECORD = "_record"
#: The columns of `Records.heads`.
HEADS: dict[str, pl.DataType] = {
    "record": pl.Int64(),
    "version": pl.Int64(),
    "order": pl.Int64(),
    "count": pl.Int64(),
    "ts_ms": pl.Int64(),
    "table": pl.String(),
    "op": pl.String(),
    "digest": pl.Int64(),
}
#: Op → whether its records carry (before, after).
IMAGES = {"c": (False, True), "u": (True, True), "d": (True, False), "r": (False, True)}
SNAPSHOT = "r"
#: The last millisecond of the year 9999: tables hold no later commit time.
LAST_MS = 253_402_300_799_999


class BadRecord(SourceViolation):
    """An invalid record; `record` is its index in the batch."""

    def __init__(self, record: int, source: str, reason: str) -> None:
        super().__init__(f"source {source}, record {record} of the batch: {reason}")
        self.record = record
        self.source = source
        self.reason = reason


class Place(NamedTuple):
    """The place of a record in its source: number `order` of the `size` records of a version."""

    version: int
    order: int
    size: int


@dataclass(frozen=True)
class Records:
    """Decoded records, in columns."""

    #: One row per record except tombstones, in order: record (its index in the batch), version,
    #: order and count (place in and size of its transaction), ts_ms (commit), table, op, digest (of
    #: the history up to the version; 0 if the record has none).
    heads: pl.DataFrame
    #: Requested relation → its signed rows: its columns, `_count`, `_version`, `_record`.
    rows: dict[str, pl.DataFrame]
    #: Version → the global transaction that it is part of, if any.
    parts: dict[int, GlobalPart] = field(default_factory=dict)


def digest_column(texts: pl.Expr) -> pl.Expr:
    """Parses digests of histories from their text; 0 where there is none."""
    return texts.str.to_integer(base=16, strict=False).fill_null(UNKNOWN)


@lru_cache(maxsize=4096)
def schema_digest(relation: Relation) -> str:
    """Eight hex digits that change with any column's name, type or place."""
    form = orjson.dumps([[name, type_.name] for name, type_ in relation.columns])
    return hashlib.sha256(form).hexdigest()[:8]


class RelationRecords(NamedTuple):
    """The records of one relation, or of all relations that are not requested."""

    relation: Relation | None
    #: The columns of `HEADS` and others; one row per record.
    fields: pl.DataFrame
    #: The signed rows, if there are any.
    rows: pl.DataFrame | None
    #: Per record: version, id and participants of the global transaction, and whether there is one.
    globals: pl.DataFrame | None = None


class RequestedRelations:
    """The relations that a batch is read for; all belong to one source."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        sources = {relation.source for relation in relations}
        if len(sources) != 1:
            raise ValueError(f"records of several sources cannot be decoded together: {sources}")
        self.source = sources.pop()
        self.relations = {relation.name: relation for relation in relations}

    @cached_property
    def row_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        return {name: _row_schema(relation) for name, relation in self.relations.items()}


def _row_schema(relation: Relation) -> dict[str, pl.DataType]:
    columns = {name: type_.dtype for name, type_ in relation.columns}
    return {**columns, COUNT: pl.Int64(), VERSION: pl.Int64(), RECORD: pl.Int64()}
