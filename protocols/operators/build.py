"""Builds the operators of a tree from its nodes."""

from collections.abc import Callable
from functools import partial

from protocols.operators.groups import GroupOperator
from protocols.operators.joins import JoinOperator
from protocols.operators.linear import (
    ComputeOperator,
    ConstantsOperator,
    FilterOperator,
    MultiplyOperator,
    UnionOperator,
)
from protocols.operators.memory import Memories, Memory
from protocols.operators.operator import Operator
from protocols.operators.windows import WindowOperator
from protocols.views import tree
from protocols.views.view import View


def build(
    root: tree.Node,
    core: Callable[[View], Operator],
    memories: Memories | None = None,
    allows_too_few: bool = False,
) -> Operator:
    """Builds the operators of a tree; `core` makes those of the leaves.

    They refuse to count rows below zero, unless they belong to a control (see `counting.py`).
    """
    places = {id(node): place for place, node in enumerate(tree.nodes(root))}
    kept = Memories() if memories is None else memories

    def memory(node: tree.Node, side: int, by: list[str]) -> Memory:
        return kept.of(places[id(node)], side, by)

    return _built(root, core, memory, allows_too_few)


def _built(
    node: tree.Node,
    core: Callable[[View], Operator],
    memory: Callable[[tree.Node, int, list[str]], Memory],
    allows_too_few: bool,
    above: tree.Node | None = None,
) -> Operator:
    below = [_built(each, core, memory, allows_too_few, node) for each in tree.inputs(node)]
    match node:
        case tree.Core():
            return core(node.view)
        case tree.Constants():
            return ConstantsOperator(node)
        case tree.Compute():
            return ComputeOperator(node, *below)
        case tree.Filter():
            return FilterOperator(node, *below)
        case tree.Multiply():
            return MultiplyOperator(node, *below)
        case tree.Union():
            return UnionOperator(node, below)
        case tree.Join():
            left, right = below
            adds_up = not _adds_up(above)
            return JoinOperator(node, left, right, partial(memory, node), adds_up, allows_too_few)
        case tree.Group():
            return GroupOperator(node, below[0], partial(memory, node, 0), allows_too_few)
        case tree.Window():
            return WindowOperator(node, below[0], allows_too_few)


def _adds_up(above: tree.Node | None) -> bool:
    """Whether an operator adds up equal rows itself, and computes nothing before that.

    A row that never existed cancels out, and a computation on it may have no value.
    """
    match above:
        case tree.Multiply() | tree.Union():
            return True
        case tree.Compute():
            return above.is_plain
        case _:
            return False
