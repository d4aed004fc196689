"""Nothing of the auxiliary views can be left out.

Something is left out of them: a whole auxiliary view, a column, a condition (so that rows are no
longer told from those that do not pass it), or the rows that one more semijoin would remove. Then a
search finds two databases that agree on V and on what is left, and a transaction after which they
do not agree on V: whoever only knows what is left cannot keep V. DuckDB evaluates the texts in all
databases.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import TypeAlias

import pytest

from protocols.selfmaintenance.auxiliary import AuxiliaryView, AuxiliaryViews
from protocols.selfmaintenance.joingraph import Edge
from protocols.selfmaintenance.keptas import kept_as
from protocols.selfmaintenance.sqltext import condition_text
from tests.cases.selfmaintenance import CASES, Case
from tests.harness.possibletransactions import Contents, Possible
from tests.harness.selfmaintained import Transaction
from tests.harness.worlds import Rows, Worlds, after, neighbours, without

_DATABASES, _NEIGHBOURS, _PAIRS = 100, 50, 100
#: Transactions per pair of databases, and pairs that are tried at once.
_TRANSACTIONS, _AT_ONCE = 60, 5


#: What is left of the auxiliary views: SELECTs, each with the places of columns that are missing.
Left: TypeAlias = Sequence[tuple[str, Collection[int]]]
#: Two databases, and a transaction that both can take.
Witness: TypeAlias = tuple[Contents, Contents, Transaction]


class Search:
    """Databases over the catalog of a case, each with those that differ a little."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        self.case = case
        self._dice = Random(seed)
        self._possible = Possible(case.catalog, self._dice, keys=3)
        self._families = [self._family() for _ in range(_DATABASES)]
        self._worlds = Worlds(case.catalog)
        self._worlds.hold([each for family in self._families for each in family])
        self._tried = Worlds(case.catalog)
        self._views = self._worlds.rows(case.sql)
        found = case.auxiliary_views
        #: Most of what is left is left again when something else is missing.
        self._rows = cache(self._worlds.rows)
        self._left = cache(self._evaluated)
        self._known = [self._rows(kept_as(name, found).sql) for name in found.views]

    def _evaluated(self, sql: str, places: tuple[int, ...]) -> list[Rows]:
        return [_without(rows, places) for rows in self._rows(sql)]

    def witness(self, left: Left, *, missing: bool = True) -> Witness | None:
        """Two databases that look alike, and a transaction after which V differs.

        If something is `missing`, only pairs with different auxiliary views can be told apart.
        """
        pairs = self._alike(left, missing)
        for begin in range(0, len(pairs), _AT_ONCE):
            found = self._told_apart(pairs[begin : begin + _AT_ONCE])
            if found is not None:
                return found
        return None

    def _told_apart(self, pairs: Sequence[tuple[Contents, Contents]]) -> Witness | None:
        tried = [(one, other, t) for one, other in pairs for t in self._transactions(one)]
        both = [(after(one, t), after(other, t)) for one, other, t in tried]
        possible = [
            (each, one, other)
            for each, (one, other) in zip(tried, both, strict=True)
            if one is not None and other is not None and self._possible.allows(other)
        ]
        self._tried.hold([each for _, *pair in possible for each in pair])
        views = self._tried.rows(self.case.sql)
        for number, (each, *_) in enumerate(possible):
            if views[2 * number] != views[2 * number + 1]:
                return each
        return None

    def _family(self) -> list[Contents]:
        first = self._possible.contents()
        others = list(neighbours(first, self._possible))
        self._dice.shuffle(others)
        return [first, *others[:_NEIGHBOURS]]

    def _alike(self, left: Left, missing: bool) -> list[tuple[Contents, Contents]]:
        """Pairs of one family that agree on V and on what is left of the auxiliary views."""
        seen: list[list[Rows]] = [self._views]
        for sql, places in left:
            seen.append(self._left(sql, tuple(places)))
        number, pairs = 0, []
        for family in self._families:
            for other in range(1, len(family)):
                ends = number, number + other
                if _agree(seen, *ends) and _agree(self._known, *ends) != missing:
                    pairs.append((family[0], family[other]))
            number += len(family)
        self._dice.shuffle(pairs)
        return pairs[: _PAIRS if missing else 20]

    def _transactions(self, contents: Contents) -> Iterator[Transaction]:
        for number in range(_TRANSACTIONS):
            _, transaction = self._possible.transaction(contents, most=2 + number % 7)
            yield transaction


