"""Records exactly as `writing` lays them out, without a global transaction.

Behind the images such a record consists of fixed text and a few numbers:

    {"before":…,"after":…   ,"op":"c","ts_ms":7   ,"source":{"db":"s","table":"r","version":
    └─────── images ────┘   └──── ending ─────┘   └────────────────── mark ────────────────┘
    7,"ts_ms":7,"schema":"0a1b2c3d"},"transaction":{"id":"s:7","total_order":1,"event_count":1}}
    └──────────────────────────────────────── rest ────────────────────────────────────────────┘

A pattern reads the numbers of the rest and leaves nothing in it open; mark and ending are compared.
So only the images are left to be parsed, a third of the text. The mark cannot lie inside a string,
where a backslash would stand before each quote; if it lies inside the images, the rest of the
record is not what the pattern says.
"""

from functools import lru_cache
from typing import NamedTuple

import orjson
import polars as pl
import pyarrow as pa

from protocols.views.catalog import Relation
from sources.envelope.form import HEADS, schema_digest
from sources.envelope.images import image_fields, need, parsed, signed_rows

_NUMBER = "(?P<{}>0|[1-9][0-9]{{0,17}})"
_STRING = r'"[^"\\\x00-\x1f]*"'
_START = '{"before":'
#: Without snapshots, which we do not publish.
_ENDINGS = [f',"op":"{op}"'.encode() for op in "cud"]
_ENDING_LENGTH = len(_ENDINGS[0])
_NUMBERS = ("version", "order", "count", "ts_ms")


class _Layout(NamedTuple):
    mark: str
    #: What the rest is, with the groups `_NUMBERS`.
    pattern: str
    #: The images with text for what is cast, and as they are wanted.
    schemas: tuple[pa.Schema, pa.Schema]


@lru_cache(maxsize=4096)
def _layout(relation: Relation) -> _Layout:
    db, table = (orjson.dumps(name).decode() for name in (relation.source, relation.name))
    version, order, count, ts_ms = (_NUMBER.format(name) for name in _NUMBERS)
    pattern = (
        rf'^{version},"ts_ms":{ts_ms},"schema":"{schema_digest(relation)}"\}},"transaction":'
        rf'\{{"id":{_STRING},"total_order":{order},"event_count":{count}\}}\}}$'
    )
    as_text, wanted = (pa.schema(image_fields(relation, as_text)) for as_text in (True, False))
    return _Layout(
        f',"source":{{"db":{db},"table":{table},"version":',
        pattern,
        (as_text, as_text if as_text == wanted else wanted),
    )


def in_our_layout(
    texts: pl.DataFrame, relation: Relation
) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame]:
    """Heads and signed rows of the records that are so, and the texts that are not."""
    layout = _layout(relation)
    at = texts.get_column("json").str.find(layout.mark, literal=True).alias("at")
    if at.null_count() < len(at):
        cut = _cut(texts.with_columns(at), layout)
        ours = cut.get_column("is_ours")
        if ours.any():
            return *_read(cut.filter(ours), relation, layout), texts.filter(~ours)
    return pl.DataFrame(schema=HEADS), None, texts


def _cut(texts: pl.DataFrame, layout: _Layout) -> pl.DataFrame:
    """The records cut into images (`front`, with the op behind them) and the numbers as text."""
    json, at = pl.col("json").cast(pl.Binary), pl.col("at")
    rest = json.bin.slice(at + len(layout.mark.encode())).cast(pl.String)
    front = json.bin.slice(0, at).cast(pl.String)
    cut = texts.select(
        "record", front.alias("front"), rest.str.extract_groups(layout.pattern).alias("numbers")
    ).unnest("numbers")
    ts_ms = pl.concat_str(pl.lit(',"ts_ms":'), "ts_ms")
    cut = cut.with_columns(front=pl.col("front").str.strip_suffix(ts_ms).cast(pl.Binary))
    front = pl.col("front")
    is_ours = (
        front.bin.slice(-_ENDING_LENGTH).is_in(_ENDINGS)
        & front.bin.starts_with(_START.encode())
        & pl.col("version").is_not_null()
    )
    return cut.with_columns(is_ours=is_ours.fill_null(False))


def _read(
    cut: pl.DataFrame, relation: Relation, layout: _Layout
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    front = pl.col("front")
    fields = cut.select(
        pl.col("record"),
        *(pl.col(name).cast(pl.Int64) for name in _NUMBERS),
        pl.lit(relation.name).alias("table"),
        front.bin.slice(-2, 1).cast(pl.String).alias("op"),
        front.bin.slice(0, front.bin.size() - _ENDING_LENGTH).cast(pl.String).alias("images"),
    )
    heads = fields.select(*HEADS)
    _need_laws(heads)
    lines = (fields.get_column("images").str.join("}\n").item() + "}").encode()
    images = parsed(lines, fields.height, layout.schemas, "error")
    rows = signed_rows(pl.concat([heads, images], how="horizontal"), relation)
    if rows is not None:
        _need_every_null_written(rows, lines, relation)
    return heads, rows


def _need_laws(heads: pl.DataFrame) -> None:
    """What the pattern leaves open: snapshots alone have version 0, and the order is a place."""
    order = heads.get_column("order")
    need((heads.get_column("version") > 0).all())
    need((order > 0).all() and (order <= heads.get_column("count")).all())


def _need_every_null_written(rows: pl.DataFrame, lines: bytes, relation: Relation) -> None:
    """A missing column and a null look the same to Arrow, so nulls are counted in the text.

    Nothing but the images is in the text, nothing but the columns in the images, and no column
    twice, or Arrow had refused it. And the pattern cannot match inside a string, whose quotes are
    preceded by a backslash.
    """
    for name in relation.column_names:
        nulls = rows.get_column(name).null_count()
        need(nulls == 0 or lines.count(orjson.dumps(name) + b":null") == nulls)
