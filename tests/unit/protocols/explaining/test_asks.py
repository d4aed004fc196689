"""Operators ask what they state: random views, one change at a time.

`explain` follows an update by the statements of the operators (operators/statements.py), and the
running operators follow them too. So every question of a run must have been predicted: the same
relation, by the same columns, with NULL in the same columns. There may be fewer questions, since
rows decide which are needed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from protocols.algebra.bag import Row
from protocols.algebra.expressions import Column, Condition, IsNull, conjuncts
from protocols.errors import NoValue
from protocols.explaining.asked import Ask, Rounds, ask
from protocols.explaining.costs import KINDS, Kind, root_of
from protocols.explaining.following import MANY, Following, Occasion
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators import cores
from protocols.operators.cores import Places
from protocols.operators.groups import GroupOperator
from protocols.operators.joins import JoinOperator
from protocols.operators.keys import ALL, Keys, These
from protocols.operators.operator import Span, Task
from protocols.simulation.drawnviews import view_scenario
from protocols.simulation.scenario import Scenario, Update
from protocols.views.catalog import Relation
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView, Core, nodes
from protocols.views.view import Atom
from tests.harness.watching import Asked, Work, update, watched

BATCHED = PROTOCOLS["batched-sweep"]


class Every(Following):
    """Follows all ways that rows may take, not only the most expensive one."""

    def __init__(self, occasion: Occasion) -> None:
        super().__init__(occasion)
        self.asks: set[Ask] = set()

    def _dearest(self, ways: Sequence[Rounds]) -> Rounds:
        self.asks.update(each for way in ways for round_ in way for each in round_)
        return super()._dearest(ways)

    def _patterns(self, columns: tuple[str, ...], _rows: int) -> Iterator[tuple[str, ...]]:
        """One key has one pattern, but it may be any of them."""
        return super()._patterns(columns, MANY)


def foretold(view: AnyView, relation: Relation, kind: Kind, remembered: bool) -> set[Ask]:
    """Every question that one update of a relation may lead to."""
    rows, comes, goes = 1 + (kind == "modification"), kind != "deletion", kind != "insertion"
    found: set[Ask] = set()
    for nulls in (False, True):
        every = Every(Occasion(frozenset({relation}), rows, goes, comes, remembered, nulls))
        asked = every.change(root_of(view)).asked
        found |= every.asks | {each for round_ in asked for each in round_}
    return {_plain(each) for each in found}


def _plain(each: Ask) -> Ask:
    """The question with its columns in a fixed order."""
    keys = tuple(sorted(tuple(sorted(columns)) for columns in each.keys))
    return Ask(each.relation, keys, tuple(sorted(each.nulls)))


def readings(asked: Asked, atoms: Sequence[Atom]) -> set[Ask]:
    """The possible meanings of a question: it does not tell which NULL tests come from the view.

    Keys without columns left to ask by are dropped, so it may have fewer sets than predicted.
    """
    keys = [tuple(each.columns) for each in asked.question.keys or ()]
    tests = () if asked.question.condition is None else tuple(conjuncts(asked.question.condition))
    found = set()
    for atom in atoms:
        own = () if atom.condition is None else tuple(conjuncts(atom.condition))
        if atom.relation == asked.relation and tests[: len(own)] == own:
            more = tests[len(own) :]
            nulls = tuple(name for test in more for name in _null_in(test))
            if len(nulls) == len(more):
                found.add(_plain(ask(atom, *keys, nulls=nulls)))
    assert found, f"{asked.question} is about no atom of the view"
    return found


def _null_in(test: Condition) -> Iterator[str]:
    match test:
        case IsNull(Column(name)):
            yield name


def is_among(asked: Asked, atoms: Sequence[Atom], said: set[Ask]) -> bool:
    return any(
        each.relation == reading.relation
        and each.nulls == reading.nulls
        and set(reading.keys) <= set(each.keys)
        and bool(reading.keys) == bool(each.keys)
        for reading in readings(asked, atoms)
        for each in said
    )


@dataclass
class Findings:
    """Totals over many changes: questions asked, predicted, and asked without prediction."""

    changes: int = 0
    asked: int = 0
    foretold: set[tuple[int, Ask]] = field(default_factory=set)
    met: set[tuple[int, Ask]] = field(default_factory=set)
    untold: list[str] = field(default_factory=list)

    def took(self, seed: int, work: Work, atoms: Sequence[Atom], said: set[Ask]) -> None:
        """Adds the questions of one change."""
        self.changes += 1
        self.foretold |= {(seed, each) for each in said}
        for asked in work.asked:
            self.asked += 1
            self.met |= {(seed, each) for each in readings(asked, atoms)}
            if not is_among(asked, atoms, said):
                self.untold.append(f"seed {seed}: {readings(asked, atoms)} is not among {said}")


@dataclass(frozen=True)
class Story:
    """A change of one row of a relation: forward, back, and forward again."""

    relation: Relation
    kind: Kind
    held: Mapping[Relation, Sequence[Row]]
    updates: Sequence[Update]


def stories(scenario: Scenario, view: AnyView) -> Iterator[Story]:
    """One story of each kind for each relation that has rows."""
    held = {relation: _rows(scenario, relation) for relation in scenario.catalog}
    for relation in view.relations:
        for kind in KINDS if held[relation] else ():
            first, *others = held[relation]
            old = None if kind == "insertion" else first
            new = None if kind == "deletion" else first
            if kind == "modification":
                new = (first[0], *held[relation][-1][1:])
            there, back = update(relation, old, new), update(relation, new, old)
            rows = held if kind != "insertion" else {**held, relation: others}
            if old != new:
                yield Story(relation, kind, rows, (there, back, there))


def _rows(scenario: Scenario, relation: Relation) -> list[Row]:
    return sorted(scenario.initial[relation].counts, key=str)


def compared(seeds: Iterable[int], until_untold: bool = False) -> Findings:
    """Compares the questions of single changes, with empty memories and with filled ones."""
    found = Findings()
    for seed in seeds:
        scenario = view_scenario(seed, BATCHED).scenario
        view = parse_view("view", scenario.view, scenario.catalog)
        atoms = [
            atom
            for node in nodes(root_of(view))
            if isinstance(node, Core)
            for atom in node.view.atoms
        ]
        for story in stories(scenario, view):
            for remembered, work in worked(scenario.view, story):
                said = foretold(view, story.relation, story.kind, remembered)
                found.took(seed, work, atoms, said)
            if until_untold and found.untold:
                return found
    return found


def worked(sql: str, story: Story) -> Iterator[tuple[bool, Work]]:
    """The questions of the change: with nothing remembered, and with everything that it needs.

    None for changes whose state would have no value.
    """
    try:
        first, _, again = watched(sql, story.held, story.updates, "batched-sweep")
        (fresh,) = watched(sql, story.held, story.updates[:1], "batched-sweep", restarted=False)
    except NoValue:
        return
    yield from ((False, first), (True, again), (True, fresh))


def test_nothing_is_asked_that_was_not_stated() -> None:
    found = compared(range(30))
    assert not found.untold, found.untold[:3]
    assert found.asked > found.changes, "vacuous: hardly anything was asked"
    assert len(found.met & found.foretold) * 3 > len(found.foretold), "foretold, but never asked"


# -- operators that ask what they did not state ----------------------------------------------------


def test_a_group_that_reads_its_input_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(self: GroupOperator, span: Span, keys: Keys) -> Task:
        return read(self, span, ALL if isinstance(keys, These) else keys)

    read = GroupOperator._read
    monkeypatch.setattr(GroupOperator, "_read", whole)
    assert compared(range(30), until_untold=True).untold


def test_a_join_that_asks_by_fewer_columns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(self: JoinOperator, changed: Any) -> Iterator[tuple[Keys, Any]]:
        for keys, wanted in asked(self, changed):
            if isinstance(keys, These) and keys.rows.width > 1:
                keys = These(keys.rows[:, :1].unique())
            yield keys, wanted

    asked = JoinOperator._asked
    monkeypatch.setattr(JoinOperator, "_asked", fewer)
    assert compared(range(100), until_untold=True).untold


def test_an_inner_join_that_begins_with_another_atom_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def last(of: Places, _: Collection[str]) -> Atom:
        return [*of][-1]

    monkeypatch.setattr(cores, "first_atom", last)
    assert compared(range(100), until_untold=True).untold
