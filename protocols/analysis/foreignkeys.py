"""Foreign keys, and the joins on them.

They hold within one source only. Across sources a parent may arrive after its child, so nothing
may be concluded there (RI does not hold on what has been delivered).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protocols.algebra import expressions as ex
from protocols.errors import WrongUse
from protocols.views.catalog import Relation


@dataclass(frozen=True)
class ForeignKey:
    """Rows of the child name a row of the parent by its key."""

    child: Relation
    columns: tuple[str, ...]
    parent: Relation
    parent_columns: tuple[str, ...]
    #: Whether none of the columns is ever NULL, so that every child has its parent.
    mandatory: bool = False

    def __post_init__(self) -> None:
        if self.child.source != self.parent.source:
            self._refuse("child and parent are at different sources, where it cannot be relied on")
        if len(self.columns) != len(self.parent_columns):
            self._refuse("it needs one column of the parent for each column of the child")
        for relation, columns in ((self.child, self.columns), (self.parent, self.parent_columns)):
            for column in columns:
                if column not in relation.column_names:
                    known = ", ".join(relation.column_names)
                    self._refuse(f"{relation} has no column {column!r}; it has: {known}")
        if not self.parent.key or set(self.parent_columns) != set(self.parent.key):
            key = f"({', '.join(self.parent.key)})" if self.parent.key else "not declared"
            self._refuse(f"it has to name the key of {self.parent}, which is {key}")

    def __str__(self) -> str:
        ours, theirs = ", ".join(self.columns), ", ".join(self.parent_columns)
        return f"{self.child}({ours}) -> {self.parent}({theirs})"

    def _refuse(self, reason: str) -> None:
        raise WrongUse(f"foreign key {self}: {reason}")

    def equalities(self, child: str, parent: str) -> frozenset[frozenset[str]]:
        """The pairs of columns that are equal when these two aliases are joined on it."""
        pairs = zip(self.columns, self.parent_columns, strict=True)
        return frozenset(frozenset({f"{child}.{a}", f"{parent}.{b}"}) for a, b in pairs)

    def joins(self, child: str, parent: str, conditions: Iterable[ex.Condition]) -> bool:
        """Whether the conditions join these two aliases on it."""
        return self.equalities(child, parent) <= equal_columns(conditions)


def joined_children(
    parent: str,
    relations: Mapping[str, Relation],
    conditions: Iterable[ex.Condition],
    foreign_keys: Iterable[ForeignKey],
) -> frozenset[str]:
    """The aliases that are joined with this one on a foreign key that references its relation."""
    known = tuple(conditions)
    return frozenset(
        child
        for key in foreign_keys
        for child, relation in relations.items()
        if child != parent
        and relation == key.child
        and relations.get(parent) == key.parent
        and key.joins(child, parent, known)
    )


def equal_columns(conditions: Iterable[ex.Condition]) -> frozenset[frozenset[str]]:
    """The pairs of columns that the conditions set equal."""
    return frozenset(pair for each in conditions if (pair := equality(each)) is not None)


def equality(condition: ex.Condition) -> frozenset[str] | None:
    """The two columns that a condition sets equal, if that is all it does."""
    match condition:
        case ex.Comparison(ex.Column(left), "=", ex.Column(right)):
            return frozenset({left, right})
    return None
