"""Records exactly as `writing` lays them out, without a global transaction.

Behind the images such a record consists of fixed text and a few fields:

    {"before":…,"after":…   ,"op":"c"   ,"ts_ms":7   ,"source":{"db":"s","table":
    └─────── images ────┘   └ ending┘                └────────── mark ──────────┘
    "r","version":7,"ts_ms":7,"schema":"0a1b2c3d"},
    "transaction":{"id":"s:7","total_order":1,"event_count":1}}   ← the rest, from "r" on

A pattern reads the fields of the rest and leaves nothing in it open; mark and ending are compared.
So only the images are left to be parsed, a third of the text. The mark cannot lie inside a string,
where a backslash would stand before each quote; if it lies inside the images, the rest of the
record is not what the pattern says.
"""

from functools import lru_cache

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from protocols.algebra.frame import at_once
from protocols.views.catalog import Relation
from sources.envelope.form import Batch, Group, schema_digest
from sources.envelope.images import image_fields, need, parsed, signed_rows

_NUMBERS = ("version", "order", "count", "ts_ms")
_VERSION, _ORDER, _COUNT, _TS_MS = (f"(?P<{n}>0|[1-9][0-9]{{0,17}})" for n in _NUMBERS)
#: Printable, and neither a quote nor a backslash.
_PLAIN = r"[ !#-\[\]-~]*"
_REST = (
    rf'^"(?P<table>{_PLAIN})","version":{_VERSION},"ts_ms":{_TS_MS},'
    r'"schema":"(?P<schema>[0-9a-f]{8})"\},'
    rf'"transaction":\{{"id":"{_PLAIN}","total_order":{_ORDER},"event_count":{_COUNT}\}}\}}$'
)
_START = b'{"before":'
#: Without snapshots, which we do not publish.
_ENDINGS = [f',"op":"{op}"'.encode() for op in "cud"]
_ENDING_LENGTH = len(_ENDINGS[0])


def in_our_layout(texts: pl.DataFrame, batch: Batch) -> list[Group]:
    """What those records say that are so and belong to relations which somebody asks for."""
    cut = _cut(texts, batch.source)
    if cut.is_empty():
        return []
    groups = (
        (relation, cut.filter(table=relation.name, schema=schema_digest(relation)))
        for relation in batch.relations.values()
    )
    return [_group(fields, relation) for relation, fields in groups if not fields.is_empty()]


def _cut(texts: pl.DataFrame, source: str) -> pl.DataFrame:
    """The records that have this layout, cut into images (as text) and fields."""
    mark = f',"source":{{"db":{orjson.dumps(source).decode()},"table":'
    json, at, front = pl.col("json"), pl.col("at"), pl.col("front")
    binary = json.cast(pl.Binary)
    rest = binary.bin.slice(at + len(mark.encode())).cast(pl.String)
    ts_ms = pl.concat_str(pl.lit(',"ts_ms":'), "ts_ms")
    steps = (
        texts.lazy()
        .with_columns(at=json.str.find(mark, literal=True))
        .filter(at.is_not_null())
        .select(
            "record",
            binary.bin.slice(0, at).cast(pl.String).alias("front"),
            rest.str.extract_groups(_REST).alias("fields"),
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
            front.bin.slice(-2, 1).cast(pl.String).alias("op"),
            front.bin.slice(0, front.bin.size() - _ENDING_LENGTH).cast(pl.String).alias("images"),
        )
    )
    return at_once(steps)


def _group(fields: pl.DataFrame, relation: Relation) -> Group:
    _need_laws(fields)
    lines = (fields.get_column("images").str.join("}\n").item() + "}").encode()
    images = parsed(lines, fields.height, _schemas(relation), "error")
    rows = signed_rows(fields, images, relation)
    if rows is not None:
        _need_every_null_written(rows, lines, relation)
    return Group(relation, fields, rows)


@lru_cache(maxsize=4096)
def _schemas(relation: Relation) -> tuple[pa.Schema, pa.Schema]:
    """The images with text for what is cast, and as they are wanted."""
    return pa.schema(image_fields(relation, True)), pa.schema(image_fields(relation, False))


def _need_laws(fields: pl.DataFrame) -> None:
    """What the pattern leaves open: snapshots alone have version 0, and the order is a place."""
    version, order, count = (fields.get_column(name).to_numpy() for name in _NUMBERS[:3])
    need(bool(np.all((version > 0) & (order > 0) & (order <= count))))


def _need_every_null_written(rows: pl.DataFrame, lines: bytes, relation: Relation) -> None:
    """A missing column and a null look the same to Arrow, so nulls are counted in the text.

    Nothing but the images is in the text, nothing but the columns in the images, and no column
    twice, or Arrow had refused it. And the pattern cannot match inside a string, whose quotes are
    preceded by a backslash.
    """
    for name in relation.column_names:
        nulls = rows.get_column(name).null_count()
        need(nulls == 0 or lines.count(orjson.dumps(name) + b":null") == nulls)
