"""Joins on foreign keys.

Only those within one source count. Across sources a parent may arrive after its child, so nothing
may be concluded there (RI does not hold on what has been delivered).
"""

from collections.abc import Iterable, Mapping

from protocols.algebra import expressions as ex
from protocols.views.catalog import ForeignKey, Relation


def equalities(key: ForeignKey, child: str, parent: str) -> frozenset[frozenset[str]]:
    """The pairs of columns that are equal when these two aliases are joined on the key."""
    pairs = zip(key.columns, key.parent_columns, strict=True)
    return frozenset(frozenset({f"{child}.{a}", f"{parent}.{b}"}) for a, b in pairs)


def joined_children(
    parent: str,
    relations: Mapping[str, Relation],
    conditions: Iterable[ex.Condition],
    foreign_keys: Iterable[ForeignKey],
) -> frozenset[str]:
    """The aliases joined with this one on a foreign key that references its relation."""
    equal = equal_columns(conditions)
    return frozenset(
        child
        for key in foreign_keys
        if key.within_source
        for child, relation in relations.items()
        if child != parent
        and relation == key.child
        and relations.get(parent) == key.parent
        and equalities(key, child, parent) <= equal
    )


def equal_columns(conditions: Iterable[ex.Condition]) -> frozenset[frozenset[str]]:
    """The pairs of columns that the conditions set equal."""
    return frozenset(pair for each in conditions if (pair := equality(each)) is not None)


def equality(condition: ex.Condition) -> frozenset[str] | None:
    """The two columns that a condition sets equal; None if it does anything else."""
    match condition:
        case ex.Comparison(ex.Column(left), "=", ex.Column(right)):
            return frozenset({left, right})
    return None
