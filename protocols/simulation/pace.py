"""The cost of a protocol at a given pace: a number of updates per round trip, everything counted.

Here schedules are not random: a metronome drives them. Time passes in round trips. In each one the
next updates are committed, published and delivered; then every question that was open at its
beginning is evaluated and its answer handed over. A pace of 0 means that an update comes only when
nothing is under way; at a pace of 4 four updates meet every question, and there is no quiet moment
until the last one.

The view is a chain R1.y = R2.x, R2.y = R3.x, … of keyed relations and shows all their keys, so that
every protocol can keep it; those that need a single source get all relations at one.
"""

from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Any

import orjson

from protocols.exchange.inclusion import Prefix
from protocols.exchange.questions import Answer, Joint, Question
from protocols.maintenance.registry import Entry
from protocols.simulation.algebras import ALGEBRAS
from protocols.simulation.journal import Journal
from protocols.simulation.kept import Opened
from protocols.simulation.life import Life
from protocols.simulation.scenario import Scenario, scenario_from_json
from protocols.simulation.setting import commit_event, run_event, setting_of, sources_of

_BAG = ALGEBRAS["bag"]
#: Rows of each relation at first, and the number of link values: a row has about two partners.
_SIZE, _VALUES = 12, 6


@dataclass
class RunCost:
    """The cost of one run."""

    updates: int
    questions: int = 0
    #: Keys and rows in both directions, as JSON; the names of columns are not counted.
    bytes: int = 0
    largest_message: int = 0
    #: Terms of the largest question: more than one only if a source evaluates joins.
    most_terms: int = 0
    #: The most questions for one update (or batch, by its last update).
    most_questions: int = 0
    round_trips: int = 0
    installs: int = 0
    #: Installs before the last update came, and the number of updates that they covered.
    installs_meanwhile: int = 0
    covered_meanwhile: int = 0

    def per_update(self, total: int) -> float:
        return total / self.updates


def cost(entry: Entry, relations: int, pace: float, updates: int, seed: int = 1) -> RunCost:
    """Runs a protocol over the chain at a pace, until nothing is left to do."""
    return _Metronome(entry, chain(relations, updates, entry.one_source, seed), pace).run()


def chain(relations: int, updates: int, one_source: bool, seed: int) -> Scenario:
    """A chain of relations, and as many single-row updates: inserts, deletes, modifications."""
    rng = Random(f"chain {relations} {seed}")
    numbers = range(1, relations + 1)
    place = {i: ("s" if one_source else f"s{i}", f"R{i}") for i in numbers}
    held: dict[int, dict[int, list[int]]] = {
        i: {row: [row, rng.randrange(_VALUES), rng.randrange(_VALUES)] for row in range(_SIZE)}
        for i in numbers
    }
    sources: dict[str, Any] = {}
    for i, (source, name) in place.items():
        columns = dict.fromkeys(("id", "x", "y"), "BIGINT")
        form = {"columns": columns, "key": ["id"], "rows": list(held[i].values())}
        sources.setdefault(source, {"relations": {}})["relations"][name] = form
    # The relations take turns, so that figures of one pace can be compared with those of another.
    changes = [(i, _update(rng, held[i])) for i in islice(cycle(numbers), updates)]
    tables = ", ".join(f"{source}.{name}" for source, name in place.values())
    links = " AND ".join(f"R{i}.y = R{i + 1}.x" for i in numbers[:-1])
    shown = ", ".join(f"R{i}.id AS id{i}" for i in numbers)
    return scenario_from_json(
        {
            "name": f"chain of {relations}",
            "view": f"SELECT {shown} FROM {tables}" + (f" WHERE {links}" if links else ""),
            "sources": sources,
            "updates": [
                {
                    "source": place[i][0],
                    "changes": [{"relation": f"R{i}", "row": row, "count": n} for row, n in rows],
                }
                for i, rows in changes
            ],
        }
    )


