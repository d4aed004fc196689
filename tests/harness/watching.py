"""Records the real questions of protocols, one update after the other.

This code is independent of `explain`. The sources are those of the simulator; each update is
committed when the previous one is done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocols.algebra.bag import Row, bag
from protocols.algebra.expressions import Column, IsNull, conjuncts
from protocols.algebra.frame import Frame
from protocols.exchange.inclusion import Prefix
from protocols.exchange.questions import Query, Question
from protocols.maintenance.registry import protocol as protocol_named
from protocols.simulation.journal import Journal
from protocols.simulation.life import Life
from protocols.simulation.scenario import Scenario, Update
from protocols.simulation.setting import commit_event, run_event, setting_of, sources_of
from protocols.views.catalog import Catalog, Relation
from protocols.views.tree import AnyView
from sources.simulated.workloads import workload


@dataclass(frozen=True)
class Asked:
    """One question as sent."""

    relation: Relation
    #: The columns of its keys, and those that must be NULL; empty if it asks for all rows.
    columns: frozenset[str]
    #: The position of the update that asked it, or of the last one of the batch.
    position: int
    question: Query[Frame] = field(compare=False)


@dataclass(frozen=True)
class Work:
    """The questions of an update, and their number of rounds."""

    asked: list[Asked]
    rounds: int


def watched(
    sql: str,
    held: Mapping[Relation, Sequence[Row]],
    updates: Sequence[Update],
    protocol: str,
    restarted: bool = True,
) -> list[Work]:
    """The questions of each update, one update at a time.

    A restarted warehouse remembers only the rows of the view; one that continues from the first
    state remembers everything.
    """
    run = _Run(sql, held, updates, protocol)
    if restarted:
        run.restart()
    return [run.work_on([update.source]) for update in updates]


def watched_batch(
    sql: str, held: Mapping[Relation, Sequence[Row]], updates: Sequence[Update], protocol: str
) -> list[Asked]:
    """The questions of all updates except the first, as one batch."""
    run = _Run(sql, held, updates, protocol)
    run.restart()
    asked = run.work_on([update.source for update in updates]).asked
    # The first begins at once; the others arrive meanwhile and are the next batch.
    return [each for each in asked if each.position == len(updates)]


def rows_of(name: str, scale: int, view: AnyView) -> dict[Relation, list[Row]]:
    """The initial rows of a view's relations in a workload."""
    chosen = workload(name)
    held = {}
    for source in view.sources:
        frames = chosen.source(source, scale).initial_rows()
        for relation in chosen.catalog:
            if relation.source == source:
                held[relation] = list(frames[relation.name].rows())
    return held


def update(relation: Relation, old: Row | None, new: Row | None) -> Update:
    """Replaces one row by another; None stands for no row."""
    rows = [(row, count) for row, count in ((old, -1), (new, 1)) if row is not None]
    return Update(relation.source, {relation: bag(relation.column_names, rows)})


class _Run:
    """The warehouse and its sources, from the first state on."""

    def __init__(
        self,
        sql: str,
        held: Mapping[Relation, Sequence[Row]],
        updates: Sequence[Update],
        protocol: str,
    ) -> None:
        initial = {r: bag(r.column_names, ((row, 1) for row in rows)) for r, rows in held.items()}
        scenario = Scenario("watched", sql, Catalog(tuple(held)), initial, tuple(updates))
        entry = protocol_named(protocol)
        self._sources = sources_of(scenario)
        self._setting = setting_of(scenario, entry, "frame")
        self._journal = Journal([run_event(self._setting, None)])
        self.restart()
        self._answer_all()

    def restart(self) -> None:
        """Starts a new warehouse over the state that the previous one has shown."""
        vector = dict.fromkeys(self._sources, 0)
        self._life = Life([(self._setting, self._journal, vector)], self._sources)
        self._life.begin(page=1_000_000)

    def work_on(self, sources: Sequence[str]) -> Work:
        """Commits the next update of each source, and answers all questions about them."""
        for source in sources:
            self._journal.events.append(commit_event(self._sources[source]))
            self._life.arrive(self._sources[source])
            [view] = self._life.views
            self._life.enqueue_upto(view, self._life.may_enqueue(view))
        return self._answer_all()

    def _answer_all(self) -> Work:
        """Answers round by round until no question is left."""
        work = Work([], 0)
        while not self._life.idle:
            self._life.send()
            opened = list(self._life.open)
            work = Work([*work.asked, *(_asked(each.question) for each in opened)], work.rounds + 1)
            for each in opened:
                version = Prefix(self._sources[each.source].version)
                answer = self._life.answering.from_state(each.question, version)
                self._life.answered(each, answer)
            while messages := self._life.driver.next_ones():
                self._life.hand_over(messages[0])
        return work


def _asked(question: Question[Frame]) -> Asked:
    assert isinstance(question, Query)
    columns = {column for keys in question.keys or () for column in keys.columns}
    tests = () if question.condition is None else conjuncts(question.condition)
    for test in tests:
        match test:
            case IsNull(Column(name)):
                columns.add(name)
    return Asked(question.relation, frozenset(columns), question.position, question)
