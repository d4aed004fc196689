"""Reads records in exactly the layout of `writing`, without a global transaction.

After the images such a record consists of fixed text and a few fields:

    {"before":…,"after":…   ,"op":"c"   ,"ts_ms":7   ,"source":{"db":"s","table":
    └─────── images ────┘   └ ending┘                └────────── mark ──────────┘
    "r","version":7,"ts_ms":7,"schema":"0a1b2c3d"},
    "transaction":{"id":"s:7","total_order":1,"event_count":1   ← the rest, from "r" on
    ,"history":"0a1b2c3d4e5f6a7"}}                              ← optional, except for the }}

A pattern matches the whole rest and reads its fields; mark and ending are compared. The digest has
a fixed length and is cut off first: it would double the time of the pattern. So only the images are
left to parse, a third of the text. The mark cannot be inside a string, where a backslash precedes
each quote; if it is inside the images, the rest of the record does not match the pattern.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from protocols.algebra.frame import at_once
from protocols.views.catalog import Relation
from sources.envelope.form import LAST_MS, RelationRecords, RequestedRelations, schema_digest
from sources.envelope.images import (
    UnusualError,
    image_fields,
    joined,
    need,
    parsed,
    signed_rows,
)
from sources.history import DIGITS

_NUMBERS = ("version", "order", "count", "ts_ms")
_VERSION, _ORDER, _COUNT, _TS_MS = (f"(?P<{n}>0|[1-9][0-9]{{0,17}})" for n in _NUMBERS)
#: Printable, and neither a quote nor a backslash.
_PLAIN = r"[ !#-\[\]-~]*"
_REST = (
    rf'^"(?P<table>{_PLAIN})","version":{_VERSION},"ts_ms":{_TS_MS},'
    r'"schema":"(?P<schema>[0-9a-f]{8})"\},'
    rf'"transaction":\{{"id":"{_PLAIN}","total_order":{_ORDER},"event_count":{_COUNT}$'
)
_START = b'{"before":'
#: Without snapshots, which we do not write.
_ENDINGS = [f',"op":"{op}"'.encode() for op in "cud"]
_ENDING_LENGTH = len(_ENDINGS[0])
_HISTORY, _TEXT = b',"history":"', "history"


def in_our_layout(texts: pl.DataFrame, batch: RequestedRelations) -> list[RelationRecords]:
    """Reads the records in this layout, except those of a relation with another schema."""
    cut = _cut(texts, batch.source)
    if cut.is_empty():
        return []
    groups = (
        (relation, cut.filter(table=relation.name, schema=schema_digest(relation)))
        for relation in batch.relations.values()
    )
    asked = [_group(fields, relation) for relation, fields in groups if not fields.is_empty()]
    if sum(group.fields.height for group in asked) == cut.height:
        return asked
    return [*asked, *_not_asked_for(cut.filter(~pl.col("table").is_in(list(batch.relations))))]


def _cut(texts: pl.DataFrame, source: str) -> pl.DataFrame:
    """Cuts the records in this layout into images (as text) and fields."""
    mark = f',"source":{{"db":{orjson.dumps(source).decode()},"table":'
    json, at, front = pl.col("json"), pl.col("at"), pl.col("front")
    binary = json.cast(pl.Binary)
    end = _end_of(texts)
    start = at + len(mark.encode())
    rest = binary.bin.slice(start, binary.bin.size() - start - end.length).cast(pl.String)
    ts_ms = pl.concat_str(pl.lit(',"ts_ms":'), "ts_ms")
    steps = (
        texts.lazy()
        .with_columns(at=json.str.find(mark, literal=True))
        .filter(at.is_not_null() & end.law)
        .select(
            "record",
            end.digits,
            front=binary.bin.slice(0, at).cast(pl.String),
            fields=rest.str.extract_groups(_REST),
        )
        .unnest("fields")
        .filter(pl.col("version").is_not_null())
        .with_columns(front=front.str.strip_suffix(ts_ms).cast(pl.Binary))
        .filter(front.bin.starts_with(_START) & front.bin.slice(-_ENDING_LENGTH).is_in(_ENDINGS))
        .select(
            "record",
            "table",
            "schema",
            pl.col(_NUMBERS).cast(pl.Int64),
            _TEXT,
            front.bin.slice(-2, 1).cast(pl.String).alias("op"),
            front.bin.slice(0, front.bin.size() - _ENDING_LENGTH).cast(pl.String).alias("images"),
        )
    )
    return at_once(steps)


class _End(NamedTuple):
    """The end of records after the fields that the pattern reads."""

    length: int
    law: pl.Expr
    digits: pl.Expr


def _ends() -> tuple[_End, _End]:
    """The ends without a digest and with one."""
    binary = pl.col("json").cast(pl.Binary)
    length = len(_HISTORY) + DIGITS + 3
    law = binary.bin.slice(-length, len(_HISTORY)) == _HISTORY
    digits = binary.bin.slice(-DIGITS - 3, DIGITS).cast(pl.String)
    return (
        _End(2, binary.bin.ends_with(b"}}"), pl.lit(None, pl.String).alias(_TEXT)),
        _End(length, law & binary.bin.ends_with(b'"}}'), digits.alias(_TEXT)),
    )


def _end_of(texts: pl.DataFrame) -> _End:
    """The end of these records: of one producer all have a digest or none; the first one tells."""
    return _ENDS[not texts.is_empty() and _HISTORY.decode() in texts.item(0, "json")]


def _with_digests(fields: pl.DataFrame) -> pl.DataFrame:
    """Adds the digests as numbers, parsed all at once: one by one would take twice the time."""
    digits = fields.get_column(_TEXT)
    if digits.null_count():
        return fields.hstack([pl.Series("digest", np.zeros(len(digits), np.int64))])
    try:
        numbers = np.frombuffer(bytes.fromhex("".join(["0", digits.str.join("0").item()])), ">i8")
    except ValueError:
        raise UnusualError from None
    need(len(numbers) == len(digits))
    return fields.hstack([pl.Series("digest", numbers.astype(np.int64))])


def _group(fields: pl.DataFrame, relation: Relation) -> RelationRecords:
    _need_laws(fields)
    fields = _with_digests(fields)
    texts = fields.get_column("images")
    lines = joined(texts, "}\n")
    images = parsed(lines, fields.height, relation, _schemas(relation), "error")
    rows = signed_rows(fields, images, texts, relation)
    if rows is not None:
        _need_every_null_written(rows, lines, relation)
    return RelationRecords(relation, fields, rows)


def _not_asked_for(fields: pl.DataFrame) -> Iterator[RelationRecords]:
    """Records whose rows are not read: their images must still be JSON and hide no other field."""
    if not fields.is_empty():
        _need_laws(fields)
        for images in fields.get_column("images"):
            need(orjson.loads(images + "}").keys() == {"before", "after"})
        yield RelationRecords(None, _with_digests(fields), None)


_ENDS = _ends()


@lru_cache(maxsize=4096)
def _schemas(relation: Relation) -> tuple[pa.Schema, pa.Schema]:
    """The schema of the images with text for types that are cast, and the final one."""
    return pa.schema(image_fields(relation, True)), pa.schema(image_fields(relation, False))


def _need_laws(fields: pl.DataFrame) -> None:
    """Checks what the pattern cannot: no snapshot, order within the count, a bounded time."""
    version, order, count, ts_ms = (fields.get_column(name).to_numpy() for name in _NUMBERS)
    placed = (order > 0) & (order <= count)
    need(bool(np.all((version > 0) & placed & (ts_ms <= LAST_MS))))


def _need_every_null_written(rows: pl.DataFrame, lines: pa.Buffer, relation: Relation) -> None:
    """Arrow reads a missing column as a null, so nulls are counted in the text.

    The text holds only images, images only columns, and no column twice, or Arrow would have
    refused it. And the search cannot match inside a string, where a backslash precedes each quote.
    """
    nulls = {name: rows.get_column(name).null_count() for name in relation.column_names}
    text = lines.to_pybytes() if any(nulls.values()) else b""
    for name, count in nulls.items():
        need(count == 0 or text.count(orjson.dumps(name) + b":null") == count)
