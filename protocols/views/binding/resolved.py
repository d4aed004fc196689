"""One SELECT of a view clause by clause, its names resolved: for questions about the text.

The tree says how a view is kept. It no longer shows that a condition was NOT IN, or which relations
stand in a subquery. Columns are named as in the tree: `alias.column`, with aliases that occur once
in the whole view.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from sqlglot import exp

from protocols.algebra.expressions import Condition, Expression, conjuncts
from protocols.views import tree
from protocols.views.binding.conditions import SubqueryQuestion, asked, bare, row_of, without_not
from protocols.views.binding.select import Binder, Item, Select
from protocols.views.binding.sources import Common
from protocols.views.binding.statement import Text
from protocols.views.binding.subqueries import Inner
from protocols.views.catalog import Catalog, Relation
from protocols.views.normal.regions import region


@dataclass(frozen=True)
class Occurrence:
    """A relation at one place of the text."""

    alias: str
    relation: Relation
    at: exp.Expr


@dataclass(frozen=True)
class SubqueryTest:
    """A condition that asks a subquery and does nothing else."""

    at: exp.Expr
    #: Whether NOT stands before it.
    negated: bool
    asked: SubqueryQuestion
    #: Each value that is compared, with its item of the subquery; none for EXISTS.
    compared: tuple[tuple[Expression, Expression], ...]
    select: "Resolved"


@dataclass(frozen=True)
class Resolved:
    """One SELECT."""

    at: exp.Select
    occurrences: tuple[Occurrence, ...]
    #: The conjuncts of ON and WHERE; in a subquery also those that name columns from around it.
    conditions: tuple[Condition, ...]
    tests: tuple[SubqueryTest, ...]
    #: The relations of all other subqueries in conditions and values.
    elsewhere: tuple[Occurrence, ...]
    shown: tuple[Item, ...]

    @property
    def below(self) -> tuple[Occurrence, ...]:
        """Its own relations and those of all its subqueries."""
        within = (each for test in self.tests for each in test.select.below)
        return (*self.occurrences, *within, *self.elsewhere)


def selects(
    text: Text, catalog: Catalog, query: exp.Query, around: tuple[exp.Query, ...] = ()
) -> Iterator[Resolved]:
    """Reads each SELECT that set operations connect by itself, with relations of its own."""
    around = (*around, query)
    if isinstance(query, exp.SetOperation):
        for side in (query.left, query.right):
            yield from selects(text, catalog, side, around)
    elif isinstance(query, exp.Subquery):
        yield from selects(text, catalog, query.this, around)
    elif isinstance(query, exp.Select):
        binder = Binder(text, catalog)
        common: Common = {}
        for each in around:
            common = binder.common(each, common)
        select = Select(binder, common, query)
        select.bound()
        yield _resolved(select, ())


def _resolved(select: Select, links: tuple[exp.Expr, ...]) -> Resolved:
    """Resolves a SELECT that has been read; `links` are its conditions on the query around it."""
    _, conditions = region(select.from_)
    conditions += [select.of_both().condition(link) for link in links]
    tests = []
    for part, condition in select.conjuncts:
        test = _test(select, part)
        tests += [] if test is None else [test]
        conditions += [] if test is not None or condition is None else [condition]
    covered = {id(test.select.at) for test in tests}
    others = (s.rows.node for node, (s, _) in select.inners.items() if node not in covered)
    places = select.binder.places
    return Resolved(
        select.select,
        tuple(_occurrences([select.from_], places)),
        tuple(each for condition in conditions for each in conjuncts(condition)),
        tuple(tests),
        tuple(_occurrences(others, places)),
        tuple(select.shown),
    )


def _test(select: Select, part: exp.Expr) -> SubqueryTest | None:
    """A conjunct that asks a subquery without groups and compares no further subqueries."""
    node, negated = without_not(part)
    question = asked(node)
    if question is None:
        return None
    within, inner = select.inners[id(bare(question.query))]
    sides = _sides(question, inner)
    if within.grouping is not None or any(
        each.find(exp.Query, exp.Star) is not None
        for each in (*chain.from_iterable(sides), *inner.links)
    ):
        return None
    around, below = select.of_both(), inner.of_both
    compared = tuple((around.typed(one)[0], below.typed(other)[0]) for one, other in sides)
    read = _resolved(within, tuple(inner.links))
    return SubqueryTest(part, negated, question, compared, read)


def _sides(question: SubqueryQuestion, inner: Inner) -> list[tuple[exp.Expr, exp.Expr]]:
    """The values and items that are compared; of rows, value by value."""
    if question.value is None:
        return []
    values = row_of(question.value) or [question.value]
    items = [each.unalias() for each in inner.select.expressions]
    return list(zip(values, items, strict=True))


def _occurrences(
    nodes: Iterator[tree.Node] | list[tree.Node], places: Mapping[str, exp.Expr]
) -> Iterator[Occurrence]:
    """The relations below these nodes, each place of the text once: some places are read twice."""
    found: dict[int, Occurrence] = {}
    for node in nodes:
        for core in tree.nodes(node):
            for atom in core.view.atoms if isinstance(core, tree.Core) else ():
                at = places[atom.alias]
                found.setdefault(id(at), Occurrence(atom.alias, atom.relation, at))
    yield from found.values()
