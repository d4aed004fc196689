"""`viewsweep trace`: the trace of a live run, reconstructed afterwards from what is stored.

    commits     from the topics, from version 1 on; of databases, which publish no version, from
                where the view begins
    deliveries  from the view's `progress` table, with the questions and their answers
    states      from the view's `changes` table
    base rows   from the sources: the rows they hold now, less everything that they committed since

The job stores nothing for this purpose, and nothing is judged here: the checker receives the
commits and the states, and computes by itself what the states should have been.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
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
from protocols.exchange.correction import snapshot
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Query, Snapshot
from protocols.views.catalog import Catalog, Relation
from protocols.views.tree import AnyView
from sources.history import UNKNOWN, other_past
from sources.partitions import Ends, Offsets, more_in, offsets_in
from sources.port import Changes, Known
from sources.topics import ends_of
from streaming.intake.asking import Sources
from streaming.intake.lookahead import Lookahead
from streaming.settings.configuration import Configuration, SourceSettings, ViewSettings
from warehouse.definition import stored_view
from warehouse.tables import ViewTables


def write_live_trace(configuration: Configuration, settings: ViewSettings, file: Path) -> int:
    """Writes the trace of a view's whole life so far; returns the number of positions."""
    view = stored_view(configuration.warehouse / settings.name)
    tables = ViewTables(configuration.warehouse, view)
    if not tables.exists:
        raise WrongUse(f"view {view.name} has no first state yet; run 'viewsweep run' to create it")
    _refuse_folded(tables)
    past = _read_past(configuration, view, tables)
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


@dataclass(frozen=True)
class _Past:
    """Everything that the sources of a view ever committed, and their rows before that."""

    #: (source, version) → its changes as (relation, row, count).
    commits: dict[tuple[str, int], list[tuple[str, tuple[Any, ...], int]]]
    #: (source, relation) → the rows of version 0.
    initial: dict[tuple[str, str], list[tuple[Any, ...]]]
    #: (source, version) → the global transaction that it is a part of.
    global_id: Callable[[str, int], str | None]


def _read_past(configuration: Configuration, view: AnyView, tables: ViewTables) -> _Past:
    """Reads the topics from where the trace begins, and all relations of the view once."""
    used = {source: configuration.sources[source] for source in view.sources}
    standing, known = tables.standing(), _known(used, tables)
    patience = configuration.job.patience_seconds
    ends = ends_of(configuration.kafka, {s.name: s.topics for s in used.values()})
    logs = {relation: FrameLog() for relation in view.relations}
    received = Received[Frame](
        logs,
        {source: known[source][0] if source in known else 0 for source in used},
    )
    sources = Sources(used, patience, _silent, threading.Event())
    try:
        sources.begin(configuration.kafka, ends, known)
        changes = {
            source: sources.changes(source, view.relations_of(source), received, *where, UNKNOWN)
            for source, where in _beginnings(known, ends).items()
        }
        with closing(
            Lookahead(configuration.kafka, changes, patience, _silent, threading.Event())
        ) as lookahead:
            past = _Past({}, {}, partial(_global_id, changes))
            questions = [Query[Frame](r, r.column_names) for r in view.relations]
            for question, answer in zip(questions, sources.ask([*questions]), strict=True):
                source, newest = question.source, answer.newest
                lookahead.read_until(
                    partial(_has, received, source, newest), f"version {newest} of {source}"
                )
                if answer.inclusion == Prefix(newest):
                    _refuse_fork(changes[source], newest, answer.digest)
                found = snapshot(received, question, answer)
                _add_relation(past, question.relation, found, logs[question.relation].rows())
        for source, digest in standing.digests.items():
            _refuse_fork(changes[source], standing.vector[source], digest)
        return past
    except SourceViolation as error:
        raise SourceViolation(f"{error}. (A trace needs every topic from the beginning)") from None
    finally:
        sources.close()


def _known(used: Mapping[str, SourceSettings], tables: ViewTables) -> dict[str, Known]:
    """Where the topics of databases are read from: their first transactions were never there."""
    databases = [source for source, settings in used.items() if settings.database is not None]
    if not databases:
        return {}
    first = tables.first_standing()
    return {source: (first.vector[source], first.tokens[source]) for source in databases}


def _beginnings(
    known: Mapping[str, Known], ends: Mapping[str, Ends]
) -> dict[str, tuple[Offsets, Sequence[int]]]:
    """Source → the offsets from which its topics are read, and what else its adapter needs."""
    found: dict[str, tuple[Offsets, Sequence[int]]] = {}
    for source, each in ends.items():
        offsets: Offsets | None = {partition: low for partition, (low, _) in each.items()}
        more: Sequence[int] = ()
        if source in known:
            _, token = known[source]
            offsets, more = offsets_in(token, each), more_in(token, each)
        assert offsets is not None, f"the token of {source} is about other partitions"
        found[source] = offsets, more
    return found


def _add_relation(
    past: _Past, relation: Relation, found: Snapshot[Frame], committed: pl.DataFrame | None
) -> None:
    """Adds the commits of one relation, and the rows that it had before them."""
    rows = found.rows.data
    if committed is not None:
        _add_commits(past, relation, committed)
        rows = _undone(rows, committed.filter(pl.col(VERSION) <= found.version), relation)
    past.initial[relation.source, relation.name] = _repeated(rows, relation)


def _has(received: Received[Frame], source: str, version: int) -> bool:
    return received.received(source) >= version


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
    yield run_line(protocol, view.sql, Catalog(view.relations), past.initial, dialect=view.dialect)
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
