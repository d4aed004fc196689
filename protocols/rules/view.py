"""Reads a view for which rules are derived: its branches, its columns, its key.

The language is the paper's (Figure 2): SELECT over tables, with positively and negatively nested
subqueries, under UNION or INTERSECT. Beyond it: mixed set operators, EXCEPT, ALL, OR, expressions.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.analysis.dependencies import Facts, inner_join
from protocols.analysis.references import Selected, Subquery, TableReference, selects_of
from protocols.analysis.safety import Safety, SelectAnalysis, analysis_of
from protocols.rules.names import ViewNames
from protocols.views.binding.statement import Text
from protocols.views.catalog import Catalog, Relation


@dataclass(frozen=True)
class Column:
    """A column of the view."""

    name: str
    never_null: bool


@dataclass(frozen=True)
class Place:
    """One reference to a relation: at the top of a branch, or in one of its subqueries."""

    reference: TableReference
    node: exp.Expr
    subquery: Subquery | None
    safety: Safety

    @property
    def is_negative(self) -> bool:
        return self.subquery is not None and self.subquery.kind == "negative"


@dataclass(frozen=True)
class Branch:
    """One SELECT of the view."""

    select: Selected
    analysis: SelectAnalysis
    #: The places that the paper's criteria cover, top first.
    places: tuple[Place, ...]
    #: The relations of all others: after a change there, the view is computed again.
    elsewhere: tuple[Relation, ...]
    #: By column of the view, whether it is NULL in no row of this branch.
    never_null: tuple[bool, ...]
    node: exp.Select = field(compare=False)


@dataclass(frozen=True)
class Operator:
    """A set operator over branches, given by their numbers, or over further operators."""

    kind: type[exp.SetOperation]
    left: "Formula"
    right: "Formula"


Formula: TypeAlias = "Operator | int"


@dataclass(frozen=True)
class RuledView:
    """A view for which rules can be derived."""

    names: ViewNames
    text: str
    branches: tuple[Branch, ...]
    formula: Formula
    columns: tuple[Column, ...]
    #: The names of columns that tell its rows apart.
    key: tuple[str, ...]

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        """All relations that it reads, in the order of the text."""
        found = (
            relation
            for branch in self.branches
            for relation in (*(p.reference.relation for p in branch.places), *branch.elsewhere)
        )
        return tuple(dict.fromkeys(found))

    @property
    def query(self) -> exp.Expr:
        return self.branches[0].node.root()


def read_view(name: str, sql: str, catalog: Catalog) -> RuledView:
    """Reads the text; ViewRefused says what rules cannot keep, and how to write it."""
    text = Text(sql, "postgres")
    query = text.query()
    for quotient in query.find_all(exp.Div):
        # Read as DuckDB's, it would be written with a cast to DOUBLE.
        quotient.set("typed", True)
        quotient.set("safe", False)
    selects = selects_of(text, query, catalog)
    branches = tuple(map(_branch, selects))
    numbers = {id(branch.node): number for number, branch in enumerate(branches)}
    formula = _formula(text, query, numbers)
    if isinstance(formula, int):
        _refuse_duplicates(text, branches[0])
    names = [item.name for item in selects[0].items]
    for item in selects[0].items:
        if sum(item.name.lower() == each.lower() for each in names) > 1:
            what = f"two columns are called {item.name!r}"
            text.refuse(item.at, f"{what}; give one another name with AS")
    nulls = _never_null(formula, branches)
    columns = tuple(map(Column, names, nulls))
    return RuledView(
        ViewNames(name), sql, branches, formula, columns, _key(formula, branches, columns)
    )


def schemas_of(sql: str) -> tuple[str, ...]:
    """The schemas of the tables that a text names."""
    tables = Text(sql).query().find_all(exp.Table)
    return tuple(dict.fromkeys(node.db for node in tables if node.db))


def _branch(select: Selected) -> Branch:
    analysis = analysis_of(select)
    safeties = {each.reference: each for each in analysis.references}
    places = [
        Place(reference, node, None, safeties[reference.name])
        for reference, node in zip(select.references, select.places, strict=True)
    ]
    covered = [each for each in select.subqueries if _must_hold(each.node)]
    for subquery in covered:
        for reference, node in zip(subquery.references, subquery.places, strict=True):
            places.append(Place(reference, node, subquery, safeties[reference.name]))
    known = {id(place.node) for place in places}
    others = [each.relation for each in select.elsewhere]
    others += [r.relation for s in select.subqueries if s not in covered for r in s.references]
    # A condition that stands in every arm of an OR is read once, so its table may be there twice.
    there = {str(place.reference.relation): place.reference.relation for place in places}
    for node in select.node.find_all(exp.Table):
        name = f"{node.db}.{node.name}"
        others += [there[name]] if id(node) not in known and name in there else []
    facts = _facts(select)
    return Branch(
        select,
        analysis,
        tuple(places),
        tuple(dict.fromkeys(others)),
        tuple(facts.has_no_null(item.value) for item in select.items),
        select.node,
    )


def _must_hold(condition: exp.Expr) -> bool:
    """Whether a condition stands in WHERE and under nothing but AND."""
    above = condition.parent
    while isinstance(above, exp.And | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where)


def _facts(select: Selected) -> Facts:
    return inner_join(((r.name, r.relation) for r in select.references), select.conditions)


def _formula(text: Text, query: exp.Expr, numbers: dict[int, int]) -> Formula:
    query = query.unnest()
    if not isinstance(query, exp.SetOperation):
        return numbers[id(query)]
    if not query.args.get("distinct"):
        word = query.key.upper()
        text.refuse(query, f"rules keep views without duplicates; write {word} without ALL")
    left, right = (_formula(text, side, numbers) for side in (query.left, query.right))
    return Operator(type(query), left, right)


def _refuse_duplicates(text: Text, branch: Branch) -> None:
    """Section 4.3: rules cannot delete one of two equal rows."""
    duplicates = branch.analysis.duplicates
    if duplicates.possible:
        ways = "; or ".join(branch.analysis.suggestions)
        text.refuse(
            branch.node, f"{duplicates}. Rules keep views without duplicates. For example, {ways}"
        )


def _never_null(formula: Formula, branches: Collection[Branch]) -> tuple[bool, ...]:
    """By column, whether it is NULL in no row."""
    if isinstance(formula, int):
        return tuple(branches)[formula].never_null
    left, right = (_never_null(side, branches) for side in (formula.left, formula.right))
    if formula.kind is exp.Except:
        return left
    both = any if formula.kind is exp.Intersect else all
    return tuple(both(pair) for pair in zip(left, right, strict=True))


def _key(
    formula: Formula, branches: tuple[Branch, ...], columns: tuple[Column, ...]
) -> tuple[str, ...]:
    """A minimal key of a single SELECT, with as few columns that may be NULL as possible."""
    names = [column.name for column in columns]
    if not isinstance(formula, int):
        return tuple(names)
    select = branches[formula].select
    facts, values = _facts(select), dict(zip(names, select.items, strict=True))

    def shown(some: Collection[str]) -> set[str]:
        return {v.name for n in some if isinstance(v := values[n].value, ex.Column)}

    kept = list(names)
    for column in sorted(columns, key=lambda column: column.never_null):
        fewer = [name for name in kept if name != column.name]
        if fewer and facts.tell_rows_apart(shown(fewer)):
            kept = fewer
    return tuple(kept)
