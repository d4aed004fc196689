"""Bound columns: those that a row of the view fixes (Ceri and Widom, 5.1, 6.1 and 6.3).

Two combinations of rows that satisfy the conditions and differ in a bound column give different
rows of the view. A column is bound

    if it is shown                                      (Definition 5.1, 1)
    if it equals a constant                             (5.1, 2; 6.1, 2)
    if it equals a bound column                         (5.1, 3a; 6.1, 1 and 3a; 6.3 for IN)
    if a key of its relation is bound                   (5.1, 3b; 6.1, 3b)

The columns of a subquery that are *bound by correlation* follow in the same way, starting from the
bound columns around it. In both cases the columns of a key are assumed never to be NULL here; the
paper does not say what happens if two passengers have no frequent flier number.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocols.algebra import expressions as ex
from protocols.analysis.references import Selected, Subquery, TableReference
from protocols.analysis.wording import condition_text, listed


@dataclass(frozen=True)
class BoundColumn:
    """A column, and the reason why it is bound."""

    column: str
    because: str

    def __str__(self) -> str:
        return f"{self.column} is bound: {self.because}"


def bound_columns(select: Selected) -> tuple[BoundColumn, ...]:
    """Finds B(V), in the order in which its columns are found."""
    found = dict.fromkeys(select.shown, "it is shown")
    _grow(found, select.references, select.conditions)
    return tuple(BoundColumn(*each) for each in found.items())


def correlated_columns(subquery: Subquery, bound: Iterable[BoundColumn]) -> tuple[BoundColumn, ...]:
    """Finds C(V), the columns of a subquery that the bound columns around it bind."""
    outer = {each.column: each.because for each in bound}
    found = dict(outer)
    _grow(found, subquery.references, subquery.conditions + subquery.compares)
    return tuple(BoundColumn(c, why) for c, why in found.items() if c not in outer)


def bound_key(reference: TableReference, bound: Iterable[BoundColumn]) -> tuple[str, ...] | None:
    """The key of a relation that is bound; of several, the one that binds the others."""
    order = {each.column: place for place, each in enumerate(bound)}
    keys = (key for key in reference.keys if order.keys() >= set(key))
    return min(keys, key=lambda key: max(order[column] for column in key), default=None)


def _grow(
    found: dict[str, str],
    references: tuple[TableReference, ...],
    conditions: tuple[ex.Condition, ...],
) -> None:
    """Adds columns of these references until nothing new is bound."""
    own = {column for reference in references for column in reference.columns}
    before = -1
    while len(found) > before:
        before = len(found)
        for condition in conditions:
            _bind_equal(found, condition, own)
        for reference in references:
            key = next((key for key in reference.keys if found.keys() >= set(key)), None)
            for column in reference.columns if key else ():
                found.setdefault(column, f"{reference.name}'s key {listed(key or ())} is bound")


def _bind_equal(found: dict[str, str], condition: ex.Condition, own: set[str]) -> None:
    match condition:
        case ex.Comparison(ex.Column(one), "=", ex.Column(other)):
            for column, partner in ((one, other), (other, one)):
                if partner in found and column in own:
                    found.setdefault(column, f"it equals {partner}")
        case ex.Comparison(ex.Column(column), "=", value) | ex.Comparison(
            value, "=", ex.Column(column)
        ) if column in own and not ex.columns_of(value):
            found.setdefault(column, f"it equals a constant in {condition_text(condition)}")
