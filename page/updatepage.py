"""The page of one update, and the page of one row: which updates made it."""

import time
from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl

from page.lake import StoredRows
from page.viewpage import updates
from page.walk import Walk, walk
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.types import ColumnType
from protocols.analysis.keys import keys_of
from protocols.errors import WrongUse
from protocols.exchange.questions import Query
from streaming.job.recording import RecordedBatch, Recording

#: More changes of the view than this are counted only.
_SHOWN = 30
#: More rows of an answer than this are not listed.
_ROWS = 8
#: A row's history lists at most so many changes.
_HISTORY = 500
#: How long an update with something to take out is looked for.
_LOOKS_SECONDS = 2.0


def update(
    stored: StoredRows, position: int, recording: Recording | None, protocol: str
) -> dict[str, Any]:
    """Everything about the update at a position."""
    standing = stored.standing
    last = 0 if standing is None else standing.position
    found = list(updates(stored.transactions(position - 1, position)))
    if not found:
        raise WrongUse(
            f"update {position:,} of view {stored.view.name} is not known: its updates are"
            f" {stored.folded() + 1:,} to {last:,}"
        )
    changes = stored.changes_at(position)
    batch = None if recording is None else recording.of(stored.view.name, position)
    steps = None if batch is None else walk(stored.view, protocol, batch, position)
    return {
        "position": position,
        "last": last,
        "first": stored.folded() + 1,
        "update": found[0],
        "changes": changes.sort(COUNT).head(_SHOWN).to_dicts(),
        "more_changes": max(0, changes.height - _SHOWN),
        "walk": steps,
        "committed": [] if steps is None else list(_committed(steps)),
        "adds_up": None if steps is None else _adds_up(steps, changes),
        "most": _ROWS,
        "dicts": pl.DataFrame.to_dicts,
    }


def latest_corrected(stored: StoredRows, recording: Recording, protocol: str) -> int | None:
    """The latest update whose answers contained something too new, if it is found soon.

    One whose answers can be shown whole is preferred.
    """
    until, large = time.monotonic() + _LOOKS_SECONDS, None
    for batch in filter(_touches_what_it_asked, recording.of_view(stored.view.name)):
        for position in range(batch.last, batch.first - 1, -1):
            if time.monotonic() > until:
                return large
            steps = walk(stored.view, protocol, batch, position).steps
            if any(step.too_much for step in steps):
                if all(step.answered.height <= _ROWS for step in steps):
                    return position
                large = large or position
    return large


def _touches_what_it_asked(batch: RecordedBatch) -> bool:
    """Whether an asked relation changed at all while the batch was swept."""
    asked = {each.question.relation for each in batch.answers if isinstance(each.question, Query)}
    return any(relation in batch.changes for relation in asked)


def _committed(steps: Walk) -> Iterator[tuple[str, dict[str, ColumnType], pl.DataFrame]]:
    """The changed relations, with the types of their columns and their changes."""
    for relation, rows in steps.committed.items():
        types = {name: relation.type_of(name) for name in rows.columns if name != COUNT}
        yield str(relation), types, rows.sort(COUNT)


def _adds_up(steps: Walk, committed: pl.DataFrame) -> bool | None:
    """Whether the steps give the committed change; None if one of them is not known whole."""
    if steps.change is None:
        return None
    names = [name for name in committed.columns if name != COUNT]
    return _summed(steps.change, names).equals(_summed(committed, names), null_equal=True)


def _summed(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    counted = rows.group_by(names).agg(pl.col(COUNT).sum()).filter(pl.col(COUNT) != 0)
    return counted.sort(names, nulls_last=True)


def row_history(stored: StoredRows, text: str) -> dict[str, Any]:
    """The updates that made a row, and those that made the rows before it with its key."""
    schema = stored.view.schema
    row = _row(stored, text)
    keys = keys_of(stored.view).keys
    key = keys[0] if keys and keys[0] and set(keys[0]) < schema.keys() else None
    by = row if key is None else {name: row[name] for name in key}
    found = stored.made_by(by)
    shown = found.tail(_HISTORY)
    whose = {u["position"]: u for u in updates(stored.transactions_at(shown[POSITION].to_list()))}
    same = found.filter(pl.all_horizontal([_is(name, value) for name, value in row.items()]))
    groups = [
        {
            "position": position,
            "whose": whose.get(position),
            "changes": part.drop(POSITION).sort(COUNT).to_dicts(),
        }
        for (position,), part in shown.group_by(POSITION, maintain_order=True)
    ]
    return {
        "row": row,
        "key": key,
        "count": int(same[COUNT].sum()),
        "groups": groups,
        "older": found.height - shown.height,
        "folded": stored.folded(),
    }


def _is(name: str, value: Any) -> pl.Expr:
    return pl.col(name).eq_missing(pl.lit(value))


def _row(stored: StoredRows, text: str) -> dict[str, Any]:
    schema = stored.view.schema
    try:
        values = orjson.loads(text)
        if not isinstance(values, list) or len(values) != len(schema):
            raise ValueError
        return {
            name: type_.decode(value)
            for (name, type_), value in zip(schema.items(), values, strict=True)
        }
    except ValueError:
        raise WrongUse(
            f"this is no row of view {stored.view.name}: choose one in the list of its rows"
        ) from None
