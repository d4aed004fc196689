"""The simulator: real protocols and the real mailbox under schedules that a seed draws.

At every moment some events are possible:

    commit     a source commits its next update
    arrive     the next update of a source is received by the warehouse: known, without position
    deliver    received updates are enqueued for a view: the next update of a source, or all that
               are here, by time of commit, as in a batch of the job
    send       the questions that views of one job ask at this moment go out, equal ones once
    evaluate   a source evaluates one open question, at its current version; with stale reads at
               an older one that the mailbox can still correct; with partitions each part of the
               relation at a version of its own since the question was asked; a source with holes
               from a snapshot that lacks some of the last transactions and has some of the next;
               one with windows row by row, each at a moment since the question was asked
    hand over  an answer reaches the protocol, not before the mailbox has caught up with its version
    sweep      a process begins to sweep a slice of a batch that the driver has handed out
               (elsewhere.py); its questions are answered like all others
    crash      the warehouse loses everything but the visible states (life.py); it may get a
               further view of the scenario then, which begins at the sources' versions

The production driver (exchange/driver.py) decides the consequences of an event.

One event happens after the other until nothing is left to do. The weight of each kind at each
source differs from run to run, so that some runs are nearly sequential and in others everything
piles up. The run begins with the first state of the view, read in small pages while the sources
continue; a page is one statement at its source, so it is never read in parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from protocols.algebra.expressions import Condition
from protocols.checking import trace
from protocols.errors import ProtocolBug
from protocols.exchange.holdback import GlobalPart, legal_below
from protocols.exchange.inclusion import Prefix, Window
from protocols.exchange.mailbox import Group
from protocols.exchange.questions import Joint, Query, Question
from protocols.maintenance.registry import Entry
from protocols.simulation.choices import Choices, Drawn, Recorded
from protocols.simulation.elsewhere import SimulatedExecutors
from protocols.simulation.journal import Journal, Outcome, VisibleState
from protocols.simulation.kept import LivingView, Opened
from protocols.simulation.life import Life
from protocols.simulation.scenario import Scenario
from protocols.simulation.schedule import KINDS, Schedule
from protocols.simulation.setting import Setting, commit_event, run_event, settings_of, sources_of
from protocols.simulation.source import MemorySource
from protocols.views.catalog import Relation

__all__ = ["Outcome", "Schedule", "VisibleState", "simulate"]

#: (weight, the event, its argument).
_Event: TypeAlias = tuple[int, Callable[[Any], None], Any]
#: The weight of a crash, compared with the events of the channels (schedule.py).
_CRASH = 1
#: The weight of sending the waiting questions of several views together.
_SEND = 8
#: The weight of a process beginning to sweep a waiting slice.
_SWEEP = 8
#: The difference between the clocks of sources, in commits.
_CLOCKS = 6
#: A snapshot may lack so many of its last transactions, and contain some of so many later ones.
_HOLES = 3


def simulate(scenario: Scenario, protocol: Entry, schedule: Schedule) -> Outcome:
    """Runs a protocol over a scenario, until nothing is left to do.

    Raises WrongUse if the protocol cannot keep the scenario's view or its transactions.
    """
    settled = schedule.settled(scenario.catalog.sources)
    first, *beside = _Simulation(scenario, protocol, settled).run()
    return replace(first, beside=tuple(beside))


@dataclass(eq=False)
class _View:
    """One view of the run, over all its lives."""

    setting: Setting
    journal: Journal
    #: The vector of its first state.
    vector: dict[str, int]
    #: Whether the warehouse keeps it already; it may be created at a restart.
    created: bool = True
    #: The groups delivered before the last crash that have to be delivered again first.
    again: Sequence[Group] = ()


class _Simulation:
    """The state of one run."""

    def __init__(self, scenario: Scenario, protocol: Entry, schedule: Schedule) -> None:
        settings = settings_of(scenario, protocol, schedule.algebra)
        self._scenario = scenario
        self._schedule = schedule
        self._fifo = any(setting.entry.fifo for setting in settings)
        self._choices: Choices = (
            Drawn(schedule.seed) if schedule.choices is None else Recorded(schedule.choices)
        )
        cut = schedule.slices > 1
        self._executors = SimulatedExecutors(self._choices, schedule.slices) if cut else None
        delays = schedule.delays or {}
        #: Kind of event → source → its weight.
        self._weights = {
            kind: {name: delays.get(kind, {}).get(name, 1) for name in scenario.catalog.sources}
            for kind in KINDS
        }
        self._sources = sources_of(scenario)
        self._timed = any(update.at is not None for update in scenario.updates)
        self._commits = 0
        self._views = [
            _View(setting, Journal([run_event(setting, schedule.seed)]), {}) for setting in settings
        ]
        self._crashes = 0
        for view in self._views[1:]:
            view.created = self._choices.below(2) == 0
        vector = self._past() if schedule.late_start else dict.fromkeys(self._sources, 0)
        for view in self._created():
            view.vector = vector
        self._life = self._new_life()
        #: Relation → the conditions that cut it into parts.
        self._parts: dict[Relation, tuple[Condition, ...]] = {}

    def run(self) -> tuple[Outcome, ...]:
        """Runs to the end; returns the outcomes of all views."""
        self._begin()
        self._settle(self._shown())
        while True:
            while events := self._possible():
                _, happen, what = events[self._choices.pick([event[0] for event in events])]
                shown = self._shown()
                happen(what)
                self._settle(shown)
            if all(view.created for view in self._views):
                break
            self._crash(None)
            self._settle(self._shown())
        self._check_nothing_is_left()
        return tuple(
            kept.journal.outcome(
                kept.mailbox.vector_at(kept.mailbox.last_position),
                self._sources,
                self._choices.taken,
                self._crashes,
            )
            for kept in self._life.views
        )

    def _begin(self) -> None:
        relations = self._life.received.logs
        copied = [relation for relation in relations if self._schedule.copied(relation)]
        self._life.begin(self._schedule.page, copied)

    def _check_nothing_is_left(self) -> None:
        """Raises ProtocolBug if no event is possible but something is left to do."""
        for kept in self._life.views:
            delivered = kept.mailbox.vector_at(kept.mailbox.last_position)
            for name, source in self._sources.items():
                if delivered[name] != len(source.updates):
                    raise ProtocolBug(
                        f"the run is stuck: {len(source.updates)} updates of {name} were to be"
                        f" delivered, but {delivered[name]} were"
                    )
        if not self._life.idle or self._life.driver.asking:
            raise ProtocolBug("the run is stuck: work has begun, but asks nothing")

    def _possible(self) -> list[_Event]:
        """The possible events; those that finish work come before those that begin work."""
        life, weights = self._life, self._weights
        events: list[_Event] = []
        for message in life.driver.next_ones():
            asked = message[0].question.source
            events.append((weights["hand over"][asked], life.hand_over, message))
        for opened in life.open:
            events.append((weights["evaluate"][opened.source], self._evaluate, opened))
        events += [(_SWEEP, life.begin_part, part) for part in life.waiting_parts]
        if life.driver.unsent:
            events.append((_SEND, self._send, None))
        for kept in life.views:
            events += self._deliveries(kept)
        commits: list[_Event] = []
        for name, source in self._sources.items():
            if life.received.received(name) < source.version:
                events.append((weights["arrive"][name], life.arrive, source))
            if source.version < len(source.updates) and self._is_due(source):
                commits.append((weights["commit"][name], self._commit, source))
        events += commits
        if events and self._crashes < self._schedule.crashes:
            events.append((_CRASH, self._crash, None))
        return events

    def _deliveries(self, kept: LivingView) -> list[_Event]:
        """The events that enqueue updates of a source, or undone deliveries, for a view."""
        if kept.again:
            group = self._life.next_again(kept)
            if group is None:
                return []
            return [(self._weights["deliver"][group[0][0]], self._deliver_again, kept)]
        ends = self._life.may_enqueue(kept)
        return [(self._weights["deliver"][name], self._deliver, (kept, name)) for name in ends]

    def _deliver_again(self, kept: LivingView) -> None:
        self._life.enqueue_each(kept, kept.again[0])

    def _deliver(self, what: tuple[LivingView, str]) -> None:
        """Enqueues the next update of a source; or all that are here, as in a batch of the job, by
        time of commit, cut at some size."""
        kept, name = what
        ends = self._life.may_enqueue(kept)
        if self._choices.below(3) < 2:
            first = kept.maintained.delivery.enqueued[name] + 1
            self._life.enqueue_upto(kept, {name: first})
        else:
            most = self._choices.below(8)
            self._life.enqueue_upto(kept, ends, None if most == 0 else most)

    def _send(self, _: None) -> None:
        self._life.send()

    def _settle(self, shown: int) -> None:
        """Handles the direct consequences of an event."""
        life = self._life
        if len(life.views) == 1:
            # The questions of a single view need not wait for others.
            life.send()
        if life.idle:
            life.driver.validate()
        if self._shown() > shown and life.idle and self._choices.below(2):
            life.forget()

    def _shown(self) -> int:
        """The number of states after the first ones, of all views."""
        return sum(max(len(kept.journal.states) - 1, 0) for kept in self._life.views)

    # -- at the sources ------------------------------------------------------------------------

    def _past(self) -> dict[str, int]:
        """Commits the updates before the first state, which are delivered with it."""
        for _ in range(self._choices.below(len(self._scenario.updates) + 1)):
            due = [source for source in self._sources.values() if self._is_due(source)]
            self._commit(due[self._choices.below(len(due))])
        return self._past_of(self._created())

    def _past_of(self, views: Sequence[_View]) -> dict[str, int]:
        """The vector at which these views begin; records the deliveries up to it."""
        committed = {name: source.version for name, source in self._sources.items()}
        vector = legal_below(committed, {name: self._parts_at(name) for name in committed})
        for view in views:
            for name, upto in vector.items():
                for version in range(1, upto + 1):
                    view.journal.events.append(trace.DeliverLine(name, version, 0))
        return vector

    def _parts_at(self, source: str) -> dict[int, GlobalPart]:
        """The versions of a source that are parts of global transactions, with these."""
        return {
            version: self._views[0].setting.globals[update.global_id]
            for version, update in enumerate(self._sources[source].updates, 1)
            if update.global_id is not None
        }

    def _is_due(self, source: MemorySource) -> bool:
        """Whether a source may commit now: updates with a time wait for all earlier ones."""
        update = source.next_update
        if update is None or not self._timed or update.at is None:
            return update is not None
        pending = (u for s in self._sources.values() for u in s.updates[s.version :])
        return all(other.at is None or other.at >= update.at for other in pending)

    def _commit(self, source: MemorySource) -> None:
        """Lets a source commit; clocks differ, so a later commit may have an earlier time."""
        self._commits += 1
        event = commit_event(source, self._commits + self._choices.below(_CLOCKS))
        for view in self._views:
            view.journal.events.append(event)

    def _evaluate(self, opened: Opened) -> None:
        answering, question = self._life.answering, opened.question
        source = self._sources[opened.source]
        stale = self._schedule.stale and not self._fifo
        oldest = self._life.received.forgotten(source.name) if stale else source.version
        parts = self._parts_of(opened)
        if parts and isinstance(question, Query):
            oldest = oldest if stale else opened.asked_at
            read = [(condition, Prefix(self._version(source, oldest))) for condition in parts]
            answer = answering.in_parts(question, tuple(read))
        elif self._reads_in_windows(question):
            assert isinstance(question, Query)
            window = Window(self._version(source, opened.asked_at), source.version)
            answer = answering.in_window(question, window, partial(self._moments, window))
        else:
            contained = Prefix(self._version(source, oldest))
            if self._schedule.reads == "holes" and not isinstance(question, Joint):
                contained = self._with_holes(source, contained.upto)
            answer = answering.from_state(question, contained)
        self._life.answered(opened, answer)

    def _reads_in_windows(self, question: Question[Any]) -> bool:
        if self._schedule.reads != "windows" or isinstance(question, Joint):
            return False
        return bool(question.relation.key)

    def _moments(self, window: Window) -> list[int]:
        """Draws when the row of one key is read: at the end of the window, earlier, or twice."""
        times = 1 + self._choices.below(4) // 3
        length = window.high - window.low
        return [window.high - self._choices.below(length + 1) for _ in range(times)]

    def _with_holes(self, source: MemorySource, upto: int) -> Prefix:
        """Draws a state of a snapshot: it lacks some of the last transactions and contains some of
        the next ones, each with all transactions that it depends on."""
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
        # The same set can be described with a shorter prefix.
        shorter = max(0, upto - self._choices.below(3))
        told = [v for v in range(shorter + 1, upto + 1) if v not in lacking]
        return Prefix(shorter, (*told, *besides), tuple(v for v in lacking if v <= shorter))

    def _version(self, source: MemorySource, oldest: int) -> int:
        """Draws the version at which a source reads; choice 0 means the newest."""
        if oldest == source.version:
            return oldest
        return source.version - self._choices.below(source.version - oldest + 1)

    def _parts_of(self, opened: Opened) -> tuple[Condition, ...]:
        """The conditions of a relation that is read in parts, or none."""
        question, number = opened.question, self._schedule.partitions
        if number == 1 or self._fifo or isinstance(question, Joint) or question.page is not None:
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

    def _crash(self, _: None) -> None:
        """Restarts the warehouse with its installed states; it may get another view.

        A protocol that relies on FIFO gets updates as its answers come, in any order.
        """
        self._crashes += 1
        for view, kept in zip(self._created(), self._life.views, strict=True):
            undone = [*view.journal.undo(), *kept.again]
            same = self._schedule.redelivery == "same" and not view.setting.entry.fifo
            view.again = undone if same else []
        for view in self._views:
            if not view.created and self._choices.below(2) == 0:
                view.created, view.vector = True, self._past_of([view])
        self._life = self._new_life()
        self._begin()

    def _created(self) -> list[_View]:
        return [view for view in self._views if view.created]

    def _new_life(self) -> Life:
        views = []
        for view in self._created():
            states = view.journal.states
            vector = states[-1].vector if states else view.vector
            views.append((view.setting, view.journal, vector))
        life = Life(views, self._sources, self._executors)
        for view, kept in zip(self._created(), life.views, strict=True):
            kept.again.extend(view.again)
        return life
