"""Formulas of relational algebra for the nodes of a tree, over the aliases below them.

    δ(s)                DISTINCT
    γ(s ⟕ t)            groups
    (s ⊎ u)             UNION ALL
    (s ∩ u)  (s - u)    INTERSECT, EXCEPT; (s ∩ all u), (s - all u)
    (s ⋉ t)  (s ▷ t)    EXISTS, NOT EXISTS
    σ[t](s)             rows of s chosen by a subquery over t, or shown with its value

Conditions and columns are left out.
"""

from collections.abc import Mapping, Sequence

from protocols.views.catalog import Relation
from protocols.views.tree import (
    Compute,
    Constants,
    Core,
    Filter,
    Group,
    Join,
    Multiply,
    Node,
    SetOperation,
    Union,
    Window,
    inputs,
    nodes,
)

SYMBOLS: Mapping[str, str] = {
    "inner": "⋈",
    "left": "⟕",
    "right": "⟖",
    "full": "⟗",
    "semi": "⋉",
    "anti": "▷",
}

_SET_OPERATIONS: Mapping[SetOperation, str] = {
    "intersect": "∩",
    "intersect all": "∩ all",
    "except": "-",
    "except all": "- all",
}


def formula(node: Node) -> str:
    """The formula of a node, in brackets if an operator may follow it."""
    match node:
        case Core(view):
            return _in_brackets([atom.alias for atom in view.atoms], "⋈")
        case Constants():
            return "VALUES"
        case Filter(below) | Compute(below) | Multiply(below):
            return formula(below)
        case Union(sides):
            return _in_brackets([formula(side) for side in sides], "⊎")
        case Group(both, sides_of=str(operation)):
            return _in_brackets(list(map(formula, inputs(both))), _SET_OPERATIONS[operation])
        case Window(below):
            return f"ω({_bare(formula(below))})"
        case Group(below, _, aggregates):
            return f"{'γ' if aggregates else 'δ'}({_bare(formula(below))})"
        case Join(kind, left, right) if not node.of_subquery:
            return _in_brackets([formula(left), formula(right)], SYMBOLS[kind])
        case Join():
            return _with_subqueries(node)


def _with_subqueries(node: Node) -> str:
    """Gives each subquery of a node one name, even one that is counted in two ways."""
    asked: list[Node] = []
    while isinstance(node, Filter | Compute) or (isinstance(node, Join) and node.of_subquery):
        if isinstance(node, Join):
            asked.append(node.right)
        node = node.left if isinstance(node, Join) else node.input
    names: dict[tuple[Relation, ...], str] = {}
    for subquery in reversed(asked):
        names.setdefault(_relations(subquery), _without_group(subquery))
    return f"σ[{', '.join(names.values())}]({_bare(formula(node))})"


def _relations(node: Node) -> tuple[Relation, ...]:
    views = (each.view for each in nodes(node) if isinstance(each, Core))
    return tuple(atom.relation for view in views for atom in view.atoms)


def _without_group(node: Node) -> str:
    """Drops the group of a subquery, since a subquery in an expression is always counted."""
    while isinstance(node, Filter | Compute):
        node = node.input
    return _bare(formula(node.input if isinstance(node, Group) else node))


def _in_brackets(parts: Sequence[str], symbol: str) -> str:
    return parts[0] if len(parts) == 1 else f"({f' {symbol} '.join(parts)})"


def _bare(whole: str) -> str:
    return whole[1:-1] if whole.startswith("(") else whole
