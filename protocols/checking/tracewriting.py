"""The lines of a trace in the form of its file; `trace.py` says what each means."""

import datetime
import decimal
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from protocols.checking.trace import (
    AnswerLine,
    CommitLine,
    DeliverLine,
    EndLine,
    Line,
    QueryLine,
    RunLine,
    StateLine,
)
from protocols.views.catalog import Catalog
from protocols.views.dialects import Dialect


def run_line(
    protocol: str,
    view: str,
    catalog: Catalog,
    initial: Mapping[tuple[str, str], Iterable[Sequence[Any]]],
    seed: int | None = None,
    dialect: Dialect | None = None,
) -> bytes:
    """The first line; `initial` maps (source, relation) to its rows."""
    sources: dict[str, Any] = {source: {"relations": {}} for source in catalog.sources}
    for relation in catalog:
        rows = initial.get((relation.source, relation.name), ())
        sources[relation.source]["relations"][relation.name] = {
            **relation.schema(),
            "rows": [_json_row(row) for row in rows],
        }
    form: dict[str, Any] = {"type": "run", "protocol": protocol}
    if seed is not None:
        form["seed"] = seed
    if dialect is not None:
        form["dialect"] = dialect
    return _encoded({**form, "view": view, "sources": sources})


def commit_line(
    source: str,
    version: int,
    changes: Iterable[tuple[str, Sequence[Any], int]],
    global_id: str | None = None,
) -> bytes:
    """A transaction at a source; its changes are (relation, row, count)."""
    form: dict[str, Any] = {
        "type": "commit",
        "source": source,
        "version": version,
        "changes": [
            {"relation": relation, "row": _json_row(row), "count": count}
            for relation, row, count in changes
        ],
    }
    if global_id is not None:
        form["global"] = global_id
    return _encoded(form)


def deliver_line(source: str, version: int, position: int) -> bytes:
    return _encoded({"type": "deliver", "source": source, "version": version, "position": position})


def query_line(
    id: int,  # noqa: A002
    position: int,
    source: str,
    relation: str,
    keys: int = 0,
    bytes: int = 0,  # noqa: A002
) -> bytes:
    return _encoded(
        {
            "type": "query",
            "id": id,
            "position": position,
            "source": source,
            "relation": relation,
            "keys": keys,
            "bytes": bytes,
        }
    )


def answer_line(id: int, version: int, rows: int = 0, bytes: int = 0) -> bytes:  # noqa: A002
    return _encoded({"type": "answer", "id": id, "version": version, "rows": rows, "bytes": bytes})


def state_line(
    position: int,
    vector: Mapping[str, int],
    changes: Iterable[tuple[Sequence[Any], int]],
    skipped: int = 0,
) -> bytes:
    """A visible state of the view; its changes are (row, count)."""
    rows = [{"row": _json_row(row), "count": count} for row, count in changes]
    form = {"type": "state", "position": position, "vector": dict(vector), "changes": rows}
    return _encoded({**form, "skipped": skipped} if skipped else form)


def end_line(delivered: Mapping[str, int]) -> bytes:
    return _encoded({"type": "end", "delivered": dict(delivered)})


def write_trace(lines: Iterable[Line]) -> Iterator[bytes]:
    """Writes the lines of a trace."""
    for line in lines:
        yield _written(line)


def _written(line: Line) -> bytes:
    match line:
        case RunLine():
            return run_line(
                line.protocol, line.view, line.catalog, line.initial, line.seed, line.dialect
            )
        case CommitLine():
            changes = ((change.relation, change.row, change.count) for change in line.changes)
            return commit_line(line.source, line.version, changes, line.global_id)
        case DeliverLine():
            return deliver_line(line.source, line.version, line.position)
        case QueryLine():
            return query_line(
                line.id, line.position, line.source, line.relation, line.keys, line.bytes
            )
        case AnswerLine():
            return answer_line(line.id, line.version, line.rows, line.bytes)
        case StateLine():
            return state_line(line.position, line.vector, line.changes, line.skipped)
        case EndLine():
            return end_line(line.delivered)


def _encoded(form: Mapping[str, Any]) -> bytes:
    return orjson.dumps(form, option=orjson.OPT_APPEND_NEWLINE)


def _json_row(row: Sequence[Any]) -> list[Any]:
    return [_json_value(value) for value in row]


def _json_value(value: Any) -> Any:
    """The value in the form of `ColumnType.encode`, found from the Python value alone."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, datetime.date) else value
