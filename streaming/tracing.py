"""`viewsweep trace`: the trace of a live run, reconstructed afterwards from what is stored.

    commits     from the topics, from version 1 on
    deliveries  from the view's `progress` table, with the questions and their answers
    states      from the view's `changes` table
    base rows   from the sources: the rows they hold now, less everything that they committed

The job stores nothing for this purpose, and nothing is judged here: the checker receives the
commits and the states, and computes by itself what the states should have been.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.checking.tracewriting import (
    answer_line,
    commit_line,
    deliver_line,
    end_line,
    query_line,
    run_line,
    state_line,
)
from protocols.errors import SourceViolation, WrongUse
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Query
from protocols.views.catalog import Catalog, Relation
from protocols.views.tree import AnyView
from sources.history import UNKNOWN, other_past
from sources.port import Changes
from sources.topics import ends_of
from streaming.intake.asking import Sources
from streaming.intake.lookahead import Lookahead
from streaming.settings.configuration import Configuration, SourceSettings, ViewSettings
from warehouse.definition import stored_view
from warehouse.standing import Standing
from warehouse.tables import ViewTables


def write_live_trace(configuration: Configuration, settings: ViewSettings, file: Path) -> int:
    """Writes the trace of a view's whole life so far; returns the number of positions."""
    view = stored_view(configuration.warehouse / settings.name)
    tables = ViewTables(configuration.warehouse, view)
    if not tables.exists:
        raise WrongUse(f"view {view.name} has no first state yet; let 'viewsweep run' make it")
    _refuse_folded(tables)
    past = _read_past(configuration, view, tables.standing())
    try:
        with file.open("wb") as out:
            for line in _lines(view, tables, settings.protocol, past):
                out.write(line)
    except OSError as error:
        raise WrongUse(f"cannot write {file}: {error.strerror}") from None
    return tables.standing().position


def _refuse_folded(tables: ViewTables) -> None:
    """A trace begins with the first state; without it nothing can be judged."""
    folded = tables.folded()
    if folded:
        raise WrongUse(
            f"view {tables.view.name}: its history up to position {folded} was folded into one"
            " state, so its trace from the first state on is lost. To keep all of it, recreate the"
            f" view without history_hours under [views.{tables.view.name}]"
        )


def _refuse_databases(used: Mapping[str, SourceSettings]) -> None:
    """WrongUse for sources whose topics do not begin with their first transactions."""
    for source, settings in used.items():
        if settings.database is not None:
            raise WrongUse(
                f"source {source} is a database, whose topic does not begin with its first"
                " transaction: there is no trace of views over it. Its log tells what it has"
                " committed"
            )


@dataclass(frozen=True)
class _Past:
    """Everything that the sources of a view ever committed, and their rows before that."""

    #: (source, version) → its changes as (relation, row, count).
    commits: dict[tuple[str, int], list[tuple[str, tuple[Any, ...], int]]]
    #: (source, relation) → the rows of version 0.
    initial: dict[tuple[str, str], list[tuple[Any, ...]]]
    #: (source, version) → the global transaction that it is a part of.
    global_id: Callable[[str, int], str | None]


def _read_past(configuration: Configuration, view: AnyView, standing: Standing) -> _Past:
    """Reads all topics from their beginning, and all relations of the view once."""
    used = {source: configuration.sources[source] for source in view.sources}
    _refuse_databases(used)
    patience = configuration.job.patience_seconds
    ends = ends_of(configuration.kafka, {s.name: s.topics for s in used.values()})
    logs = {relation: FrameLog() for relation in view.relations}
    mailbox = Mailbox[Frame](logs, dict.fromkeys(used, 0))
    sources = Sources(used, patience, _silent, threading.Event())
    begin = {s: {p: low for p, (low, _) in each.items()} for s, each in ends.items()}
    changes = {
        source: sources.changes(source, view.relations_of(source), mailbox, offsets, (), UNKNOWN)
        for source, offsets in begin.items()
    }
    lookahead = Lookahead(configuration.kafka, changes, patience, _silent, threading.Event())
    try:
        answers = sources.ask([Query(r, r.column_names) for r in view.relations])
        past = _Past({}, {}, partial(_global_id, changes))
        for relation, answer in zip(view.relations, answers, strict=True):
            source, version = relation.source, answer.inclusion.version
            lookahead.read_until(
                partial(_has, mailbox, source, version), f"version {version} of {source}"
            )
            _refuse_fork(changes[source], version, answer.digest)
            rows, committed = answer.rows.data, logs[relation].rows()
            if committed is not None:
                _add_commits(past, relation, committed)
                rows = _undone(rows, committed.filter(pl.col(VERSION) <= version), relation)
            past.initial[source, relation.name] = _repeated(rows, relation)
        for source, digest in standing.digests.items():
            _refuse_fork(changes[source], standing.vector[source], digest)
        return past
    except SourceViolation as error:
        raise SourceViolation(f"{error}. (A trace needs every topic from version 1 on)") from None
    finally:
        lookahead.close()
        sources.close()