def _agree(evaluated: list[list[Rows]], one: int, other: int) -> bool:
    """Whether these views have the same rows in two worlds."""
    return all(rows[one] == rows[other] for rows in evaluated)


def _without(rows: Rows, places: Collection[int]) -> Rows:
    """The rows without these columns, as a bag; whole rows once, whatever repeats them."""
    return without(rows, places) if places else frozenset((row, 1) for row, _ in rows)


# -- what is left out ------------------------------------------------------------------------------


def lefts(found: AuxiliaryViews) -> Iterator[tuple[str, Left]]:
    """All that can be left out, with what is left then."""
    whole = {name: (kept_as(name, found).sql, ()) for name in found.views}
    for name, view in found.views.items():
        others = [kept for other, kept in whole.items() if other != name]
        yield view.name, others
        for place, column in enumerate(view.columns):
            yield f"column {column}", [*others, (whole[name][0], [place])]
        for number, condition in enumerate(view.conditions):
            rest = view.conditions[:number] + view.conditions[number + 1 :]
            changed = _with(found, replace(view, conditions=rest))
            read = condition_text(condition, str)
            yield f"condition {read}", [(kept_as(each, changed).sql, ()) for each in found.views]
        for edge in _further(view, found):
            bare = _with(found, replace(found.views[edge.parent], semijoins=()))
            changed = _with(bare, replace(view, semijoins=(*view.semijoins, edge)))
            text = f"rows of {view.name} that meet none of {edge.parent}"
            yield text, [*others, (kept_as(name, changed).sql, ())]


def _with(found: AuxiliaryViews, view: AuxiliaryView) -> AuxiliaryViews:
    return replace(found, views={**found.views, view.vertex.name: view})


def _further(view: AuxiliaryView, found: AuxiliaryViews) -> Iterator[Edge]:
    """Semijoins with the neighbours that it is not semijoined with."""
    name, there = view.vertex.name, {edge.parent for edge in view.semijoins}
    for edge in found.graph.edges:
        turned = Edge(edge.parent, edge.child, tuple((b, a) for a, b in edge.on), None)
        for each in (edge, turned):
            if each.child == name and each.parent in found.views.keys() - there:
                yield each


# -- the tests -------------------------------------------------------------------------------------

NAMES = (
    "the running example",
    "exposed updates of sale",
    "a star that shows the key of its centre",
    "a star whose points are never updated",
    "a chain without keys",
    "a chain that shows the key in the middle",
    "a condition that is carried over",
    "no foreign keys",
    "a join that is not along a key",
    "a relation joined with itself",
)
#: What could be left out after all: keys that are neither shown nor joined on, and conditions that
#: can still be tested on what is stored.
SUPERFLUOUS = {
    "a chain without keys": {"column a.k"},
    "a condition that is carried over": {"condition b.n < 2"},
}


@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_left_out_is_missed(name: str) -> None:
    search = Search(CASES[name])
    found = CASES[name].auxiliary_views
    not_missed = {what for what, left in lefts(found) if search.witness(left) is None}
    assert not_missed == SUPERFLUOUS.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_control_with_all_of_them_nothing_is_missed(name: str) -> None:
    found = CASES[name].auxiliary_views
    everything = [(kept_as(each, found).sql, ()) for each in found.views]
    assert Search(CASES[name]).witness(everything, missing=False) is None
