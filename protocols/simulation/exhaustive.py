"""All schedules of a small scenario that differ in anything a protocol can observe.

What a protocol can observe is the order in which updates are delivered, how many of them are there
whenever one of its pieces of work begins or goes on, and at which version each question was
evaluated. So these are the choices here, and nothing else is:

* When a question is asked, the version of its answer is chosen: any between the newest that the
  warehouse knows of that source at this moment (delivered, or in an answer that it was handed) and
  the last one. Two schedules with the same versions are the same for the protocol: an answer is the
  rows at its version, whenever between asking and handing over it was evaluated; and any such
  choice has a schedule, because a source may commit as late as its next version is needed and as
  early as somebody likes.
* Then either some group of updates is delivered, or some piece of work is handed the answers of its
  round. The order inside a round is not seen: a piece goes on with the last of them.
* When an update is received makes no difference before it is delivered: no correction for a cut can
  tell "after the cut" from "not delivered". So everything is committed and received at once.

With FIFO channels (protocols that need them) an answer holds exactly what was delivered of its
source before it, so there the choice of the next message, update or answer, decides everything.

The first state is made in peace, at version 0 of every source. The search is depth-first: a run
with a given beginning of choices and the first possibility from there on, then the same with the
last choice that has another possibility changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from protocols.checking import trace
from protocols.errors import WrongUse
from protocols.exchange.inclusion import Prefix
from protocols.maintenance.registry import Entry
from protocols.simulation.choices import Branching, Recorded
from protocols.simulation.journal import Journal, Outcome, VisibleState
from protocols.simulation.judging import contents_of
from protocols.simulation.life import Life, Opened
from protocols.simulation.scenario import Scenario
from protocols.simulation.schedule import Schedule
from protocols.simulation.simulator import (
    commit_event,
    run_event,
    setting_of,
    simulate,
    sources_of,
)

#: Rows per page of the first state: all of them, for it is made in peace.
_ALL = 1_000_000


class Exploration:
    """All schedules of a protocol over a scenario."""

    def __init__(self, scenario: Scenario, entry: Entry) -> None:
        if any(update.at is not None for update in scenario.updates):
            raise WrongUse('all schedules are tried, so no update can have a time ("at")')
        self._scenario = scenario
        self._setting = setting_of(scenario, entry, "bag")
        self.fifo = entry.fifo
        #: Shared by all runs: everything is committed, and nobody changes anything any more.
        self.sources = sources_of(scenario)
        self._events: list[trace.Line] = [run_event(scenario, entry, None)]
        for source in self.sources.values():
            self._events += [commit_event(source) for _ in source.updates]
        self.contents = contents_of(self._setting.view, self.sources)

    def schedules(self) -> Iterator[Outcome]:
        """One run after the other, until all have been; each knows the choices that led to it."""
        beginning: Sequence[int] | None = ()
        while beginning is not None:
            branching = Branching(beginning)
            yield _Run(self, branching).outcome()
            beginning = branching.next_beginning()

    def outcome(self, choices: Sequence[int]) -> Outcome:
        """The run with these choices."""
        return _Run(self, Recorded(choices)).outcome()

    @cached_property
    def first_state(self) -> VisibleState:
        """The view before anything is committed, from a run without updates."""
        still = replace(self._scenario, updates=())
        alone = simulate(still, self._setting.entry, Schedule(0, "bag", page=_ALL, choices=()))
        return alone.states[0]

    def life(self) -> tuple[Life, Journal]:
        """A warehouse that has its first state and received, but not delivered, every update."""
        journal = Journal(list(self._events))
        journal.shown(self.first_state, 0)
        life = Life(self._setting, self.sources, journal, dict.fromkeys(self.sources, 0))
        return life, journal


class _Run:
    """One schedule of an exploration."""

    def __init__(self, exploration: Exploration, choices: Branching | Recorded) -> None:
        self._choices = choices
        self._sources = exploration.sources
        self._life, self._journal = exploration.life()
        self._fifo = exploration.fifo
        #: Source → the newest version that the warehouse has seen of it.
        self._known = dict.fromkeys(self._sources, 0)

    def outcome(self) -> Outcome:
        self._life.begin(_ALL)
        if self._fifo:
            while self._message():
                pass
        else:
            for source in self._sources.values():
                for _ in source.updates:
                    self._life.arrive(source)
            while self._step():
                pass
        mailbox = self._life.mailbox
        delivered = mailbox.vector_at(mailbox.last_position)
        return self._journal.outcome(delivered, self._sources, self._choices.taken)

    def _step(self) -> bool:
        """Chooses the versions of new answers, and then what happens next; False at the end."""
        rounds: dict[int, list[Opened]] = {}
        for opened in self._life.open():
            source = opened.source
            if opened.answer is None:
                known = self._known[source]
                newer = self._choices.below(len(self._sources[source].updates) - known + 1)
                opened.answer = self._life.evaluated(opened.question, Prefix(known + newer))
            rounds.setdefault(id(opened.piece), []).append(opened)
        groups = self._life.ready()
        if not rounds and not groups:
            return False
        chosen = self._choices.below(len(rounds) + len(groups))
        if chosen < len(rounds):
            for opened in list(rounds.values())[chosen]:
                assert opened.answer is not None
                self._see(opened.source, opened.answer.newest)
                self._life.hand_over(opened)
        else:
            group = groups[chosen - len(rounds)]
            for source, version in group:
                self._see(source, version)
            self._life.deliver(group)
        return True

    def _see(self, source: str, version: int) -> None:
        self._known[source] = max(self._known[source], version)

    def _message(self) -> bool:
        """The next message of some FIFO channel; False when all are empty."""
        life, received = self._life, self._life.mailbox.received
        answers = [opened for opened in life.open() if not opened.handed_over]
        updates = [s for s in self._sources.values() if received(s.name) < len(s.updates)]
        if not answers and not updates:
            return False
        chosen = self._choices.below(len(answers) + len(updates))
        if chosen < len(answers):
            opened = answers[chosen]
            source = opened.source
            opened.answer = life.evaluated(opened.question, Prefix(received(source)))
            life.hand_over(opened)
        else:
            life.arrive(updates[chosen - len(answers)])
        while groups := life.ready():
            life.deliver(groups[self._choices.below(len(groups))])
        return True
