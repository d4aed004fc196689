"""Parses whole records of any layout: of other producers, and parts of global transactions."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from protocols.views.catalog import Relation
from sources.envelope.form import (
    IMAGES,
    LAST_MS,
    RECORD,
    SNAPSHOT,
    RelationRecords,
    RequestedRelations,
    digest_column,
    schema_digest,
)
from sources.envelope.images import image_fields, joined, need, parsed, signed_rows
from sources.history import DIGEST

#: Patterns that match, among others, numbers that Arrow accepts and orjson refuses: NaN, Infinity,
#: 1e999, and numbers that are too large without a large exponent.
_SUSPECT, _LONG = r"NaN|Inf|[0-9][eE]\+?[0-9]{3}", r"[0-9.]{207}"
#: orjson reads nesting a little deeper than this, Arrow without limit.
_DEPTH = 1000


def in_any_layout(texts: pl.DataFrame, batch: RequestedRelations) -> Iterator[RelationRecords]:
    """Reads all of the texts, by relation."""
    json = texts.get_column("json")
    need(json.str.starts_with("{").all() and json.str.ends_with("}").all())
    for relation, group in _by_relation(texts, batch):
        fields = _parse(group, relation).with_columns(group.get_column("record"))
        heads = _heads(fields, batch, relation)
        rows = None if relation is None else _rows(heads, fields, group, relation)
        yield RelationRecords(relation, heads, rows, _globals(fields))


def _by_relation(
    texts: pl.DataFrame, batch: RequestedRelations
) -> Iterator[tuple[Relation | None, pl.DataFrame]]:
    """The records of each relation, then the others: columns of one name may differ in type.

    A text search for the name guesses the relation, and `_heads` verifies the guess.
    """
    for name, relation in batch.relations.items():
        tag = f'"table":{orjson.dumps(name).decode()}'
        ours = texts["json"].str.contains(tag, literal=True)
        if ours.any():
            yield relation, texts.filter(ours)
            texts = texts.filter(~ours)
    if not texts.is_empty():
        yield None, texts


def _parse(group: pl.DataFrame, relation: Relation | None) -> pl.DataFrame:
    json = group.get_column("json")
    lines = joined(json, "\n")
    schemas = _arrow_schema(relation, True), _arrow_schema(relation, False)
    if relation is not None:
        with suppress(pa.ArrowInvalid):
            return parsed(lines, group.height, relation, schemas, "error")
    _require_json(json, lines)
    return parsed(lines, group.height, relation, schemas, "ignore")


def _require_json(texts: pl.Series, lines: pa.Buffer) -> None:
    """Checks that fields that are not read are valid JSON too.

    orjson parses the texts that Arrow might wrongly accept.
    """
    suspect = texts.str.contains(_SUSPECT)
    if _has_long_number(lines):
        suspect |= texts.str.contains(_LONG)
    if (texts.str.len_bytes() > _DEPTH).any():
        suspect |= texts.str.count_matches(r"[\[{]") > _DEPTH
    for text in texts.filter(suspect):
        orjson.loads(text)


def _has_long_number(lines: pa.Buffer) -> bool:
    """Whether `_LONG` may match: looks at one in 16 characters."""
    # From "." to "9"; characters below "." wrap around.
    found = np.frombuffer(lines, np.uint8)[::16] - np.uint8(46) < 12
    for step in (1, 2, 4, 4):
        found = found[:-step] & found[step:]
    return bool(found.any())


@lru_cache(maxsize=4096)
def _arrow_schema(relation: Relation | None, as_text: bool) -> pa.Schema:
    """The fields of a record that are read."""
    number, text = pa.int64(), pa.string()
    origin = {"db": text, "table": text, "version": number, "ts_ms": number, "schema": text}
    part = pa.struct([("id", text), ("participants", pa.list_(text))])
    transaction = {"id": text, "total_order": number, "event_count": number, "global": part}
    transaction["history"] = text
    fields = [
        pa.field("op", text),
        pa.field("ts_ms", number),
        pa.field("source", pa.struct(list(origin.items()))),
        pa.field("transaction", pa.struct(list(transaction.items()))),
        pa.field("global", text),
    ]
    return pa.schema(fields if relation is None else [*fields, *image_fields(relation, as_text)])


def _heads(
    fields: pl.DataFrame, batch: RequestedRelations, relation: Relation | None
) -> pl.DataFrame:
    origin, transaction = fields["source"].struct, fields["transaction"].struct
    heads = pl.DataFrame(
        {
            "record": fields["record"],
            "version": origin.field("version"),
            "order": transaction.field("total_order"),
            "count": transaction.field("event_count"),
            "ts_ms": origin.field("ts_ms"),
            "table": origin.field("table"),
            "op": fields["op"],
            "history": transaction.field("history"),
        }
    )
    others = {
        "db": origin.field("db"),
        "schema": origin.field("schema"),
        "id": transaction.field("id"),
        "global": fields["global"],
    }
    checked = heads.with_columns(**others)
    need(checked.select(pl.all_horizontal(_head_laws(batch, relation)).all()).item())
    return heads.with_columns(digest=digest_column(pl.col("history")))


def _head_laws(batch: RequestedRelations, relation: Relation | None) -> Iterable[pl.Expr]:
    """The checks of `_head`, for all records at once; a missing value fails them."""
    op, table, version = pl.col("op"), pl.col("table"), pl.col("version")
    yield op.is_in(list(IMAGES)).fill_null(False)
    yield pl.col("db").eq_missing(pl.lit(batch.source))
    yield (version >= 0).fill_null(False) & ((version == 0) == (op == SNAPSHOT))
    yield pl.col("ts_ms").is_between(0, LAST_MS).fill_null(False)
    yield pl.col("order").is_between(1, pl.col("count")).fill_null(False)
    yield pl.col("id").is_not_null()
    yield pl.col("history").str.contains(f"^{DIGEST}$").fill_null(True)
    yield pl.col("global").is_null()
    if relation is None:
        yield ~table.is_in(list(batch.relations)).fill_null(True)
    else:
        yield table.eq_missing(pl.lit(relation.name))
        yield pl.col("schema").is_null() | (pl.col("schema") == schema_digest(relation))


def _globals(fields: pl.DataFrame) -> pl.DataFrame:
    """Version, id and participants of each record; null for a local transaction."""
    version = fields["source"].struct.field("version")
    part = fields["transaction"].struct.field("global")
    names = [part.struct.field(name) for name in ("id", "participants")]
    return pl.DataFrame([version, *names, part.is_not_null().alias("is_part")])


def _rows(
    heads: pl.DataFrame, fields: pl.DataFrame, texts: pl.DataFrame, relation: Relation
) -> pl.DataFrame | None:
    changes = heads.get_column("op") != SNAPSHOT
    if not changes.any():
        return None
    json = texts.get_column("json")
    rows = signed_rows(heads.filter(changes), fields.filter(changes), json, relation)
    if rows is not None:
        _need_every_null_written(rows, texts, relation)
    return rows


def _need_every_null_written(rows: pl.DataFrame, texts: pl.DataFrame, relation: Relation) -> None:
    """Arrow reads a missing column as a null, so records with nulls are read again."""
    names = set(relation.column_names)
    with_null = rows.filter(pl.any_horizontal(pl.col(list(names)).is_null()))
    records = texts.get_column("record").is_in(with_null.get_column(RECORD).to_list())
    for json in texts.get_column("json").filter(records):
        content = orjson.loads(json)
        for image in (content.get("before"), content.get("after")):
            need(image is None or names <= image.keys())
