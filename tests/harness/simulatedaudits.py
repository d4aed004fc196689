"""Audits of states that simulated runs have shown, while the sources have gone on.

The run is over, and its sources remember all their versions. An audit of one of its states asks
them; each answer contains up to all of what came after the state, in any of the ways in which
sources read, and is corrected like every answer of a job.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import polars as pl

from protocols.algebra.bag import Bag, bag
from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame, once, picked
from protocols.auditing.audit import Audit, Found
from protocols.exchange.correction import snapshot
from protocols.exchange.inclusion import Prefix, Window
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.questions import Answer, Query, Question, Snapshot
from protocols.operators.keys import Keys, agreeing
from protocols.simulation.algebras import ALGEBRAS
from protocols.simulation.answering import Answering
from protocols.simulation.journal import Outcome
from protocols.simulation.source import MemorySource
from protocols.views.tree import AnyView

FRAMES = ALGEBRAS["frame"]


@dataclass
class Held:
    """A state of a view, as its tables would have it."""

    data: pl.DataFrame

    def rows(self) -> int:
        return int(self.data[COUNT].sum())

    def values(self, columns: Sequence[str]) -> pl.DataFrame:
        return once(picked(self.data, columns))

    def of(self, keys: Keys) -> dict[str, pl.DataFrame]:
        return {"changes": agreeing(self.data, keys)}


@dataclass
class Asked:
    """Answers of sources that have gone on; counts them, and those that had to be corrected."""

    sources: Mapping[str, MemorySource]
    vector: Mapping[str, int]
    random: Random
    questions: int = 0
    ahead: int = 0
    answering: Answering = field(init=False)
    received: Received[Frame] = field(init=False)

    def __post_init__(self) -> None:
        self.answering = Answering(FRAMES, self.sources)
        relations = [r for source in self.sources.values() for r in source.relations]
        self.received = Received({r: FRAMES.log() for r in relations}, self.vector)
        for name, source in self.sources.items():
            for version in range(self.vector[name] + 1, source.version + 1):
                changes = {
                    relation: FRAMES.changes(dict(relation.columns), version, rows)
                    for relation, rows in source.updates[version - 1].changes.items()
                }
                self.received.receive(name, version, changes)

    def __call__(self, questions: Sequence[Question[Frame]]) -> list[Snapshot[Frame]]:
        found = []
        for question in questions:
            assert isinstance(question, Query)
            answer = self.answer(question)
            self.questions += 1
            self.ahead += answer.newest > self.vector[question.source]
            found.append(snapshot(self.received, question, answer))
        return found

    def answer(self, question: Query[Frame]) -> Answer[Frame]:
        """The answer from a random later state of the source; keyed relations also in a window."""
        source, base = self.sources[question.source], self.vector[question.source]
        version = self.random.randint(base, source.version)
        if question.relation.key and self.random.randrange(3) == 0:
            window = Window(self.random.randint(base, version), version)
            return self.answering.in_window(question, window, lambda: self._moments(window))
        return self.answering.from_state(question, self._with_holes(source, base, version))

    def _moments(self, window: Window) -> list[int]:
        return [self.random.randint(window.low, window.high) for _ in range(1 + _once_in(3, self))]

    def _with_holes(self, source: MemorySource, base: int, version: int) -> Prefix:
        """Without some of the last transactions on which none of the later ones depends."""
        lacking: list[int] = []
        for each in range(version, max(base, version - 3), -1):
            needed = any(
                source.depends(later, each)
                for later in range(each + 1, version + 1)
                if later not in lacking
            )
            if not needed and self.random.randrange(3) == 0:
                lacking.append(each)
        return Prefix(version, without=tuple(sorted(lacking)))


def _once_in(number: int, asked: Asked) -> bool:
    return asked.random.randrange(number) == 0


def states(view: AnyView, outcome: Outcome) -> Iterator[tuple[int, dict[str, int], pl.DataFrame]]:
    """Position, vector and rows of each state that was shown."""
    held: Bag = bag(tuple(view.schema), ())
    for state in outcome.states:
        if state.change is not None:
            held = held.plus(state.change.select([(name, name) for name in held.columns]))
        rows: Any = FRAMES.delta(dict(view.schema), held)
        yield state.position, state.vector, rows.data


def audited(
    view: AnyView,
    outcome: Outcome,
    state: tuple[int, dict[str, int], pl.DataFrame],
    rows: int,
    random: Random,
) -> tuple[Found, Asked]:
    """One audit of a state, of so many rows."""
    position, vector, data = state
    asked = Asked(outcome.sources, vector, random)
    mailbox = Mailbox(asked.received, vector, position)
    audit = Audit(view, mailbox, Held(data), asked, random)
    return audit.look_at(lambda _: rows), asked


@dataclass
class Hunt:
    """The audits of states that a planted defect has made wrong."""

    #: Wrong states, and those that an audit of all rows, or of some, calls wrong.
    wrong: int = 0
    found: int = 0
    found_by_stretches: int = 0
    #: The rows that these had looked at when they found the first difference.
    looked_at: list[int] = field(default_factory=list)

    def over(self, outcome: Outcome, view: AnyView, contents: Any, random: Random) -> None:
        """Audits each wrong state of a run; `contents` has the view at any vector."""
        for state in states(view, outcome):
            _, vector, rows = state
            held = FRAMES.rows(Frame(rows)).counts
            if dict(held) == contents.at(vector):
                continue
            self.wrong += 1
            whole, _ = audited(view, outcome, state, 10**6, random)
            self.found += bool(whole.wrong or whole.troubles)
            some, _ = audited(view, outcome, state, max(1, int(rows[COUNT].sum()) - 1), random)
            if some.wrong or some.troubles:
                self.found_by_stretches += 1
                self.looked_at.append(some.first_after or some.rows)
