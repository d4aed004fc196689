"""The simulator: real protocols and the real mailbox under schedules that a seed draws.

At every moment some events are possible:

    commit     a source commits its next update
    arrive     the next update of a source is received by the warehouse: known, without position
    deliver    something received gets the next position, in an order that keeps each source's own
    evaluate   a source evaluates one open question, at its version of this moment (or, with stale
               reads, at an older one that the mailbox can still correct)
    hand over  an answer reaches the protocol, not before the mailbox has caught up with its version

A protocol that needs it gets FIFO channels instead: per source one queue of updates and answers in
the order in which they happened there, and what arrives is delivered at once.

One of them happens, and so on until nothing is left to do. How likely each kind is differs from
run to run, so that some runs are nearly sequential and others pile everything up. The run begins
with the first state of the view, read in small pages while the sources go on. Same seed, same
scenario, same trace.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from protocols.algebra.bag import Bag, bag
from protocols.checking import trace
from protocols.maintenance.firststate import stretch
from protocols.maintenance.holdback import GlobalPart, HoldBack
from protocols.maintenance.mailbox import Group, Mailbox
from protocols.maintenance.partials import total
from protocols.maintenance.protocol import Install, Maintaining, Work
from protocols.maintenance.questions import Answer, Joint, Query, Question
from protocols.maintenance.registry import Entry
from protocols.simulation.algebras import ALGEBRAS, Algebra
from protocols.simulation.scenario import Scenario
from protocols.simulation.source import SimulatedSource, cut_page
from protocols.views.sql import parse_view


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

    WrongUse if the protocol cannot keep the scenario's view or its transactions.
    """
    return _Simulation(scenario, protocol, schedule).run()


@dataclass
class _Open:
    """A question that is under way."""

    id: int
    query: Question[Any]
    answer: Answer[Any] | None = None
    handed_over: bool = False


@dataclass
class _Piece:
    """A piece of work that a protocol has begun, and its current round."""

    work: Work[Any]
    round: list[_Open] = field(default_factory=list)


