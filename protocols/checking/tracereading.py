"""Reads a trace from its file.

Reading is strict about form (`WrongUse` names the line) and leaves every question of consistency to
the checker: a state may claim anything. Rows of relations are decoded to Python values here; rows
of states stay in their JSON form, because only the view's SQL knows their types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from protocols.algebra.types import ColumnType
from protocols.checking.trace import (
    JOINT,
    AnswerLine,
    CommitLine,
    DeliverLine,
    EndLine,
    Line,
    QueryLine,
    Row,
    RunLine,
    SignedRow,
    StateLine,
    Trace,
)
from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.dialects import dialect_named


def read_trace(lines: Iterable[str | bytes]) -> Trace:
    """Reads a trace; WrongUse names a line that is malformed."""
    reader = _Reader()
    read: list[Line] = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            read.append(reader.line(text, number))
        except _BrokenError as error:
            raise WrongUse(f"line {number}: {error}") from None
        except WrongUse as error:
            raise WrongUse(f"line {number}: {error}") from None
    if not read:
        raise WrongUse("the trace is empty: it has no run line")
    if isinstance(read[-1], EndLine):
        return Trace(tuple(read))
    return Trace(tuple(read), ("the trace has no end line: the run was cut off, or still runs",))


class _BrokenError(Exception):
    """The current line is malformed; the message says how."""


class _Reader:
    """Turns the lines into dataclasses one by one, and checks each against those before."""

    def __init__(self) -> None:
        # None until the run line was read; `ended` is set from the end line on.
        self.catalog: Catalog | None = None
        self.ended = False
        # The last version per source; the two dicts have every source of the catalog.
        self.committed: dict[str, int] = {}
        self.delivered: dict[str, int] = {}
        # The last position, and whether it holds a global transaction: only those share a position.
        self.position = 0
        self.shared = False
        # The global transactions, by (source, version).
        self.globals: dict[tuple[str, int], str] = {}
        # Per (source, relation): the types that decode its rows.
        self.types: dict[tuple[str, str], tuple[ColumnType, ...]] = {}
        self.asked: set[int] = set()
        self.answered: set[int] = set()

    def line(self, text: str | bytes, number: int) -> Line:
        form = _parsed(text)
        kind = form.get("type")
        read = self._READERS.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise _BrokenError(f"unknown type {kind!r}; there are {', '.join(self._READERS)}")
        if self.catalog is None and kind != "run":
            raise _BrokenError(f"a {kind} line before the run line, which has to be the first")
        if self.ended:
            raise _BrokenError(f"a {kind} line after the end line")
        return read(self, form, number)

    def _run(self, form: Mapping[str, Any], number: int) -> RunLine:
        if self.catalog is not None:
            raise _BrokenError("a second run line")
        sources = form.get("sources")
        if not isinstance(sources, dict) or not sources:
            raise _BrokenError('"sources" has to map the names of sources to their relations')
        self.catalog = catalog_from_json(sources)
        self.committed = dict.fromkeys(sources, 0)
        self.delivered = dict.fromkeys(sources, 0)
        initial = {}
        for relation in self.catalog:
            place = (relation.source, relation.name)
            self.types[place] = tuple(type_ for _, type_ in relation.columns)
            rows = _listed(sources[relation.source]["relations"][relation.name], "rows", ())
            initial[place] = tuple(self._row(place, row) for row in rows)
        seed = form.get("seed")
        return RunLine(
            _text(form, "protocol"),
            _text(form, "view"),
            self.catalog,
            initial,
            seed if isinstance(seed, int) else None,
            dialect_named(form.get("dialect")),
            number,
        )

    def _commit(self, form: Mapping[str, Any], number: int) -> CommitLine:
        source, version = self._source(form), _natural(form, "version")
        if version != self.committed[source] + 1:
            raise _BrokenError(
                f"{source} commits version {version} after version {self.committed[source]}; "
                "versions are dense"
            )
        changes = tuple(self._change(source, change) for change in _listed(form, "changes"))
        self.committed[source] = version
        global_id = form.get("global")
        if global_id is not None:
            global_id = str(global_id)
            self.globals[source, version] = global_id
        return CommitLine(source, version, changes, global_id, number)

    def _change(self, source: str, form: Any) -> SignedRow:
        if not isinstance(form, dict):
            raise _BrokenError(f"a change is an object, not {form!r}")
        relation = self._relation(source, form)
        return SignedRow(relation, self._row((source, relation), form.get("row")), _count(form))

    def _deliver(self, form: Mapping[str, Any], number: int) -> DeliverLine:
        source, version = self._source(form), _natural(form, "version")
        if version > self.committed[source]:
            raise _BrokenError(
                f"version {version} of {source} is delivered, but was never committed"
            )
        if version != self.delivered[source] + 1:
            raise _BrokenError(
                f"version {version} of {source} is delivered after version "
                f"{self.delivered[source]}; a source's versions are delivered in order, each once"
            )
        position = self._next_position(_natural(form, "position"), (source, version))
        self.delivered[source] = version
        return DeliverLine(source, version, position, number)

    def _next_position(self, position: int, part: tuple[str, int]) -> int:
        is_global = part in self.globals
        if position < self.position:
            raise _BrokenError(
                f"position {position} after position {self.position}: it goes backwards"
            )
        if position > self.position + 1:
            raise _BrokenError(
                f"position {position} after position {self.position}: one is missing"
            )
        if position == self.position and position and not (is_global or self.shared):
            raise _BrokenError(
                f"position {position} is given twice; only the parts of a global transaction share"
            )
        self.shared = is_global or (position == self.position and self.shared)
        self.position = position
        return position

    def _query(self, form: Mapping[str, Any], number: int) -> QueryLine:
        source, id_ = self._source(form), _natural(form, "id")
        if id_ in self.asked:
            raise _BrokenError(f"query {id_} is asked twice")
        self.asked.add(id_)
        joint = form.get("relation") == JOINT
        relation = JOINT if joint else self._relation(source, form)
        position = _natural(form, "position")
        keys, size = _natural(form, "keys", 0), _natural(form, "bytes", 0)
        return QueryLine(id_, position, source, relation, keys, size, number)

    def _answer(self, form: Mapping[str, Any], number: int) -> AnswerLine:
        id_ = _natural(form, "id")
        if id_ not in self.asked:
            raise _BrokenError(f"an answer to query {id_}, which was never asked")
        if id_ in self.answered:
            raise _BrokenError(f"query {id_} is answered twice")
        self.answered.add(id_)
        rows, size = _natural(form, "rows", 0), _natural(form, "bytes", 0)
        return AnswerLine(id_, _natural(form, "version"), rows, size, number)

    def _state(self, form: Mapping[str, Any], number: int) -> StateLine:
        changes = []
        for change in _listed(form, "changes"):
            if not isinstance(change, dict) or not isinstance(change.get("row"), list):
                raise _BrokenError(
                    f'a change of a state has the form {{"row": […], "count": n}}, not {change!r}'
                )
            changes.append((tuple(change["row"]), _count(change)))
        vector = self._vector(form, "vector")
        skipped = _natural(form, "skipped", 0)
        return StateLine(_natural(form, "position"), vector, tuple(changes), skipped, number)

    def _end(self, form: Mapping[str, Any], number: int) -> EndLine:
        self.ended = True
        return EndLine(self._vector(form, "delivered"), number)

    def _source(self, form: Mapping[str, Any]) -> str:
        source = form.get("source")
        if not isinstance(source, str) or source not in self.committed:
            known = ", ".join(self.committed)
            raise _BrokenError(f"unknown source {source!r}; the run line has {known}")
        return source

    def _relation(self, source: str, form: Mapping[str, Any]) -> str:
        relation = form.get("relation")
        if not isinstance(relation, str) or (source, relation) not in self.types:
            raise _BrokenError(f"unknown relation {relation!r} at source {source}")
        return relation

    def _row(self, place: tuple[str, str], row: Any) -> Row:
        types = self.types[place]
        if not isinstance(row, list):
            raise _BrokenError(f"{'.'.join(place)}: a row is a list of values, not {row!r}")
        if len(row) != len(types):
            raise _BrokenError(
                f"{'.'.join(place)}: the row {row!r} has {len(row)} values, "
                f"the relation has {len(types)} columns"
            )
        try:
            return tuple([type_.decode(value) for type_, value in zip(types, row, strict=True)])
        except (ValueError, OverflowError) as error:
            raise _BrokenError(f"{'.'.join(place)}: {error}") from None

    def _vector(self, form: Mapping[str, Any], key: str) -> dict[str, int]:
        vector = form.get(key)
        if not isinstance(vector, dict):
            raise _BrokenError(f'"{key}" has to map sources to versions, not {vector!r}')
        unknown = [source for source in vector if source not in self.committed]
        if unknown:
            raise _BrokenError(f'"{key}" names the unknown source {unknown[0]!r}')
        return {source: _natural(vector, source, 0) for source in self.committed}

    _READERS: Mapping[str, Callable[["_Reader", Mapping[str, Any], int], Line]] = {
        "run": _run,
        "commit": _commit,
        "deliver": _deliver,
        "query": _query,
        "answer": _answer,
        "state": _state,
        "end": _end,
    }


def _parsed(text: str | bytes) -> dict[str, Any]:
    try:
        form = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _BrokenError(f"not JSON: {error}") from None
    if not isinstance(form, dict):
        raise _BrokenError("not a JSON object")
    return form


_MISSING: Any = object()


def _natural(form: Mapping[str, Any], key: str, default: Any = _MISSING) -> int:
    value = form.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        found = (
            "is missing" if value is _MISSING else f"has to be a number from 0 on, not {value!r}"
        )
        raise _BrokenError(f'"{key}" {found}')
    return value


def _count(form: Mapping[str, Any]) -> int:
    count = form.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not abs(count) < 2**62:
        raise _BrokenError(f'"count" has to be a whole number, not {count!r}')
    return count


def _text(form: Mapping[str, Any], key: str) -> str:
    value = form.get(key)
    if not isinstance(value, str):
        raise _BrokenError(f'"{key}" has to be a text, not {value!r}')
    return value


def _listed(form: Mapping[str, Any], key: str, default: Any = None) -> Sequence[Any]:
    value = form.get(key, default)
    if not isinstance(value, list | tuple):
        raise _BrokenError(f'"{key}" has to be a list, not {value!r}')
    return value
