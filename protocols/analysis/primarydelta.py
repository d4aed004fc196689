"""The primary delta: all rows that contain a changed row (Larson and Zhou, 4 and 6.1).

    1. On the way from the updated relation up to the root, its side is put on the left.
    2. On that way a full join becomes a left join and a right join an inner join: the rows that
       they would add are padded on the updated relation, and so not part of the delta.
    3. The relation is replaced by its change.

Only selections, inner joins and left joins remain on the way, with the change as their left input,
so the whole is as small as the change makes it.

A foreign key that references the updated relation makes it smaller still: no row references the new
rows yet, and none references the deleted ones any more. `simplified` is the paper's procedure
SimplifyTree, except that it requires the key's equality in the very join that it removes; it holds
where a reduced maintenance graph does (see `maintenancegraph`).
"""

from collections.abc import Iterable
from dataclasses import replace

from protocols.analysis.block import (
    Block,
    Conditions,
    Joined,
    JoinKind,
    Leaf,
    Selection,
    leaves,
    reject_padding,
)
from protocols.analysis.foreignkeys import joined_children
from protocols.errors import WrongUse
from protocols.views.catalog import ForeignKey, Relation

#: The kind of a join that preserves the same side after its sides are exchanged.
_EXCHANGED: dict[JoinKind, JoinKind] = {
    "inner": "inner",
    "left": "right",
    "right": "left",
    "full": "full",
}


def primary_delta(block: Block, updated: str) -> Block:
    """Builds the primary delta for an update of one alias, as an expression.

    For t in `(r ⟗ s) ⟕ (t ⟗ u)` it is `(Δt ⟕ u) ⋈ (r ⟗ s)`.
    """
    match block:
        case Leaf(aliases) if updated in aliases:
            return replace(block, updated=updated)
        case Selection(below, conditions):
            return Selection(primary_delta(below, updated), conditions)
        case Joined(kind, left, right, conditions):
            if updated not in left.aliases:
                left, right, kind = right, left, _EXCHANGED[kind]
            kept: JoinKind = "left" if kind in ("left", "full") else "inner"
            return Joined(kept, primary_delta(left, updated), right, conditions)
    raise WrongUse(f"there is no alias {updated!r} in {block}")


def simplified(delta: Block, foreign_keys: Iterable[ForeignKey]) -> Block | None:
    """The delta of rows that nothing references; None if it is always empty.

    With a foreign key from u to t, `(Δt ⟕ u) ⋈ r` is `Δt ⋈ r`, and `Δt ⋈ u` is empty.
    """
    return _Simplification(delta, tuple(foreign_keys)).of(delta)


class _Simplification:
    """Walks from the change up to the root and keeps the aliases that cannot find partners."""

    def __init__(self, delta: Block, foreign_keys: tuple[ForeignKey, ...]) -> None:
        self.foreign_keys = foreign_keys
        self.relations: dict[str, Relation] = {}
        for leaf in leaves(delta):
            self.relations.update(zip(leaf.aliases, leaf.relations or (), strict=False))
        self.updated = next(leaf.updated for leaf in leaves(delta) if leaf.updated is not None)
        self.absent: set[str] = set()

    def of(self, delta: Block) -> Block | None:
        match delta:
            case Leaf():
                return None if self._never_hold(delta.conditions) else delta
            case Selection(below, conditions):
                inner = self.of(below)
                if inner is None or self._never_hold(conditions):
                    return None
                return Selection(inner, conditions)
            case Joined(kind, left, right, conditions):
                inner = self.of(left)
                if inner is None or not self._never_hold(conditions):
                    return inner and Joined(kind, inner, right, conditions)
                self.absent |= set(right.aliases)
                return inner if kind == "left" else None
        raise WrongUse(
            f"{delta} has already been broken up into joins of single relations; simplify it before"
            " that step"
        )

    def _never_hold(self, conditions: Conditions) -> bool:
        """Whether they need a row that references the change, or one that found no partner."""
        if joined_children(self.updated, self.relations, conditions, self.foreign_keys):
            return True
        return reject_padding(conditions, self.absent)
