"""The statements that would keep a view in a single database (Ceri and Widom, 5.4, 6.2 and 7.2).

viewsweep follows updates over many sources and does not run these. They show the savings of a safe
reference: a statement over a few changed rows instead of one over everything. For a reference T:

    inserted_T, deleted_T, old_updated_T, new_updated_T    the rows that a transaction changed
    old_T                                                  all rows as they were before it
    inserted_V                                             the rows it has added to the view so far

All deletions from the view run before all insertions. Rows are compared with IN, as in the paper,
so a view whose columns can be NULL would need another comparison.

Two rules for negative references are not the paper's. After a deletion that is not DU-safe, Section
7.2 inserts all rows that the deleted rows excluded; but other rows may still exclude them. And
after an update that changes nothing relevant, its two rules delete rows that are not there, and
then insert them. In both cases the whole condition is tested again here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot import condition, exp

from protocols.analysis.references import Selected, Subquery, TableReference
from protocols.analysis.safety import Safety, analysis_of
from protocols.views.catalog import Relation

Event: TypeAlias = Literal["inserted", "deleted", "old_updated", "new_updated"]
EVENTS: tuple[Event, ...] = ("inserted", "deleted", "old_updated", "new_updated")


@dataclass(frozen=True)
class Rule:
    """The statement to run on the view when rows of one reference have changed."""

    reference: str
    relation: Relation
    event: Event
    action: Literal["insert", "delete", "rematerialize"]
    statement: str


def rules_of(select: Selected, view: str) -> tuple[Rule, ...]:
    """The rules of all references; first those that take rows out of the view."""
    safeties = {safety.reference: safety for safety in analysis_of(select).references}
    writing = _Writing(select, view)
    rules = []
    for reference, place, subquery in _covered(select):
        safety = safeties[reference.name]
        for event in EVENTS:
            if subquery is not None and subquery.kind == "negative":
                rules.append(writing.negative(reference, place, subquery, event, safety))
            else:
                rules.append(writing.positive(reference, place, event, safety))
    rules += [writing.anew(each, event) for each in select.elsewhere for event in EVENTS]
    return tuple(sorted(rules, key=lambda rule: rule.action == "insert"))


def _covered(
    select: Selected,
) -> Iterator[tuple[TableReference, exp.Expr, Subquery | None]]:
    for reference, place in zip(select.references, select.places, strict=True):
        yield reference, place, None
    for subquery in select.subqueries:
        for reference, place in zip(subquery.references, subquery.places, strict=True):
            yield reference, place, subquery


class _Writing:
    """Writes statements over copies of the view's SELECT."""

    def __init__(self, select: Selected, view: str) -> None:
        self.select = select
        self.view = view
        items = select.node.expressions
        self.columns = _tuple([item.alias_or_name for item in items])
        self.shown = _tuple([item.unalias().sql("duckdb") for item in items])

    def positive(
        self, reference: TableReference, place: exp.Expr, event: Event, safety: Safety
    ) -> Rule:
        """At the top or in a positive subquery: new rows add to the view, old rows take from it."""
        if event in ("inserted", "new_updated"):
            if event == "new_updated" and not safety.insert_safe:
                return self.anew(reference, event)
            change = self._over(place, event)
            return self._insert(reference, event, change, look=not safety.insert_safe)
        if not safety.delete_safe:
            return self.anew(reference, event)
        return self._delete(reference, event, self._over(place, event, old=self._tables()))

    def negative(
        self,
        reference: TableReference,
        place: exp.Expr,
        subquery: Subquery,
        event: Event,
        safety: Safety,
    ) -> Rule:
        """In a negative subquery: new rows take from the view, old rows add to it."""
        if event in ("inserted", "new_updated"):
            if not safety.insert_safe:
                return self.anew(reference, event)
            excluded = self._over(place, event, within=subquery)
            return self._delete(reference, event, excluded)
        if event == "old_updated" and safety.updated == "anew":
            return self.anew(reference, event)
        before = [each for each in subquery.places if each is not place]
        brought = self._over(place, event, old=before, within=subquery)
        if event == "old_updated" or not safety.delete_safe:
            _restrict(brought, subquery.node.copy())
        return self._insert(reference, event, brought, look=not safety.delete_safe)

    def anew(self, reference: TableReference, event: Event) -> Rule:
        """Computes the whole view again."""
        again = self.select.node.sql("duckdb")
        statement = f"DELETE FROM {self.view}; INSERT INTO {self.view} {again}"
        return Rule(reference.name, reference.relation, event, "rematerialize", statement)

    def _insert(
        self, reference: TableReference, event: Event, rows: exp.Select, look: bool
    ) -> Rule:
        there = self.view if look else f"inserted_{self.view}"
        _restrict(rows, condition(f"{self.shown} NOT IN (SELECT * FROM {there})", dialect="duckdb"))
        statement = f"INSERT INTO {self.view} {rows.sql('duckdb')}"
        return Rule(reference.name, reference.relation, event, "insert", statement)

    def _delete(self, reference: TableReference, event: Event, rows: exp.Select) -> Rule:
        statement = f"DELETE FROM {self.view} WHERE {self.columns} IN ({rows.sql('duckdb')})"
        return Rule(reference.name, reference.relation, event, "delete", statement)

    def _tables(self) -> list[exp.Table]:
        return list(self.select.node.find_all(exp.Table))

    def _over(
        self,
        place: exp.Expr,
        event: Event,
        old: Sequence[exp.Expr] = (),
        within: Subquery | None = None,
    ) -> exp.Select:
        """The SELECT with changed rows in one place, and others as they were before.

        If `within` is a negative subquery, its condition is negated.
        """
        nodes = list(self.select.node.walk())
        select = self.select.node.copy()
        copies = dict(zip(map(id, nodes), select.walk(), strict=True))
        for table in self._tables():
            prefix = event if table is place else "old" if _is_among(table, old) else ""
            _rename(copies[id(table)], prefix)
        if within is not None:
            negative = copies[id(within.node)]
            negative.replace(_turned(negative.copy()))
        return select


def _restrict(select: exp.Select, further: exp.Expr) -> None:
    """Adds a condition to WHERE."""
    where = select.args.get("where")
    if where is None:
        select.set("where", exp.Where(this=further))
    else:
        there = exp.paren(where.this) if isinstance(where.this, exp.Or) else where.this
        select.set("where", exp.Where(this=exp.And(this=there, expression=further)))


def _turned(negative: exp.Expr) -> exp.Expr:
    """The condition that a negative condition is not true: it may also be unknown."""
    if isinstance(negative, exp.Not) and isinstance(negative.this, exp.Exists):
        return negative.this
    return exp.not_(exp.Is(this=exp.paren(negative), expression=exp.true()))


def _is_among(table: exp.Expr, tables: Sequence[exp.Expr]) -> bool:
    return any(table is each for each in tables)


def _rename(table: exp.Expr, prefix: str) -> None:
    """Puts another table under the same alias."""
    assert isinstance(table, exp.Table)
    if prefix:
        name = table.alias_or_name
        table.set("this", exp.to_identifier(f"{prefix}_{table.name}"))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))


def _tuple(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})" if len(columns) > 1 else columns[0]