class _Simulation:
    """The state of one run."""

    def __init__(self, scenario: Scenario, protocol: Entry, schedule: Schedule) -> None:
        self._scenario = scenario
        self._schedule = schedule
        self._entry = protocol
        self._random = Random(schedule.seed)
        self._algebra: Algebra = ALGEBRAS[schedule.algebra]
        #: Kind of event → how likely it is in this run, compared with the others.
        self._weights = {
            kind: self._random.choice((1, 4, 16))
            for kind in ("commit", "arrive", "deliver", "evaluate", "hand over")
        }
        self._lines = [_run_line(scenario, protocol, schedule)]
        self._sources = {name: _source(scenario, name) for name in scenario.catalog.sources}
        self._view = parse_view(scenario.name or "view", scenario.view, scenario.catalog)
        protocol.refuse_view(self._view)
        self._globals = _globals_in(scenario)
        for transaction in self._globals:
            protocol.refuse_global(transaction)
        vector = self._past() if schedule.late_start else dict.fromkeys(self._sources, 0)
        self._mailbox: Mailbox[Any] = Mailbox(
            {relation: self._algebra.log() for relation in self._view.relations}, vector
        )
        self._held = HoldBack(self._sources)
        #: Per source what happened there and is on its way; only for protocols that need FIFO.
        self._channels: dict[str, deque[_Open | None]] = {name: deque() for name in self._sources}
        #: Source → the oldest version that the mailbox can correct an answer from.
        self._oldest = dict(vector)
        #: None until the view has its first state.
        self._protocol: Maintaining[Any] | None = None
        self._pieces: list[_Piece] = []
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
        fifo = self._entry.fifo and self._protocol is not None
        for source in self._sources.values():
            if self._is_due(source):
                yield "commit", partial(self._commit, source)
            if fifo:
                if self._channels[source.name]:
                    yield "arrive", partial(self._arrive_in_turn, source)
            elif self._mailbox.received(source.name) < source.version:
                yield "arrive", partial(self._arrive, source)
        if not fifo:
            for group in self._held.ready():
                yield "deliver", partial(self._deliver, group)
        for piece in self._pieces:
            for opened in piece.round:
                if opened.answer is None:
                    yield "evaluate", partial(self._evaluate, opened)
                elif not fifo and not opened.handed_over and self._caught_up(opened):
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
        if self._entry.fifo and self._protocol is not None:
            self._channels[source.name].append(None)

    def _evaluate(self, opened: _Open) -> None:
        query, source = opened.query, self._sources[opened.query.source]
        oldest = source.version
        if self._schedule.stale and not self._entry.fifo:
            oldest = self._oldest[source.name]
        version = self._random.randint(oldest, source.version)
        if isinstance(query, Joint):
            rows = source.joined(self._rows_of_terms(query), query.view, version)
            delta = self._algebra.delta(self._view.schema, rows)
            opened.answer = Answer(delta, version)
        else:
            opened.answer = self._answer(query, version)
        if self._entry.fifo and self._protocol is not None:
            self._channels[source.name].append(opened)

    def _answer(self, query: Query[Any], version: int) -> Answer[Any]:
        rows, last = self._asked_of(query, version), None
        if query.page is not None:
            rows, last = cut_page(query.relation, rows, query.page)
        rows = rows.select([(column, column) for column in query.columns])
        return Answer(self._algebra.delta(dict(query.relation.columns), rows), version, last)

    def _asked_of(self, query: Query[Any], version: int) -> Bag:
        keys = None if query.keys is None else [self._algebra.rows(k) for k in query.keys]
        source = self._sources[query.relation.source]
        return source.rows(query.relation, query.condition, keys, version)

    def _rows_of_terms(self, query: Joint[Any]) -> list[dict[int, Bag]]:
        return [
            {index: self._algebra.rows(rows) for index, rows in term.items()}
            for term in query.terms
        ]

    # -- at the warehouse ----------------------------------------------------------------------

    def _arrive(self, source: SimulatedSource) -> None:
        version = self._mailbox.received(source.name) + 1
        update = source.updates[version - 1]
        changes = {
            relation: self._algebra.changes(dict(relation.columns), version, rows)
            for relation, rows in update.changes.items()
            if relation in self._view.relations
        }
        self._mailbox.receive(source.name, version, changes)
        part = None if update.global_id is None else self._globals[update.global_id]
        self._held.arrived(source.name, version, part)

    def _arrive_in_turn(self, source: SimulatedSource) -> None:
        """The next message of a FIFO channel."""
        opened = self._channels[source.name].popleft()
        if opened is not None:
            self._hand_over(opened)
            return
        self._arrive(source)
        self._begin()
        self._deliver_all()

    def _deliver_all(self) -> None:
        while groups := self._held.ready():
            self._deliver(self._random.choice(groups))

    def _deliver(self, group: Group) -> None:
        self._held.take(group)
        position = self._mailbox.deliver(*group)
        for source, version in group:
            self._lines.append(trace.deliver_line(source, version, position))
        self._begin()

    def _first_state(self) -> Work[Any]:
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
        return self._mailbox.caught_up(opened.query.source, opened.answer.version)

    def _hand_over(self, opened: _Open) -> None:
        answer = opened.answer
        assert answer is not None
        opened.handed_over = True
        self._count_if_concurrent(opened.query, answer)
        rows = len(self._algebra.rows(answer.rows).counts)
        self._lines.append(trace.answer_line(opened.id, answer.version, rows))
        (piece,) = (piece for piece in self._pieces if opened in piece.round)
        if all(other.handed_over for other in piece.round):
            self._go_on(piece, [o.answer for o in piece.round if o.answer is not None])

    def _count_if_concurrent(self, query: Question[Any], answer: Answer[Any]) -> None:
        """Did the answer differ from what the relation held at the position it is for?"""
        wanted = self._mailbox.version_at(query.source, query.position)
        if answer.version == wanted:
            return
        if isinstance(query, Joint):
            source, terms = self._sources[query.source], self._rows_of_terms(query)
            then, now = (source.joined(terms, query.view, v) for v in (wanted, answer.version))
        else:
            then, now = (self._asked_of(query, version) for version in (wanted, answer.version))
        if then != now:
            self._concurrent[query.position] = self._concurrent.get(query.position, 0) + 1

    # -- the protocol at work ------------------------------------------------------------------

    def _begin(self) -> None:
        """Lets the protocol begin whatever it can."""
        while self._protocol is not None and (work := self._protocol.begin()) is not None:
            self._start(work)

    def _start(self, work: Work[Any]) -> None:
        piece = _Piece(work)
        self._pieces.append(piece)
        self._go_on(piece, None)

    def _go_on(self, piece: _Piece, answers: list[Answer[Any]] | None) -> None:
        """Sends a round's answers to a piece of work, which asks the next round or is done."""
        try:
            asked = next(piece.work) if answers is None else piece.work.send(answers)
        except StopIteration as done:
            self._pieces.remove(piece)
            self._install(done.value)
            self._begin()
            return
        piece.round = [self._ask(query) for query in asked]

    def _ask(self, query: Question[Any]) -> _Open:
        if isinstance(query, Joint):
            sets, name = [rows for term in query.terms for rows in term.values()], "*"
        else:
            sets, name = list(query.keys or ()), query.relation.name
        keys = sum(len(self._algebra.rows(each).counts) for each in sets)
        line = trace.query_line(self._next_id, query.position, query.source, name, keys)
        self._lines.append(line)
        self._queries[query.position] = self._queries.get(query.position, 0) + 1
        self._next_id += 1
        return _Open(self._next_id - 1, query)

    def _install(self, installs: list[Install[Any]]) -> None:
        for install in installs:
            change = None if install.change is None else self._algebra.rows(install.change)
            vector = self._mailbox.vector_at(install.position)
            shown = () if change is None else tuple(change.counts.items())
            self._lines.append(trace.state_line(install.position, vector, shown))
            self._states.append(VisibleState(install.position, vector, change))
            self._skipped[install.position] = install.skipped
        if self._protocol is None:
            self._begin_to_maintain()
        elif not self._pieces and self._random.random() < 0.5:
            self._mailbox.forget(self._states[-1].position)
            self._oldest = self._mailbox.vector_at(self._states[-1].position)

    def _begin_to_maintain(self) -> None:
        """The view has its first state, so the protocol can start on what has been delivered."""
        self._protocol = self._entry.start(self._view, self._mailbox, self._contents)
        for source in self._sources.values():
            missing = source.version - self._mailbox.received(source.name)
            self._channels[source.name].extend([None] * (missing if self._entry.fifo else 0))
        if self._entry.fifo:
            self._deliver_all()

    def _contents(self) -> Any:
        """The rows of the view now."""
        held = bag([output.name for output in self._view.outputs], ())
        for state in self._states:
            held = held if state.change is None else held.plus(state.change)
        return self._algebra.delta(self._view.schema, held)


def _globals_in(scenario: Scenario) -> dict[str, GlobalPart]:
    """The global transactions, each with the sources that take part."""
    participants: dict[str, set[str]] = {}
    for update in scenario.updates:
        if update.global_id is not None:
            participants.setdefault(update.global_id, set()).add(update.source)
    return {id_: GlobalPart(id_, frozenset(sources)) for id_, sources in participants.items()}


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
