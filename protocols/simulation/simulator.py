"""The simulator: real protocols and the real mailbox under schedules that a seed draws.

At every moment some events are possible:

    commit     a source commits its next update
    arrive     the next update of a source is received by the warehouse: known, without position
    begin      the warehouse, when idle, gives positions to some of what it has received, in an
               order that keeps each source's own, and starts the protocol on them
    evaluate   a source evaluates one open question, at its version of this moment (or, with stale
               reads, at an older one that the mailbox can still correct)
    hand over  an answer reaches the protocol, not before the mailbox has caught up with its version

One of them happens, and so on until nothing is left to do. How likely each kind is differs from
run to run, so that some runs are nearly sequential and others pile everything up. The run begins
with the first state of the view, read in small pages while the sources go on. Same seed, same
scenario, same trace.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from protocols.algebra.bag import Bag
from protocols.checking import trace
from protocols.errors import WrongUse
from protocols.maintenance.firststate import stretch
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.questions import Answer, Maintenance, Query
from protocols.maintenance.registry import Entry
from protocols.maintenance.sweep import Install, total
from protocols.simulation.algebras import ALGEBRAS, Algebra
from protocols.simulation.scenario import Scenario
from protocols.simulation.source import SimulatedSource, cut_page
from protocols.views.sql import parse_view

Task = Maintenance[Any, list[Install[Any]]]


@dataclass(frozen=True)
class Schedule:
    """What decides about a run besides its scenario."""

    seed: int
    algebra: str = "frame"
    #: Whether answers may be evaluated at older versions (a replica that lags behind).
    stale: bool = False
    #: Whether the sources have a past already when the view gets its first state.
    late_start: bool = False
    #: Rows per page of the first state.
    page: int = 2
    #: How many updates get their positions at once, at most.
    batch: int = 4


@dataclass(frozen=True)
class VisibleState:
    """A state that a reader of the view could see: its change since the state before."""

    position: int
    vector: dict[str, int]
    change: Bag | None


@dataclass(frozen=True)
class Outcome:
    """What happened, for whoever judges it."""

    #: The trace, line by line.
    lines: tuple[bytes, ...]
    states: tuple[VisibleState, ...]
    #: Questions that were asked, by the position that they were asked for.
    queries: dict[int, int]
    #: Questions that the protocol could save, by position.
    skipped: dict[int, int]
    #: Answers that differed from what the relation held at the position they were for.
    concurrent: dict[int, int]


def simulate(scenario: Scenario, protocol: Entry, schedule: Schedule) -> Outcome:
    """One run of a protocol over a scenario, to the end of everything.

    WrongUse for global transactions: here every part would get a position of its own, and states in
    between would show half of them.
    """
    if any(update.global_id is not None for update in scenario.updates):
        raise WrongUse("global transactions cannot be simulated yet; take the scenario without")
    return _Simulation(scenario, protocol, schedule).run()


@dataclass
class _Open:
    """A question that is under way."""

    id: int
    query: Query[Any]
    answer: Answer[Any] | None = None
    handed_over: bool = False


class _Simulation:
    """The state of one run."""

    def __init__(self, scenario: Scenario, protocol: Entry, schedule: Schedule) -> None:
        self._scenario = scenario
        self._schedule = schedule
        self._random = Random(schedule.seed)
        self._algebra: Algebra = ALGEBRAS[schedule.algebra]
        #: Kind of event → how likely it is in this run, compared with the others.
        self._weights = {
            kind: self._random.choice((1, 4, 16))
            for kind in ("commit", "arrive", "begin", "evaluate", "hand over")
        }
        self._lines = [_run_line(scenario, protocol, schedule)]
        self._sources = {name: _source(scenario, name) for name in scenario.catalog.sources}
        self._view = parse_view(scenario.name or "view", scenario.view, scenario.catalog)
        vector = self._past() if schedule.late_start else dict.fromkeys(self._sources, 0)
        self._mailbox: Mailbox[Any] = Mailbox(
            {relation: self._algebra.log() for relation in self._view.relations}, vector
        )
        #: Source → the oldest version that the mailbox can correct an answer from.
        self._oldest = dict(vector)
        self._protocol = protocol.start(self._view, self._mailbox)
        #: The generator at work; None while the warehouse is idle.
        self._task: Task | None = None
        #: Its current round.
        self._open: list[_Open] = []
        self._states: list[VisibleState] = []
        self._queries: dict[int, int] = {}
        self._skipped: dict[int, int] = {}
        self._concurrent: dict[int, int] = {}
        self._next_id = 1

    def run(self) -> Outcome:
        self._start(self._first_state())
        while events := list(self._possible()):
            weights = [self._weights[kind] for kind, _ in events]
            ((_, happen),) = self._random.choices(events, weights)
            happen()
        delivered = self._mailbox.vector_at(self._mailbox.last_position)
        self._lines.append(trace.end_line(delivered))
        return Outcome(
            tuple(self._lines),
            tuple(self._states),
            self._queries,
            self._skipped,
            self._concurrent,
        )

    def _possible(self) -> Iterator[tuple[str, Callable[[], None]]]:
        for source in self._sources.values():
            if self._is_due(source):
                yield "commit", partial(self._commit, source)
            if self._mailbox.received(source.name) < source.version:
                yield "arrive", partial(self._arrive, source)
        if self._task is None and self._undelivered():
            yield "begin", self._begin
        for opened in self._open:
            if opened.answer is None:
                yield "evaluate", partial(self._evaluate, opened)
            elif not opened.handed_over and self._caught_up(opened):
                yield "hand over", partial(self._hand_over, opened)

    # -- at the sources ------------------------------------------------------------------------

    def _past(self) -> dict[str, int]:
        """Commits what lies before the first state, which is delivered with it."""
        for _ in range(self._random.randint(0, len(self._scenario.updates))):
            due = [source for source in self._sources.values() if self._is_due(source)]
            source = self._random.choice(due)
            self._commit(source)
            self._lines.append(trace.deliver_line(source.name, source.version, 0))
        return {name: source.version for name, source in self._sources.items()}

    def _is_due(self, source: SimulatedSource) -> bool:
        """Whether it may commit now: updates that have a time wait for all earlier ones."""
        update = source.next_update
        if update is None or update.at is None:
            return update is not None
        pending = (u for s in self._sources.values() for u in s.updates[s.version :])
        return all(other.at is None or other.at >= update.at for other in pending)

    def _commit(self, source: SimulatedSource) -> None:
        update = source.commit()
        changes = (
            (relation.name, row, count)
            for relation, rows in update.changes.items()
            for row, count in rows.counts.items()
        )
        line = trace.commit_line(source.name, source.version, changes, update.global_id)
        self._lines.append(line)

    def _evaluate(self, opened: _Open) -> None:
        query, source = opened.query, self._sources[opened.query.relation.source]
        oldest = self._oldest[source.name] if self._schedule.stale else source.version
        version = self._random.randint(oldest, source.version)
        rows = self._asked_of(query, version)
        last = None
        if query.page is not None:
            rows, last = cut_page(query.relation, rows, query.page)
        rows = rows.select([(column, column) for column in query.columns])
        delta = self._algebra.delta(dict(query.relation.columns), rows)
        opened.answer = Answer(delta, version, last)

    def _asked_of(self, query: Query[Any], version: int) -> Bag:
        keys = None if query.keys is None else [self._algebra.rows(k) for k in query.keys]
        source = self._sources[query.relation.source]
        return source.rows(query.relation, query.condition, keys, version)

    # -- at the warehouse ----------------------------------------------------------------------

    def _arrive(self, source: SimulatedSource) -> None:
        version = self._mailbox.received(source.name) + 1
        changes = {
            relation: self._algebra.changes(dict(relation.columns), version, rows)
            for relation, rows in source.updates[version - 1].changes.items()
            if relation in self._view.relations
        }
        self._mailbox.receive(source.name, version, changes)

    def _undelivered(self) -> list[str]:
        vector = self._mailbox.vector_at(self._mailbox.last_position)
        return [name for name, v in vector.items() if self._mailbox.received(name) > v]

    def _begin(self) -> None:
        positions = []
        for _ in range(self._random.randint(1, self._schedule.batch)):
            if not (waiting := self._undelivered()):
                break
            source = self._random.choice(waiting)
            version = self._mailbox.version_at(source, self._mailbox.last_position) + 1
            positions.append(self._mailbox.deliver(source, version))
            self._lines.append(trace.deliver_line(source, version, positions[-1]))
        self._start(self._protocol.maintain(positions))

    def _first_state(self) -> Task:
        """All pages of the first state, which is then installed at position 0."""
        parts, after = [], None
        while True:
            page = yield from stretch(self._view, self._mailbox, after, self._schedule.page)
            if page.rows is not None:
                parts.append(page.rows)
            if page.last_key is None:
                return [Install(0, total(parts))]
            after = page.last_key

    def _caught_up(self, opened: _Open) -> bool:
        assert opened.answer is not None
        return self._mailbox.caught_up(opened.query.relation.source, opened.answer.version)

    def _hand_over(self, opened: _Open) -> None:
        answer, query = opened.answer, opened.query
        assert answer is not None
        opened.handed_over = True
        wanted = self._mailbox.version_at(query.relation.source, query.position)
        if self._asked_of(query, answer.version) != self._asked_of(query, wanted):
            self._concurrent[query.position] = self._concurrent.get(query.position, 0) + 1
        rows = len(self._algebra.rows(answer.rows).counts)
        self._lines.append(trace.answer_line(opened.id, answer.version, rows))
        if all(other.handed_over for other in self._open):
            self._go_on([other.answer for other in self._open if other.answer is not None])

    # -- the protocol at work ------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        self._task = task
        self._go_on(None)

    def _go_on(self, answers: list[Answer[Any]] | None) -> None:
        """Sends a round's answers to the protocol, which asks the next round or is done."""
        assert self._task is not None
        self._open = []
        try:
            asked = next(self._task) if answers is None else self._task.send(answers)
        except StopIteration as done:
            self._task = None
            self._install(done.value)
            return
        for query in asked:
            self._ask(query)

    def _ask(self, query: Query[Any]) -> None:
        self._open.append(_Open(self._next_id, query))
        keys = sum(len(self._algebra.rows(key_set).counts) for key_set in query.keys or ())
        source, name = query.relation.source, query.relation.name
        line = trace.query_line(self._next_id, query.position, source, name, keys)
        self._lines.append(line)
        self._queries[query.position] = self._queries.get(query.position, 0) + 1
        self._next_id += 1

    def _install(self, installs: list[Install[Any]]) -> None:
        for install in installs:
            change = None if install.change is None else self._algebra.rows(install.change)
            vector = self._mailbox.vector_at(install.position)
            shown = () if change is None else tuple(change.counts.items())
            self._lines.append(trace.state_line(install.position, vector, shown))
            self._states.append(VisibleState(install.position, vector, change))
            self._skipped[install.position] = install.skipped
        if self._random.random() < 0.5:
            self._mailbox.forget(self._mailbox.last_position)
            self._oldest = self._mailbox.vector_at(self._mailbox.last_position)


def _run_line(scenario: Scenario, protocol: Entry, schedule: Schedule) -> bytes:
    initial = {
        (relation.source, relation.name): [
            row for row, count in rows.counts.items() for _ in range(count)
        ]
        for relation, rows in scenario.initial.items()
    }
    return trace.run_line(protocol.name, scenario.view, scenario.catalog, initial, schedule.seed)


def _source(scenario: Scenario, name: str) -> SimulatedSource:
    initial = {r: rows for r, rows in scenario.initial.items() if r.source == name}
    return SimulatedSource(name, initial, [u for u in scenario.updates if u.source == name])
