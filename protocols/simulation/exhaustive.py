"""All schedules of a small scenario that differ in anything a protocol can observe.

A protocol can observe the order in which updates are delivered, how many of them are there whenever
one of its pieces of work begins or continues, and the version at which each question was evaluated,
or the other contents of its answer. So these are the only choices here:

* When a question is asked, the version of its answer is chosen: any between the newest that the
  warehouse knows of that source at this moment (delivered, or in an answer that it has received)
  and the last one. Two schedules with the same versions are the same for the protocol: an answer is
  the rows at its version, whenever between asking and handing over it was evaluated. Every such
  choice has a schedule, because a source may commit at any time before its next version is needed.
* Then either a group of updates is delivered, or a piece of work is handed the answers of its
  round. The order inside a round cannot be observed: a piece continues with the last of them.
* A source with holes may answer with any of its transactions, as long as each comes with those that
  it depends on, and may describe them by any prefix with exceptions: a snapshot can lack a
  transaction that was published before. Of descriptions that only differ in a prefix that could be
  longer, one is tried.
* A window begins at any version from the newest that the warehouse knows of that source on, and
  ends there or at any later one; the row of each key that is touched in between is read at any
  moment, or at any two. A relation without a key is read at one version.
* The moment at which an update is received makes no difference before it is delivered: no
  correction for a cut can tell "after the cut" from "not delivered". So everything is committed and
  received at once.

A protocol that relies on FIFO sees one message after the other, so answers are handed to it one by
one, and before each the updates that it contains; no update is enqueued while a question to its
source is under way (exchange/driver.py).

The first state is made without concurrent updates, at version 0 of every source. The search is
depth-first: a run with given first choices and the first possibility after them, then a run in
which the last choice with another possibility is changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from protocols.checking import trace
from protocols.errors import WrongUse
from protocols.exchange.driver import SentQuestion
from protocols.exchange.holdback import HoldBack
from protocols.exchange.inclusion import Prefix, Reads, Window
from protocols.exchange.mailbox import Group
from protocols.exchange.maintained import WantedAnswer
from protocols.exchange.questions import Answer, Query, Question
from protocols.maintenance.registry import Entry
from protocols.simulation.choices import Branching, Recorded
from protocols.simulation.journal import Journal, Outcome, VisibleState
from protocols.simulation.judging import contents_of
from protocols.simulation.life import Life
from protocols.simulation.scenario import Scenario
from protocols.simulation.schedule import Schedule, refuse_reads
from protocols.simulation.setting import commit_event, run_event, setting_of, sources_of
from protocols.simulation.simulator import simulate
from protocols.simulation.source import MemorySource

#: Rows per page of the first state: all of them, since it is made without concurrent updates.
_ALL = 1_000_000


@dataclass(frozen=True)
class OneOfAll:
    """One schedule of an exploration."""

    choices: tuple[int, ...]
    reads: Reads = "versions"


class Exploration:
    """All schedules of a protocol over a scenario whose sources read in a given way."""

    def __init__(self, scenario: Scenario, entry: Entry, reads: Reads = "versions") -> None:
        refuse_reads(entry, reads)
        if any(update.at is not None for update in scenario.updates):
            raise WrongUse('all schedules are tried, so no update can have a time ("at")')
        self._scenario = scenario
        self._setting = setting_of(scenario, entry, "bag")
        self.fifo = entry.fifo
        self.reads = reads
        #: Shared by all runs: everything is committed, and nothing changes any more.
        self.sources = sources_of(scenario)
        self._events: list[trace.Line] = [run_event(self._setting, None)]
        for source in self.sources.values():
            self._events += [commit_event(source) for _ in source.updates]
        self.contents = contents_of(self._setting.view, self.sources)

    def schedules(self) -> Iterator[Outcome]:
        """Makes all runs, one after the other; each outcome has the choices that led to it."""
        beginning: Sequence[int] | None = ()
        while beginning is not None:
            branching = Branching(beginning)
            yield _Run(self, branching).outcome()
            beginning = branching.next_beginning()

    def outcome(self, choices: Sequence[int]) -> Outcome:
        """Makes the run with these choices."""
        return _Run(self, Recorded(choices)).outcome()

    @cached_property
    def first_state(self) -> VisibleState:
        """The view before anything is committed, from a run without updates."""
        still = replace(self._scenario, updates=())
        alone = simulate(still, self._setting.entry, Schedule(0, "bag", page=_ALL, choices=()))
        return alone.states[0]

    def life(self) -> tuple[Life, Journal]:
        """A warehouse with its first state, which has received, but not delivered, every update."""
        journal = Journal(list(self._events))
        journal.shown(self.first_state, 0)
        life = Life([(self._setting, journal, dict.fromkeys(self.sources, 0))], self.sources)
        for source in self.sources.values():
            for _ in source.updates:
                life.arrive(source)
        return life, journal


class _Run:
    """One schedule of an exploration."""

    def __init__(self, exploration: Exploration, choices: Branching | Recorded) -> None:
        self._choices = choices
        self._sources = exploration.sources
        self._life, self._journal = exploration.life()
        self._fifo = exploration.fifo
        self._reads = exploration.reads
        [self._view] = self._life.views
        #: Transactions whose delivery has not been chosen.
        self._left = HoldBack(self._sources)
        for source in self._sources.values():
            for version in range(1, len(source.updates) + 1):
                part = self._view.maintained.delivery.part_of(source.name, version)
                self._left.arrived(source.name, version, part)
        #: Source → the newest version that the warehouse has seen of it.
        self._known = dict.fromkeys(self._sources, 0)

    def outcome(self) -> Outcome:
        self._life.begin(_ALL)
        while self._step():
            pass
        delivered = self._view.mailbox.vector_at(self._view.mailbox.last_position)
        return self._journal.outcome(delivered, self._sources, self._choices.taken)

    def _step(self) -> bool:
        """Chooses new answers, and then the next event; False at the end."""
        self._life.send()
        for opened in list(self._life.open):
            self._life.answered(opened, self._answer(opened.question))
        rounds, groups = self._rounds(), self._groups()
        if not rounds and not groups:
            return False
        chosen = self._choices.below(len(rounds) + len(groups))
        if chosen < len(rounds):
            for asked, wanted in rounds[chosen]:
                assert asked.answer is not None
                self._see(asked.question.source, asked.answer.newest)
                self._life.hand_over((asked, wanted))
        else:
            self._deliver(groups[chosen - len(rounds)])
        return True

    # -- the inclusion of an answer ------------------------------------------------------------

    def _answer(self, question: Question[Any]) -> Answer[Any]:
        source, answering = self._sources[question.source], self._life.answering
        if self._reads == "holes":
            return answering.from_state(question, self._with_holes(source))
        low = self._from(self._known[source.name], source)
        if self._reads == "windows" and isinstance(question, Query) and question.relation.key:
            window = Window(low, self._from(low, source))
            return answering.in_window(question, window, lambda: self._moments(window))
        return answering.from_state(question, Prefix(low))

    def _from(self, version: int, source: MemorySource) -> int:
        """Chooses this version or any later one."""
        return version + self._choices.below(len(source.updates) - version + 1)

    def _with_holes(self, source: MemorySource) -> Prefix:
        """Chooses any set of transactions that a snapshot can have, described in any way."""
        everything = range(1, len(source.updates) + 1)
        lacking: list[int] = []
        for version in everything:
            depends = any(source.depends(version, earlier) for earlier in lacking)
            if depends or self._choices.below(2):
                lacking.append(version)
        there = [version for version in everything if version not in lacking]
        ends = [end for end in (0, *everything) if end + 1 not in there]
        upto = ends[-1 - self._choices.below(len(ends))]
        besides = tuple(version for version in there if version > upto)
        return Prefix(upto, besides, tuple(version for version in lacking if version <= upto))

    def _moments(self, window: Window) -> list[int]:
        """Chooses the moments at which the row of one key is read: one or two."""
        length = window.high - window.low
        first = self._choices.below(length + 1)
        later = self._choices.below(length - first + 1)
        return [window.low + moment for moment in dict.fromkeys((first, first + later))]

    # -- possible events -----------------------------------------------------------------------

    def _rounds(self) -> list[list[tuple[SentQuestion[Any], WantedAnswer[Any]]]]:
        """Answers that are handed over together: a piece sees only the last one of its round."""
        if self._fifo:
            return [[message] for message in self._life.driver.next_ones()]
        rounds: dict[object, list[tuple[SentQuestion[Any], WantedAnswer[Any]]]] = {}
        for asked, wanted in self._life.driver.ready():
            rounds.setdefault(wanted.round, []).append((asked, wanted))
        return list(rounds.values())

    def _groups(self) -> list[Group]:
        """The groups that may be delivered next."""
        free = self._life.may_enqueue(self._view)
        return [g for g in self._left.ready() if all(source in free for source, _ in g)]

    def _deliver(self, group: Group) -> None:
        self._left.take(group)
        for source, version in group:
            self._see(source, version)
        self._life.enqueue_each(self._view, group)

    def _see(self, source: str, version: int) -> None:
        """Notes a version as known here; a FIFO protocol has it delivered then, too."""
        self._known[source] = max(self._known[source], version)
        if self._fifo:
            held = self._left.held_back()
            while source in held and held[source][0] <= version:
                self._left.take(((source, held[source][0]),))
                held = self._left.held_back()
