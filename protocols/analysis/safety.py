"""Duplicates, and safe references: those whose updates can be followed change by change.

A reference is *safe* if one of its keys is bound (Ceri and Widom, Definitions 5.4 and 6.3): then a
row of the view comes from one of its rows only, so it goes when that row goes. In a negative
subquery a row that comes makes rows of the view go, and the other way round:

    I-safe    (7.1) the subquery mentions nothing outside but bound columns: if it excludes a row,
              it excludes all that look alike in the view
    DU-safe   (7.3) I-safe, and a key is bound by correlation: the row that goes was the only one
              that excluded rows

Two things are added to the paper. NOT IN and … ALL become true when the last row goes, and unknown
by a NULL; so for DU-safety the values that they compare must never be NULL. And after a deletion
it must always be checked whether another row still excludes (`protocols/rules`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.algebra.expressions import columns_of
from protocols.analysis.boundcolumns import (
    BoundColumn,
    bound_columns,
    bound_key,
    correlated_columns,
)
from protocols.analysis.dependencies import inner_join
from protocols.analysis.dialogue import lacking_least, suggestions
from protocols.analysis.references import Selected, Subquery, TableReference, selects_of
from protocols.analysis.wording import listed, value_text
from protocols.views.binding.statement import Text
from protocols.views.catalog import Catalog
from protocols.views.dialects import Dialect

#: How a change is followed: from the change alone, with a look at the rows of the view or of the
#: relations, or by computing the whole view again.
Way: TypeAlias = Literal["alone", "with a look", "anew"]
Place: TypeAlias = Literal["top", "positive", "negative", "elsewhere"]


@dataclass(frozen=True)
class Duplicates:
    """Whether rows of a SELECT without DISTINCT can repeat (Theorem 5.3)."""

    possible: bool
    #: The references without a bound key.
    unbound: tuple[str, ...]

    def __str__(self) -> str:
        if not self.possible:
            return "no row occurs twice"
        return (
            f"rows may occur twice: no key of {listed(self.unbound)} is bound; DISTINCT is needed"
        )


@dataclass(frozen=True)
class Safety:
    """The verdict on one reference."""

    reference: str
    relation: str
    place: Place
    #: For a negative reference: I-safe and DU-safe; for the others both are the same.
    insert_safe: bool
    delete_safe: bool
    inserted: Way
    deleted: Way
    updated: Way
    because: str

    def __str__(self) -> str:
        return f"{self.reference} is {self._verdict}: {self.because}"

    @property
    def _verdict(self) -> str:
        if self.place != "negative":
            return "safe" if self.insert_safe else "not safe"
        if self.delete_safe:
            return "DU-safe"
        return "I-safe, but not DU-safe" if self.insert_safe else "not I-safe"


@dataclass(frozen=True)
class SelectAnalysis:
    """The results for one SELECT of a view."""

    bound: tuple[BoundColumn, ...]
    #: For each subquery, the columns that are bound by correlation.
    correlated: tuple[tuple[BoundColumn, ...], ...]
    duplicates: Duplicates
    references: tuple[Safety, ...]
    #: Changes of the text that would make it cheaper to follow.
    suggestions: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, (self.duplicates, *self.references)))


def analysed(
    sql: str, catalog: Catalog, dialect: Dialect | None = None
) -> tuple[SelectAnalysis, ...]:
    """Analyses each SELECT of a view; ViewRefused names the part that the criteria do not cover."""
    text = Text(sql, dialect)
    return tuple(analysis_of(select) for select in selects_of(text, text.query(), catalog))


def analysis_of(select: Selected) -> SelectAnalysis:
    """Analyses one SELECT."""
    bound = bound_columns(select)
    correlated = tuple(correlated_columns(each, bound) for each in select.subqueries)
    safeties = [_by_key(reference, "top", bound) for reference in select.references]
    for subquery, columns in zip(select.subqueries, correlated, strict=True):
        for reference in subquery.references:
            if subquery.kind == "positive":
                safeties.append(_by_key(reference, "positive", columns))
            else:
                safeties.append(_negative(reference, subquery, select, bound, columns))
    safeties += map(_elsewhere, select.elsewhere)
    duplicates, changes = _duplicates(select, bound), tuple(suggestions(select, bound))
    return SelectAnalysis(bound, correlated, duplicates, tuple(safeties), changes)


def _duplicates(select: Selected, bound: tuple[BoundColumn, ...]) -> Duplicates:
    unbound = tuple(each.name for each in select.references if bound_key(each, bound) is None)
    return Duplicates(bool(unbound) and not select.distinct, unbound)


def _by_key(reference: TableReference, place: Place, bound: tuple[BoundColumn, ...]) -> Safety:
    """The verdict on a reference at the top or in a positive subquery."""
    key = bound_key(reference, bound)
    if key is None:
        return _safety(reference, place, (False, False), _unbound(reference, bound))
    how = "bound" if place == "top" else "bound by correlation"
    return _safety(reference, place, (True, True), f"its key {_columns(key)} is {how}")


def _negative(
    reference: TableReference,
    subquery: Subquery,
    select: Selected,
    bound: tuple[BoundColumn, ...],
    correlated: tuple[BoundColumn, ...],
) -> Safety:
    own = {column for each in subquery.references for column in each.columns}
    conditions = subquery.conditions + subquery.compares
    mentioned = {column for each in conditions for column in columns_of(each)}
    free = sorted(mentioned - own - {each.column for each in bound})
    if free:
        why = f"its subquery mentions {listed(free)}, which is not bound; show it"
        return _safety(reference, "negative", (False, False), why)
    key = bound_key(reference, correlated)
    if key is None:
        return _safety(reference, "negative", (True, False), _unbound(reference, correlated))
    nullable = _nullable(subquery, select)
    if nullable:
        why = f"{listed(nullable)} may be NULL, and then the comparison is unknown"
        return _safety(reference, "negative", (True, False), why)
    why = f"its key {_columns(key)} is bound by correlation"
    return _safety(reference, "negative", (True, True), why)


def _elsewhere(reference: TableReference) -> Safety:
    why = (
        "its subquery is not a condition by itself, or has more than inner joins and a WHERE"
        " without subqueries"
    )
    return _safety(reference, "elsewhere", (False, False), why)


def _safety(
    reference: TableReference, place: Place, safe: tuple[bool, bool], because: str
) -> Safety:
    """A verdict, with how rules follow changes under it (`protocols/rules`)."""
    insert_safe, delete_safe = safe
    otherwise: Way = "anew" if place == "elsewhere" else "with a look"
    inserted: Way = "alone" if insert_safe else otherwise
    # What a negative subquery excluded may be excluded by a row that came with the deletion.
    deleted: Way = "alone" if delete_safe and place != "negative" else otherwise
    updated: Way = "alone" if inserted == deleted == "alone" else otherwise
    name, relation = reference.name, str(reference.relation)
    return Safety(
        name, relation, place, insert_safe, delete_safe, inserted, deleted, updated, because
    )


def _unbound(reference: TableReference, bound: Collection[BoundColumn]) -> str:
    """The reason why no key is bound, and the columns that the nearest key lacks."""
    if not reference.keys:
        return f"no key of {reference.relation} is known"
    missing = lacking_least(reference, {each.column for each in bound})
    keys = ", ".join(_columns(key) for key in reference.keys)
    return f"none of its keys is bound ({keys}); with {listed(missing)} one would be"


def _columns(key: tuple[str, ...]) -> str:
    """The columns of a key without the name of the reference."""
    names = [column.rpartition(".")[2] for column in key]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _nullable(subquery: Subquery, select: Selected) -> list[str]:
    """The values that a subquery compares and that no key or condition keeps from being NULL."""
    relations = ((r.name, r.relation) for r in (*select.references, *subquery.references))
    known = inner_join(relations, (*select.conditions, *subquery.conditions))
    return sorted(value_text(each) for each in subquery.compared if not known.has_no_null(each))
