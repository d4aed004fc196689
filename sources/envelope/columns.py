"""Reads a whole batch at once, in columns.

It accepts only what reading by record accepts, with the same result; when in doubt it declines, and
the batch is read by record. Most records have the layout that we write, which saves parsing most of
their text (`ourlayout`); the others are parsed as a whole (`anylayout`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from protocols.algebra.frame import picked
from protocols.exchange.holdback import GlobalPart
from sources.envelope.anylayout import in_any_layout
from sources.envelope.byrecord import are_participants
from sources.envelope.form import HEADS, RECORD, Records, RelationRecords, RequestedRelations
from sources.envelope.images import UnusualError, need
from sources.envelope.ourlayout import in_our_layout


def read_in_columns(values: pl.Series, batch: RequestedRelations) -> Records | None:
    """Reads the same as `read_by_record`, or declines with None."""
    try:
        return _read(_texts(values), batch)
    except (UnusualError, pa.ArrowInvalid, pl.exceptions.PolarsError, orjson.JSONDecodeError):
        return None


def _texts(values: pl.Series) -> pl.DataFrame:
    """The records as text (`json`) with their index, without tombstones."""
    json = values.cast(pl.String).alias("json")
    texts = pl.DataFrame([pl.Series("record", np.arange(len(values))), json])
    return texts.drop_nulls("json") if values.null_count() else texts


def _read(texts: pl.DataFrame, batch: RequestedRelations) -> Records:
    plain = in_our_layout(texts, batch)
    others = _without(texts, plain)
    groups = [*plain, *(in_any_layout(others, batch) if len(others) else ())]
    return Records(_heads(groups), _rows(groups, batch), _parts(groups, batch))


def _without(texts: pl.DataFrame, groups: Sequence[RelationRecords]) -> pl.DataFrame:
    """The texts of records that are in none of the groups."""
    read = [group.fields.get_column("record").to_numpy() for group in groups]
    if sum(map(len, read)) == len(texts):
        return texts.clear()
    known = np.isin(texts.get_column("record").to_numpy(), np.concatenate([*read, []]))
    return texts.filter(~known)


def _heads(groups: Sequence[RelationRecords]) -> pl.DataFrame:
    return _in_order([picked(group.fields, HEADS) for group in groups], "record", HEADS)


def _rows(groups: Sequence[RelationRecords], batch: RequestedRelations) -> dict[str, pl.DataFrame]:
    rows: dict[str, list[pl.DataFrame]] = {name: [] for name in batch.relations}
    for group in groups:
        if group.relation is not None and group.rows is not None:
            rows[group.relation.name].append(group.rows)
    return {name: _in_order(rows[name], RECORD, batch.row_schemas[name]) for name in rows}


def _in_order(
    frames: Sequence[pl.DataFrame], column: str, schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """Concatenates the frames in the order of the column.

    The sort is stable, so the old row of a record stays before the new one.
    """
    if len(frames) < 2:
        return frames[0] if frames else pl.DataFrame(schema=schema)
    rows = pl.concat(frames)
    return rows[np.argsort(rows.get_column(column).to_numpy(), kind="stable")]


def _parts(groups: Sequence[RelationRecords], batch: RequestedRelations) -> dict[int, GlobalPart]:
    """The versions that are parts of global transactions; records of one version must agree."""
    globals_ = [group.globals for group in groups if group.globals is not None]
    if not any(each.get_column("is_part").any() for each in globals_):
        return {}
    parts: dict[int, GlobalPart | None] = {}
    for version, id_, participants, is_part in pl.concat(globals_).unique().iter_rows():
        part = None
        if is_part:
            need(id_ is not None and are_participants(participants, batch.source))
            part = GlobalPart(id_, frozenset(participants))
        need(parts.setdefault(version, part) == part)
    found = {version: part for version, part in parts.items() if part is not None}
    for group in groups:
        # A group without a global transaction names none.
        if group.globals is None:
            need(not group.fields.get_column("version").is_in(list(found)).any())
    return found
