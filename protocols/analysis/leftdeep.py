"""The primary delta joined leaf by leaf: a left-deep tree (Larson and Zhou, 4.1).

Only the change is small, so no two leaves should be joined with each other first. The top of a
right operand is pulled into the main path until every right operand is one leaf. With e the main
path, p the condition of the join, and p mentioning a but not b:

    e ⋈ (a ⋈ b)  =  (e ⋈ a) ⋈ b         e ⟕ (a ⟕ b)  =  (e ⟕ a) ⟕ b
    e ⋈ (a ⟕ b)  =  (e ⋈ a) ⟕ b         e ⟕ (a ⋈ b)  =  λ[a unless b]((e ⟕ a) ⟕ b)
    e ⋈ (a ⟗ b)  =  (e ⋈ a) ⟕ b         e ⟕ (a ⟗ b)  =  (e ⟕ a) ⟕ b
    e ⋈ (a ⟖ b)  =  (e ⋈ a) ⋈ b         e ⟕ (a ⟖ b)  =  λ[a unless b]((e ⟕ a) ⟕ b)

and a selection on the right goes into p. If p mentions a and b, it rejects rows that lack either,
so the join of a and b is an inner one; the conditions on b move up to the second join.

λ[a unless b] pads a where b is padded: if a row of e has partners in a, but none of these has one
in b, it has to come out once and padded on both. The paper removes the duplicates that λ makes.
That is not enough: if one partner has a partner in b and another does not, e's row comes out joined
*and* padded, and the padded one is subsumed. So λ here also removes subsumed rows, among the rows
that come from one row of e.
"""

from protocols.algebra import expressions as ex
from protocols.analysis.block import (
    Block,
    Conditions,
    Joined,
    JoinKind,
    NullIf,
    Selection,
    aliases_in,
    reject_padding,
)

#: A join of a and b, met from the side of a: the kind of join that remains for b.
_FROM_THE_LEFT: dict[JoinKind, JoinKind] = {
    "inner": "inner",
    "left": "left",
    "right": "inner",
    "full": "left",
}
_FROM_THE_RIGHT: dict[JoinKind, JoinKind] = {
    "inner": "inner",
    "left": "inner",
    "right": "left",
    "full": "left",
}


def left_deep(delta: Block) -> Block:
    """Rewrites the delta with one leaf to the right of every join, as far as conditions allow.

    `(Δt ⟕ u) ⋈ (r ⟗ s)` becomes `((Δt ⟕ u) ⋈ r) ⟕ s`. A right operand stays whole if no condition
    leads to one of its sides alone, or none leads from there to the other.
    """
    match delta:
        case Selection(below, conditions):
            return Selection(left_deep(below), conditions)
        case Joined(kind, left, right, conditions):
            return _pulled(kind, left_deep(left), right, conditions)
        case _:
            return delta


def _pulled(kind: JoinKind, path: Block, right: Block, conditions: Conditions) -> Block:
    """The main path joined with a right operand, taken apart if possible."""
    match right:
        case Selection(below, more):
            return _pulled(kind, path, below, conditions + more)
        case Joined(below_kind, left, other, between):
            then = _FROM_THE_LEFT[below_kind]
            found = _two_joins(kind, path, left, (then, other), between, conditions)
            if found is None:
                then = _FROM_THE_RIGHT[below_kind]
                found = _two_joins(kind, path, other, (then, left), between, conditions)
            return found or Joined(kind, path, right, conditions)
    return Joined(kind, path, right, conditions)


def _two_joins(
    kind: JoinKind,
    path: Block,
    a: Block,
    second: tuple[JoinKind, Block],
    between: Conditions,
    conditions: Conditions,
) -> Block | None:
    """The main path joined with a and then with b; None if the conditions do not allow that."""
    then, b = second
    of_b = tuple(each for each in conditions if _speaks_of(each, b))
    of_a = tuple(each for each in conditions if each not in of_b)
    if of_b:
        then = "inner"
    reached = any(_speaks_of(each, a) for each in of_a)
    if not reached or (kind == "left" and not reject_padding(between + of_b, a.aliases)):
        return None
    one = _pulled(kind, path, a, of_a)
    if kind == "inner":
        return _pulled(then, one, b, between + of_b)
    both = _pulled("left", one, b, between + of_b)
    return NullIf(both, b.aliases, a.aliases) if then == "inner" else both


def _speaks_of(condition: ex.Condition, block: Block) -> bool:
    return not aliases_in(condition).isdisjoint(block.aliases)
