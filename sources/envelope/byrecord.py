"""Reads one record after the other; this code defines a valid record.

It names the fault of an invalid one, and for a few records it is also the fastest way.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import polars as pl

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.envelope.form import (
    HEADS,
    IMAGES,
    LAST_MS,
    SNAPSHOT,
    BadRecord,
    Place,
    Records,
    RequestedRelations,
    schema_digest,
)
from sources.history import digest_from_text

_LARGEST = 2**63 - 1


class _RecordError(Exception):
    """The fault of the present record."""


_Head = tuple[int, int, int, int, str, str, int]


def read_by_record(values: pl.Series, batch: RequestedRelations) -> Records:
    heads: list[tuple[Any, ...]] = []
    parts: dict[int, GlobalPart | None] = {}
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in batch.relations}
    for record, value in enumerate(values):
        if value is None:
            continue
        try:
            content = _json_object(value)
            head = _head(content, batch)
            heads.append((record, *head))
            version, table, op = head[0], head[4], head[5]
            part = _part(content["transaction"], batch.source)
            if parts.setdefault(version, part) != part:
                raise _RecordError(other_global(version))
            relation = batch.relations.get(table)
            if relation is not None and op != SNAPSHOT:
                for row, count in _signed_rows(content, op, relation):
                    rows[table].append((*row, count, version, record))
        except _RecordError as fault:
            raise BadRecord(record, batch.source, str(fault)) from None
    return Records(
        _frame(heads, HEADS),
        {name: _frame(found, batch.row_schemas[name]) for name, found in rows.items()},
        {version: part for version, part in parts.items() if part is not None},
    )


def _frame(rows: list[tuple[Any, ...]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    if not rows:
        return pl.DataFrame(schema=schema)
    columns = zip(schema.items(), zip(*rows, strict=True), strict=True)
    return pl.DataFrame([pl.Series(name, cells, dtype=dtype) for (name, dtype), cells in columns])


def place_of(record: bytes, source: str) -> tuple[Place, GlobalPart | None] | None:
    """The place of a record, and the global transaction that it belongs to, if any.

    None if it is not a record of this source.

    Its rows are not read: their relation may have had different columns when the record was
    written.
    """
    try:
        content = _json_object(record)
        origin, transaction = _field(content, "source", dict), _field(content, "transaction", dict)
        if _field(origin, "db", str, "source.") != source:
            return None
        version = _number(origin, "version", "source.", _LARGEST)
        order = _number(transaction, "total_order", "transaction.", _LARGEST)
        size = _number(transaction, "event_count", "transaction.", _LARGEST)
        return Place(version, order, size), _part(transaction, source)
    except _RecordError:
        return None


def _json_object(value: bytes) -> dict[str, Any]:
    try:
        content = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise _RecordError(f"not JSON ({error}); {_WRONG_TOPIC}") from None
    if not isinstance(content, dict):
        raise _RecordError(f"JSON, but not an object; {_WRONG_TOPIC}")
    return content


_WRONG_TOPIC = "check that the configuration names the right topic, and that it has no other writer"
_PRODUCER = "the producer of this topic must follow the envelope in sources/envelope"


def other_global(version: int) -> str:
    """The fault of records of one transaction that name different global transactions."""
    return (
        f"its global transaction differs from that of an earlier record of version {version};"
        f" {_PRODUCER}"
    )


def _head(content: dict[str, Any], batch: RequestedRelations) -> _Head:
    """Reads and checks version, order, count, ts_ms, table, op and digest."""
    op = _field(content, "op", str)
    origin = _field(content, "source", dict)
    transaction = _field(content, "transaction", dict)
    if op not in IMAGES:
        raise _RecordError(f"unknown op {_shown(op)}, there are {', '.join(IMAGES)}; {_PRODUCER}")
    if content.get("global") is not None:
        raise _RecordError(f'"global" belongs in "transaction"; {_PRODUCER}')
    db, table = _field(origin, "db", str, "source."), _field(origin, "table", str, "source.")
    if db != batch.source:
        raise _RecordError(f"it comes from source {_shown(db)}; {_WRONG_TOPIC}")
    _check_digest(origin, table, batch)
    version = _number(origin, "version", "source.", _LARGEST)
    if (version == 0) != (op == SNAPSHOT):
        raise _RecordError(
            f'op "{op}" at version {version}: version 0 is the initial load, and only that has '
            f'op "{SNAPSHOT}"; {_PRODUCER}'
        )
    _field(transaction, "id", str, "transaction.")
    count = _number(transaction, "event_count", "transaction.", _LARGEST)
    order = _number(transaction, "total_order", "transaction.", _LARGEST)
    if not 1 <= order <= count:
        raise _RecordError(f"it is number {order} of {count} of its transaction; {_PRODUCER}")
    ts_ms, digest = _number(origin, "ts_ms", "source.", LAST_MS), _history(transaction)
    return version, order, count, ts_ms, table, op, digest


def _history(transaction: dict[str, Any]) -> int:
    try:
        return digest_from_text(transaction.get("history"))
    except ValueError as error:
        raise _RecordError(f'"transaction.history": {error}; {_PRODUCER}') from None


def _part(transaction: dict[str, Any], source: str) -> GlobalPart | None:
    if transaction.get("global") is None:
        return None
    form = _field(transaction, "global", dict, "transaction.")
    id_ = _field(form, "id", str, "transaction.global.")
    participants = form.get("participants")
    if not are_participants(participants, source):
        raise _RecordError(
            f'"transaction.global.participants" should name sources, {source} among them;'
            f" {_PRODUCER}"
        )
    return GlobalPart(id_, frozenset(participants))


def are_participants(form: Any, source: str) -> bool:
    return isinstance(form, list) and all(isinstance(n, str) for n in form) and source in form


def _field(content: dict[str, Any], name: str, kind: type, where: str = "") -> Any:
    value = content.get(name)
    if not isinstance(value, kind):
        found = f"is {_shown(value)}" if name in content else "is missing"
        kind_name = "a string" if kind is str else "an object"
        raise _RecordError(f'"{where}{name}" {found} and should be {kind_name}; {_PRODUCER}')
    return value


def _number(content: dict[str, Any], name: str, where: str, most: int) -> int:
    value = content.get(name)
    if type(value) is not int or not 0 <= value <= most:
        found = f"is {_shown(value)}" if name in content else "is missing"
        raise _RecordError(
            f'"{where}{name}" {found} and should be a whole number up to {most}; {_PRODUCER}'
        )
    return value


def _shown(value: Any) -> str:
    """A value as shortened JSON; arrays and objects only by kind, since orjson reads deeper nesting
    than it writes."""
    if isinstance(value, list | dict):
        return "an array" if isinstance(value, list) else "an object"
    text = orjson.dumps(value).decode()
    shown = "".join([c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:40]])
    return shown + "…" * (len(text) > 40)


def _check_digest(origin: dict[str, Any], table: str, batch: RequestedRelations) -> None:
    relation, digest = batch.relations.get(table), origin.get("schema")
    if relation is None or digest is None or digest == schema_digest(relation):
        return
    columns = ", ".join(f"{name} {type_.name}" for name, type_ in relation.columns)
    raise _RecordError(
        f"its schema of {relation} is {_shown(digest)}, not that of ({columns}): another"
        " program writes to this topic, or the relation was altered since. If 'viewsweep"
        " sources status' shows these columns, stop the other writer and delete the topic: the"
        " source fills it again from version 1, and the same command resumes. If not, restore"
        " the columns of the relation, or recreate the view"
    )


def _signed_rows(
    content: dict[str, Any], op: str, relation: Relation
) -> Iterator[tuple[list[Any], int]]:
    for image, carried, count in zip(("before", "after"), IMAGES[op], (-1, 1), strict=True):
        cells = content.get(image)
        if carried and isinstance(cells, dict):
            yield _row(cells, image, relation), count
        elif carried or cells is not None:
            wanted = "an object" if carried else "null"
            raise _RecordError(f'op "{op}" of {relation} needs "{image}" as {wanted}; {_PRODUCER}')


def _row(cells: dict[str, Any], image: str, relation: Relation) -> list[Any]:
    without = next((name for name in relation.key if cells.get(name, "") is None), None)
    if without is not None:
        raise _RecordError(
            f'"{image}" of {relation} has NULL in key column "{without}"; {_PRODUCER}'
        )
    try:
        return [type_.decode(cells[name]) for name, type_ in relation.columns]
    except KeyError as missing:
        column = missing.args[0]
        raise _RecordError(
            f'"{image}" lacks column "{column}" of {relation}; {_PRODUCER}'
        ) from None
    except ValueError:
        raise _RecordError(f"{_first_misfit(cells, image, relation)}; {_PRODUCER}") from None


def _first_misfit(cells: dict[str, Any], image: str, relation: Relation) -> str:
    for name, type_ in relation.columns:
        try:
            type_.decode(cells[name])
        except ValueError as error:
            return f'"{image}" of {relation}, column "{name}": {error}'
    raise AssertionError("a row that did not decode decodes now")
