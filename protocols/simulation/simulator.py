"""The simulator: real protocols and the real mailbox under schedules that a seed draws.

At every moment some events are possible:

    commit     a source commits its next update
    arrive     the next update of a source is received by the warehouse: known, without position
    deliver    something received gets the next position, in an order that keeps each source's own
    evaluate   a source evaluates one open question, at its version of this moment; with stale
               reads at an older one that the mailbox can still correct; with partitions each part
               of the relation at a version of its own since the question was asked; a source
               with holes from a snapshot that lacks some transactions of the last ones and has
               some of the next; one with windows row by row, each at a moment since it was asked
    hand over  an answer reaches the protocol, not before the mailbox has caught up with its version
    crash      the warehouse loses everything but the states that it has shown (life.py)

A protocol that needs it gets FIFO channels instead: per source one queue of updates and answers in
the order in which they happened there, and what arrives is delivered at once.

One of them happens, and so on until nothing is left to do. How likely each kind is at each source
differs from run to run, so that some runs are nearly sequential and others pile everything up. The
run begins with the first state of the view, read in small pages while the sources go on; a page is
one statement at its source, so it is never read in parts.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeAlias

from protocols.algebra.expressions import Condition
from protocols.checking import trace
from protocols.errors import ProtocolBug
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.inclusion import Prefix, Window
from protocols.exchange.questions import Joint, Query, Question
from protocols.maintenance.registry import Entry
from protocols.simulation.algebras import ALGEBRAS
from protocols.simulation.choices import Choices, Drawn, Recorded
from protocols.simulation.journal import Journal, Outcome, VisibleState
from protocols.simulation.life import Life, Opened, Setting
from protocols.simulation.scenario import Scenario
from protocols.simulation.schedule import KINDS, Schedule
from protocols.simulation.source import SimulatedSource
from protocols.views.catalog import Relation
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView

__all__ = ["Outcome", "Schedule", "VisibleState", "simulate"]

#: (how likely, what happens, to what).
_Event: TypeAlias = tuple[int, Callable[[Any], None], Any]
#: How likely a crash is, compared with the events of the channels (schedule.py).
_CRASH = 1
#: So far back and ahead of a snapshot there are transactions that it lacks or has all the same.
_HOLES = 3


def simulate(scenario: Scenario, protocol: Entry, schedule: Schedule) -> Outcome:
    """One run of a protocol over a scenario, to the end of everything.

    WrongUse if the protocol cannot keep the scenario's view or its transactions.
    """
    return _Simulation(scenario, protocol, schedule.settled(scenario.catalog.sources)).run()


@lru_cache(maxsize=16)
def setting_of(scenario: Scenario, protocol: Entry, algebra: str) -> Setting:
    """What all runs over a scenario share; WrongUse if the protocol cannot keep it."""
    view = parse_view(scenario.name or "view", scenario.view, scenario.catalog)
    protocol.refuse_view(view)
    participants: dict[str, set[str]] = {}
    for update in scenario.updates:
        if update.global_id is not None:
            protocol.refuse_global(update.global_id)
            participants.setdefault(update.global_id, set()).add(update.source)
    parts = {id_: GlobalPart(id_, frozenset(sources)) for id_, sources in participants.items()}
    # The operators above inner joins work on columns only.
    used = "frame" if isinstance(view, TreeView) else algebra
    return Setting(scenario, protocol, view, ALGEBRAS[used], parts)


def sources_of(scenario: Scenario) -> dict[str, SimulatedSource]:
    """The sources before anything was committed."""
    sources = {}
    for name in scenario.catalog.sources:
        initial = {r: rows for r, rows in scenario.initial.items() if r.source == name}
        updates = [update for update in scenario.updates if update.source == name]
        sources[name] = SimulatedSource(name, initial, updates)
    return sources


def run_event(scenario: Scenario, protocol: Entry, seed: int | None) -> trace.Run:
    """The first line of the trace."""
    initial = {
        (relation.source, relation.name): tuple(
            row for row, count in rows.counts.items() for _ in range(count)
        )
        for relation, rows in scenario.initial.items()
    }
    return trace.Run(protocol.name, scenario.view, scenario.catalog, initial, seed)


def commit_event(source: SimulatedSource) -> trace.Commit:
    """The source commits its next update."""
    update = source.commit()
    changes = tuple(
        trace.Change(relation.name, row, count)
        for relation, rows in update.changes.items()
        for row, count in rows.counts.items()
    )
    return trace.Commit(source.name, source.version, changes, update.global_id)


class _Simulation:
    """The state of one run."""

    def __init__(self, scenario: Scenario, protocol: Entry, schedule: Schedule) -> None:
        self._setting = setting_of(scenario, protocol, schedule.algebra)
        self._schedule = schedule
        self._choices: Choices = (
            Drawn(schedule.seed) if schedule.choices is None else Recorded(schedule.choices)
        )
        delays = schedule.delays or {}
        #: Kind of event → source → how likely it is.
        self._weights = {
            kind: {name: delays.get(kind, {}).get(name, 1) for name in scenario.catalog.sources}
            for kind in KINDS
        }
        self._sources = sources_of(scenario)
        self._timed = any(update.at is not None for update in scenario.updates)
        self._journal = Journal([run_event(scenario, protocol, schedule.seed)])
        self._crashes = 0
        #: What the first state stands at.
        self._vector = self._past() if schedule.late_start else dict.fromkeys(self._sources, 0)
        self._life = Life(self._setting, self._sources, self._journal, self._vector)
        #: Relation → the conditions that cut it into parts.
        self._parts: dict[Relation, tuple[Condition, ...]] = {}

    def run(self) -> Outcome:
        self._life.begin(self._schedule.page)
        self._settle(0)
        while events := self._possible():
            _, happen, what = events[self._choices.pick([event[0] for event in events])]
            shown = len(self._journal.states)
            happen(what)
            self._settle(shown)
        self._check_nothing_is_left()
        mailbox = self._life.mailbox
        delivered = mailbox.vector_at(mailbox.last_position)
        return self._journal.outcome(delivered, self._sources, self._choices.taken, self._crashes)

    def _check_nothing_is_left(self) -> None:
        """Nothing can happen any more: then everything has to have happened."""
        delivered = self._life.mailbox.vector_at(self._life.mailbox.last_position)
        for name, source in self._sources.items():
            if delivered[name] != len(source.updates):
                raise ProtocolBug(
                    f"the run stands still: {len(source.updates)} updates of {name} were to be"
                    f" delivered, and {delivered[name]} were"
                )
        if not self._life.idle:
            raise ProtocolBug("the run stands still with work begun that asks nothing")

    def _possible(self) -> list[_Event]:
        """What can happen now; what finishes something stands before what begins something."""
        life, weights, in_turn = self._life, self._weights, self._life.in_turn
        handing: list[_Event] = []
        evaluating: list[_Event] = []
        for opened in life.open():
            asked = opened.source
            if opened.answer is None:
                evaluating.append((weights["evaluate"][asked], self._evaluate, opened))
            elif not in_turn and not opened.handed_over and life.can_be_used(opened):
                handing.append((weights["hand over"][asked], life.hand_over, opened))
        events = handing + evaluating
        if not in_turn:
            events += [(weights["deliver"][g[0][0]], life.deliver, g) for g in life.ready()]
        commits: list[_Event] = []
        for name, source in self._sources.items():
            if in_turn:
                if self._may_come(name):
                    events.append((weights["arrive"][name], self._arrive_in_turn, source))
            elif life.mailbox.received(name) < source.version:
                events.append((weights["arrive"][name], life.arrive, source))
            if source.version < len(source.updates) and self._is_due(source):
                commits.append((weights["commit"][name], self._commit, source))
        events += commits
        if events and self._crashes < self._schedule.crashes:
            events.append((_CRASH, self._crash, None))
        return events

    def _settle(self, shown: int) -> None:
        """What follows of itself from an event."""
        life = self._life
        if life.in_turn:
            while groups := life.ready():
                life.deliver(groups[self._choices.below(len(groups))])
        news = len(self._journal.states) > max(shown, 1)
        if news and life.idle and self._choices.below(2):
            life.forget()

    # -- at the sources ------------------------------------------------------------------------

    def _past(self) -> dict[str, int]:
        """Commits what lies before the first state, which is delivered with it."""
        for _ in range(self._choices.below(len(self._setting.scenario.updates) + 1)):
            due = [source for source in self._sources.values() if self._is_due(source)]
            source = due[self._choices.below(len(due))]
            self._journal.events.append(commit_event(source))
        vector = _legal_below(self._sources)
        for name, upto in vector.items():
            for version in range(1, upto + 1):
                self._journal.events.append(trace.Deliver(name, version, 0))
        return vector

    def _is_due(self, source: SimulatedSource) -> bool:
        """Whether it may commit now: updates that have a time wait for all earlier ones."""
        update = source.next_update
        if update is None or not self._timed or update.at is None:
            return update is not None
        pending = (u for s in self._sources.values() for u in s.updates[s.version :])
        return all(other.at is None or other.at >= update.at for other in pending)

    def _commit(self, source: SimulatedSource) -> None:
        self._journal.events.append(commit_event(source))
        if self._life.in_turn:
            self._life.channels[source.name].append(None)

    def _evaluate(self, opened: Opened) -> None:
        life, question = self._life, opened.question
        source = self._sources[opened.source]
        stale = self._schedule.stale and not self._setting.entry.fifo
        oldest = life.oldest[source.name] if stale else source.version
        parts = self._parts_of(opened)
        if parts and isinstance(question, Query):
            oldest = oldest if stale else opened.asked_at
            read = [(condition, Prefix(self._version(source, oldest))) for condition in parts]
            opened.answer = life.evaluated_in_parts(question, tuple(read))
        elif self._reads_in_windows(question):
            assert isinstance(question, Query)
            window = Window(self._version(source, opened.asked_at), source.version)
            moments = partial(self._moments, window)
            opened.answer = life.evaluated_in_window(question, window, moments)
        else:
            contained = Prefix(self._version(source, oldest))
            if self._schedule.reads == "holes" and not isinstance(question, Joint):
                contained = self._with_holes(source, contained.upto)
            opened.answer = life.evaluated(question, contained)
        if life.in_turn:
            life.channels[source.name].append(opened)

    def _reads_in_windows(self, question: Question[Any]) -> bool:
        if self._schedule.reads != "windows" or isinstance(question, Joint):
            return False
        return bool(question.relation.key)

    def _moments(self, window: Window) -> list[int]:
        """When the row of one key is read: at the end of the window, or earlier, or twice."""
        times = 1 + self._choices.below(4) // 3
        length = window.high - window.low
        return [window.high - self._choices.below(length + 1) for _ in range(times)]

    def _with_holes(self, source: SimulatedSource, upto: int) -> Prefix:
        """A state that a snapshot can have: some of the last transactions are not in it, some of
        the next ones are, and with each all that it depends on."""
        lacking: list[int] = []
        for version in range(max(1, upto - _HOLES + 1), upto + 1):
            depends = any(source.depends(version, earlier) for earlier in lacking)
            if depends or self._choices.below(3) == 1:
                lacking.append(version)
        besides, missing = [], list(lacking)
        for version in range(upto + 1, min(upto + _HOLES, source.version) + 1):
            depends = any(source.depends(version, earlier) for earlier in missing)
            if not depends and self._choices.below(3) == 1:
                besides.append(version)
            else:
                missing.append(version)
        return Prefix(upto, tuple(besides), tuple(lacking))

    def _version(self, source: SimulatedSource, oldest: int) -> int:
        """At which of its versions a source reads; the choice 0 means the newest."""
        if oldest == source.version:
            return oldest
        return source.version - self._choices.below(source.version - oldest + 1)

    def _parts_of(self, opened: Opened) -> tuple[Condition, ...]:
        """The conditions of a relation that is read in parts, or none."""
        question, number = opened.question, self._schedule.partitions
        if number == 1 or self._setting.entry.fifo or isinstance(question, Joint):
            return ()
        if self._schedule.reads != "versions":
            return ()
        if self._life.loading and question.keys is None:
            return ()
        relation = question.relation
        if relation not in self._parts:
            self._parts[relation] = self._sources[relation.source].parts(relation, number)
        return self._parts[relation]

    # -- at the warehouse ----------------------------------------------------------------------

    def _may_come(self, name: str) -> bool:
        """Is there a next message in the channel, and may it come before what has to come again?"""
        channel, again = self._life.channels[name], self._life.again
        if not channel:
            return False
        if channel[0] is not None or not again:
            return True
        return (name, self._life.mailbox.received(name) + 1) in again[0]

    def _arrive_in_turn(self, source: SimulatedSource) -> None:
        """The next message of a FIFO channel."""
        opened = self._life.channels[source.name].popleft()
        if opened is None:
            self._life.arrive(source)
        else:
            self._life.hand_over(opened)

    def _crash(self, _: None) -> None:
        """The warehouse starts again with what it has installed."""
        self._crashes += 1
        undone = self._journal.undo()
        again = [*undone, *self._life.again] if self._schedule.redelivery == "same" else []
        states = self._journal.states
        vector = states[-1].vector if states else self._vector
        self._life = Life(self._setting, self._sources, self._journal, vector)
        self._life.again.extend(again)
        self._life.begin(self._schedule.page)


def _legal_below(sources: Mapping[str, SimulatedSource]) -> dict[str, int]:
    """The latest vector at or below what is committed that has no global transaction in part."""
    vector = {name: source.version for name, source in sources.items()}
    places: dict[str, list[tuple[str, int]]] = {}
    for name, source in sources.items():
        for version, update in enumerate(source.updates, 1):
            if update.global_id is not None:
                places.setdefault(update.global_id, []).append((name, version))
    lowered = True
    while lowered:
        lowered = False
        for parts in places.values():
            inside = [(name, version) for name, version in parts if version <= vector[name]]
            if inside and len(inside) < len(parts):
                lowered = True
                for name, version in inside:
                    vector[name] = min(vector[name], version - 1)
    return vector
