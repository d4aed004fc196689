"""Reading a whole batch at once, in columns.

This only ever accepts what reading by record accepts, and reads the same from it; when in doubt it
declines, and the batch is read by record. Most records are laid out as we write them, which saves
parsing most of their text (`ourlayout`); the others are parsed as a whole (`anylayout`).
"""

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from protocols.maintenance.holdback import GlobalPart
from sources.envelope.anylayout import in_any_layout
from sources.envelope.byrecord import are_participants
from sources.envelope.form import RECORD, Batch, Records
from sources.envelope.images import UnusualError, need
from sources.envelope.ourlayout import in_our_layout


def read_in_columns(values: pl.Series, batch: Batch) -> Records | None:
    """The same as `read_by_record`, or None."""
    try:
        return _read(_texts(values), batch)
    except (UnusualError, pa.ArrowInvalid, pl.exceptions.PolarsError):
        return None


def _texts(values: pl.Series) -> pl.DataFrame:
    """The records as text (`json`) with their index, tombstones left out."""
    texts = pl.DataFrame({"record": pl.int_range(len(values), eager=True), "json": values})
    if values.null_count():
        texts = texts.drop_nulls("json")
    json = texts.get_column("json").cast(pl.String)
    need(json.str.starts_with("{").all() and json.str.ends_with("}").all())
    return texts.with_columns(json)


def _read(texts: pl.DataFrame, batch: Batch) -> Records:
    heads: list[pl.DataFrame] = []
    rows: dict[str, list[pl.DataFrame]] = {name: [] for name in batch.relations}
    for relation in batch.relations.values():
        found, signed, texts = in_our_layout(texts, relation)
        heads.append(found)
        rows[relation.name] += [] if signed is None else [signed]
    local = pl.concat([each.get_column("version") for each in heads])
    globals_ = []
    if not texts.is_empty():
        for group in in_any_layout(texts, batch):
            heads.append(group.heads)
            globals_.append(group.globals)
            if group.relation is not None and group.rows is not None:
                rows[group.relation.name].append(group.rows)
    parts = _parts(globals_, local, batch)
    return Records(_in_order(heads, "record"), _all_rows(rows, batch), parts)


def _in_order(frames: Sequence[pl.DataFrame], column: str) -> pl.DataFrame:
    """Stable: the old row of a record stays before its new one."""
    full = [frame for frame in frames if not frame.is_empty()]
    if len(full) == 1:
        return full[0]
    return pl.concat(full or frames[:1]).sort(column, maintain_order=True)


def _all_rows(rows: dict[str, list[pl.DataFrame]], batch: Batch) -> dict[str, pl.DataFrame]:
    return {
        name: _in_order(rows[name], RECORD) if rows[name] else pl.DataFrame(schema=schema)
        for name, schema in batch.row_schemas.items()
    }


def _parts(
    globals_: Sequence[pl.DataFrame], local: pl.Series, batch: Batch
) -> dict[int, GlobalPart]:
    """Which versions are parts of global transactions; the records of one version have to agree.

    `local`: the versions of records that are certainly of none.
    """
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
    need(not local.is_in(list(found)).any())
    return found
