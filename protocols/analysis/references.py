"""The relations that a view names, at its top and in its subqueries (Ceri and Widom, Section 2).

Three places matter, because rows that come and go there do different things to the view:

    top         FROM of the view: more rows make more rows
    positive    EXISTS, IN, … ANY: more rows make more rows, though one is as good as many
    negative    NOT EXISTS, NOT IN, … ALL: more rows make fewer rows

The paper counts `<> ANY` among the negative ones (Section 7). In SQL it is true if *some* row
differs, so it is positive; its negation is `= ALL`.

Binding resolves the names and collects the conditions (`views/binding/resolved.py`). Below, a
SELECT is refused if it has clauses that the paper's criteria do not cover. A subquery that they do
not cover is kept only as the relations that it mentions, which are `elsewhere`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, TypeAlias

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.views.binding.grouping import has_aggregate
from protocols.views.binding.resolved import Occurrence, Resolved, SubqueryTest, selects
from protocols.views.binding.select import Item
from protocols.views.binding.statement import Text
from protocols.views.catalog import Catalog, Relation

_COVERED_CLAUSES = {"expressions", "from_", "joins", "where", "distinct", "kind"}


@dataclass(frozen=True)
class TableReference:
    """One occurrence of a relation, by a name that is unique in the whole view."""

    name: str
    relation: Relation

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """All keys of the relation, as columns `name.column`."""
        return tuple(tuple(f"{self.name}.{c}" for c in key) for key in self.relation.all_keys)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{column}" for column in self.relation.column_names)


SubqueryKind: TypeAlias = Literal["positive", "negative"]


@dataclass(frozen=True)
class Subquery:
    """A condition with a SELECT in it, and the relations of that SELECT."""

    kind: SubqueryKind
    references: tuple[TableReference, ...]
    #: The conditions that hold for a deciding row of the subquery; so does `compares`.
    conditions: tuple[ex.Condition, ...]
    #: Both sides of the comparison of IN, ANY or ALL.
    compared: tuple[ex.Expression, ...]
    compares: tuple[ex.Condition, ...]
    node: exp.Expr = field(compare=False)
    #: The Table of each reference in the text.
    places: tuple[exp.Expr, ...] = field(compare=False)


@dataclass(frozen=True)
class Selected:
    """One SELECT of a view."""

    references: tuple[TableReference, ...]
    #: What it shows, with each `*` written out.
    items: tuple[Item, ...] = field(compare=False)
    #: The columns that it shows unchanged.
    shown: tuple[str, ...]
    #: The conditions that all have to hold.
    conditions: tuple[ex.Condition, ...]
    subqueries: tuple[Subquery, ...]
    #: Relations that the paper's criteria do not cover.
    elsewhere: tuple[TableReference, ...]
    distinct: bool
    node: exp.Select = field(compare=False)
    places: tuple[exp.Expr, ...] = field(compare=False)


def selects_of(text: Text, query: exp.Query, catalog: Catalog) -> tuple[Selected, ...]:
    """The SELECTs of a view: one, or all that set operators connect (Section 8).

    ViewRefused names the part of the view that the criteria do not cover.
    """
    for select in _selects(text, query):
        beyond = _beyond(select)
        if beyond is not None:
            text.refuse(*beyond)
    read = selects(text, catalog, query)
    return tuple(map(_selected, read))


def _selects(text: Text, query: exp.Expr) -> Iterator[exp.Select]:
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        yield from _selects(text, query.left)
        yield from _selects(text, query.right)
    elif isinstance(query, exp.Select):
        yield query
    else:
        text.refuse(query, "Ceri and Widom's rules cover SELECT and set operations only")


def _beyond(select: exp.Select) -> tuple[exp.Expr, str] | None:
    """The part of a SELECT that the criteria do not cover, and the message about it."""
    for clause, value in select.args.items():
        if value and clause not in _COVERED_CLAUSES:
            name = clause.strip("_").upper()
            return select, f"Ceri and Widom's rules do not cover {name}"
    for shown in select.expressions:
        if has_aggregate(shown):
            return shown, "Ceri and Widom's rules do not cover aggregates"
        if shown.find(exp.Window):
            return shown, "Ceri and Widom's rules do not cover window functions"
    distinct = select.args.get("distinct")
    if distinct and distinct.args.get("on"):
        return distinct, "Ceri and Widom's rules do not cover DISTINCT ON"
    joins = select.args.get("joins") or ()
    for join in joins:
        if join.side or join.method:
            words = f"{join.method} {join.side}".strip()
            return join, f"Ceri and Widom's rules do not cover {words} JOIN"
    first = select.args.get("from_")
    for item in (*([first.this] if first else ()), *(join.this for join in joins)):
        if not isinstance(item, exp.Table) or not item.db:
            return item, "Ceri and Widom's rules do not cover subqueries in FROM"
    return None


def _selected(select: Resolved) -> Selected:
    subqueries, elsewhere = [], [*select.elsewhere]
    for test in select.tests:
        if _is_covered(test.select):
            subqueries.append(_subquery(test))
        else:
            elsewhere += test.select.below
    shown = (i.value.name for i in select.shown if isinstance(i.value, ex.Column))
    return Selected(
        _references(select.occurrences),
        select.shown,
        tuple(dict.fromkeys(shown)),
        select.conditions,
        tuple(subqueries),
        _references(elsewhere),
        bool(select.at.args.get("distinct")),
        select.at,
        tuple(each.at for each in select.occurrences),
    )


def _is_covered(subquery: Resolved) -> bool:
    """Whether a subquery is a plain SELECT without further subqueries."""
    deeper = bool(subquery.tests or subquery.elsewhere)
    return not deeper and _beyond(subquery.at) is None


def _references(occurrences: Iterable[Occurrence]) -> tuple[TableReference, ...]:
    return tuple(TableReference(each.alias, each.relation) for each in occurrences)


def _subquery(test: SubqueryTest) -> Subquery:
    select = test.select
    return Subquery(
        "negative" if test.negated != test.asked.every else "positive",
        _references(select.occurrences),
        select.conditions,
        tuple(chain.from_iterable(test.compared)),
        tuple(_compare(test, *pair) for pair in test.compared),
        test.at,
        tuple(each.at for each in select.occurrences),
    )


def _compare(test: SubqueryTest, value: ex.Expression, item: ex.Expression) -> ex.Condition:
    """The condition on a deciding row; for … ALL, on a row that excludes the row outside."""
    if not test.asked.every:
        return ex.Comparison(value, test.asked.op, item)
    if test.asked.op == "<>":
        return ex.Comparison(value, "=", item)
    return ex.Not(ex.Comparison(value, test.asked.op, item))