def _has(mailbox: Mailbox[Frame], source: str, version: int) -> bool:
    return mailbox.received(source) >= version


def _refuse_fork(changes: Changes, version: int, digest: int) -> None:
    """SourceViolation when the topic has another history than the source, or than the view saw."""
    if not changes.agrees(version, digest):
        raise SourceViolation(other_past(changes.source, changes.confirmed, version))


def _global_id(changes: Mapping[str, Changes], source: str, version: int) -> str | None:
    part = changes[source].part_of(version)
    return None if part is None else part.id


def _add_commits(past: _Past, relation: Relation, changes: pl.DataFrame) -> None:
    for *row, count, version in changes.select(*relation.column_names, COUNT, VERSION).iter_rows():
        key = (relation.source, version)
        past.commits.setdefault(key, []).append((relation.name, tuple(row), count))


def _undone(now: pl.DataFrame, changes: pl.DataFrame, relation: Relation) -> pl.DataFrame:
    """The rows before the changes: the present rows, less all of them."""
    names = list(relation.column_names)
    both = pl.concat([now.select(*names, COUNT), changes.select(*names, -pl.col(COUNT))])
    return both.group_by(names, maintain_order=True).agg(pl.col(COUNT).sum())


def _repeated(rows: pl.DataFrame, relation: Relation) -> list[tuple[Any, ...]]:
    """Each row as often as its count says."""
    picked = rows.select(*relation.column_names, COUNT).iter_rows()
    return [tuple(row) for *row, count in picked for _ in range(count)]


def _lines(view: AnyView, tables: ViewTables, protocol: str, past: _Past) -> Iterator[bytes]:
    """The lines in the order in which things happened, as far as that is known afterwards."""
    progress = tables.progress()
    vector = _first_vector(tables, progress)
    states = _states(view, tables)
    yield run_line(protocol, view.sql, Catalog(view.relations), past.initial)
    commits = _Commits(past)
    for source, version in vector.items():
        yield from commits.up_to(source, version)
        for earlier in range(1, version + 1):
            yield deliver_line(source, earlier, 0)
    yield state_line(0, vector, states.get(0, []))
    question = 0
    for position, group in groupby(progress.iter_rows(named=True), itemgetter("position")):
        parts = list(group)
        vector = {**vector, **{part["source"]: part["version"] for part in parts}}
        for part in parts:
            yield from commits.up_to(part["source"], part["version"])
            yield deliver_line(part["source"], part["version"], position)
        for asked in (asked for part in parts for asked in part["questions"]):
            question += 1
            yield from _question_lines(question, position, asked, commits)
        if parts[0]["shown"]:
            skipped = sum(part["skipped"] for part in parts)
            yield state_line(position, vector, states.get(position, []), skipped)
    yield end_line(vector)


class _Commits:
    """Writes each commit once, in its source's order, before anything that depends on it."""

    def __init__(self, past: _Past) -> None:
        self._past = past
        self._written: dict[str, int] = {}

    def up_to(self, source: str, version: int) -> Iterator[bytes]:
        done = self._written.get(source, 0)
        for number in range(done + 1, version + 1):
            # A transaction that touched no relation of the view changes nothing here.
            changes = self._past.commits.get((source, number), [])
            yield commit_line(source, number, changes, self._past.global_id(source, number))
        self._written[source] = max(done, version)


def _question_lines(
    number: int, position: int, asked: Mapping[str, Any], commits: _Commits
) -> Iterator[bytes]:
    source = asked["source"]
    yield query_line(number, position, source, asked["relation"], asked["keys"], asked["bytes"])
    yield from commits.up_to(source, asked["version"])
    yield answer_line(number, asked["version"], asked["rows"], asked["answer_bytes"])


def _first_vector(tables: ViewTables, progress: pl.DataFrame) -> dict[str, int]:
    """The vector of position 0: each source's version before its first delivery."""
    first = progress.group_by("source").agg(pl.col("version").min() - 1)
    return {**tables.standing().vector, **dict(first.iter_rows())}


def _states(view: AnyView, tables: ViewTables) -> dict[int, list[tuple[list[Any], int]]]:
    """Position → the changes of the view there, rows in their JSON form."""
    types = list(view.schema.values())
    states: dict[int, list[tuple[list[Any], int]]] = {}
    rows = tables.changes().select(POSITION, *view.schema, COUNT).collect()
    for position, *row, count in rows.iter_rows():
        encoded = [type_.encode(value) for type_, value in zip(types, row, strict=True)]
        states.setdefault(position, []).append((encoded, count))
    return states


def _silent(_message: str) -> None:
    """Drops messages: a trace is written after the run, and nobody waits for it."""