def _update(rng: Random, held: dict[int, list[int]]) -> list[tuple[list[int], int]]:
    kind = rng.choices(("insert", "delete", "modify"), (6, 2, 2))[0] if held else "insert"
    if kind == "insert":
        key = max(held, default=-1) + 1
        held[key] = [key, rng.randrange(_VALUES), rng.randrange(_VALUES)]
        return [(held[key], 1)]
    key = rng.choice(list(held))
    old = held.pop(key)
    if kind == "delete":
        return [(old, -1)]
    held[key] = [key, old[1], (old[2] + 1 + rng.randrange(_VALUES - 1)) % _VALUES]
    return [(old, -1), (held[key], 1)]


class _Metronome:
    """One run."""

    def __init__(self, entry: Entry, scenario: Scenario, pace: float) -> None:
        self._pace = pace
        self._sources = sources_of(scenario)
        #: The sources of the updates to come, in their order over all sources.
        self._coming = [update.source for update in scenario.updates]
        setting = setting_of(scenario, entry, "bag")
        self._journal = Journal([run_event(setting, None)])
        vector = dict.fromkeys(self._sources, 0)
        self._life = Life([(setting, self._journal, vector)], self._sources)
        self._cost = RunCost(len(self._coming))

    def run(self) -> RunCost:
        self._life.begin(page=1_000_000)
        while self._life.loading:
            self._answer(self._under_way())
        # The first state costs the same for all protocols and is not counted.
        self._cost, asked_before, due = RunCost(len(self._coming)), self._journal.last_id, 0.0
        while self._coming or not self._life.idle:
            if self._life.idle:
                self._commit()
                continue
            under_way = self._under_way()
            due += self._pace
            while due >= 1 and self._coming:
                due -= 1
                self._commit()
            self._cost.round_trips += 1
            self._answer(under_way)
        self._cost.questions = self._journal.last_id - asked_before
        by_position = (n for position, n in self._journal.queries.items() if position)
        self._cost.most_questions = max(by_position, default=0)
        self._cost.installs = len(self._journal.states) - 1
        return self._cost

    def _under_way(self) -> list[Opened]:
        """All questions that are open at this moment."""
        self._life.send()
        return list(self._life.open)

    def _commit(self) -> None:
        """Commits and delivers the next update; FIFO protocols get it with their answers."""
        source = self._sources[self._coming.pop(0)]
        self._journal.events.append(commit_event(source))
        if not self._coming:
            self._cost.installs_meanwhile = len(self._journal.states) - 1
            self._cost.covered_meanwhile = self._journal.position
        self._life.arrive(source)
        self._deliver()

    def _deliver(self) -> None:
        [view] = self._life.views
        ends = self._life.may_enqueue(view)
        if ends:
            self._life.enqueue_upto(view, ends)

    def _answer(self, questions: list[Opened]) -> None:
        """Answers all at the same moment; further questions wait until the next round trip."""
        for each in questions:
            version = Prefix(self._sources[each.source].version)
            for wanted in each.asked.wanting:
                # Equal questions are sent once; the protocol's own cost counts each of them.
                alone = self._life.answering.from_state(wanted.question, version)
                self._weigh(wanted.question, alone)
            self._life.answered(each, self._life.answering.from_state(each.question, version))
        while messages := self._life.driver.next_ones():
            self._life.hand_over(messages[0])
        self._deliver()

    def _weigh(self, question: Question[Any], answer: Answer[Any]) -> None:
        if isinstance(question, Joint):
            sets = [rows for term in question.terms for rows in term.values()]
            self._cost.most_terms = max(self._cost.most_terms, len(question.terms))
        else:
            sets = list(question.keys or ())
            self._cost.most_terms = max(self._cost.most_terms, 1)
        sizes = (sum(map(_size, sets)), _size(answer.rows))
        self._cost.bytes += sum(sizes)
        self._cost.largest_message = max(self._cost.largest_message, *sizes)


def _size(delta: Any) -> int:
    rows = _BAG.rows(delta).counts
    return len(orjson.dumps([[*row, count] for row, count in rows.items()])) if rows else 0
