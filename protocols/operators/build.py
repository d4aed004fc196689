"""From the nodes of a tree to operators at work."""

from collections.abc import Callable

from protocols.operators.groups import Group
from protocols.operators.joins import Join
from protocols.operators.linear import Compute, Filter, Multiply, Union
from protocols.operators.operator import Operator
from protocols.views import tree
from protocols.views.view import View


def build(node: tree.Node, core: Callable[[View], Operator]) -> Operator:
    """The operators of a node and of everything below it; `core` makes those of the leaves."""
    below = [build(each, core) for each in tree.inputs(node)]
    match node:
        case tree.Core():
            return core(node.view)
        case tree.Compute():
            return Compute(node, *below)
        case tree.Filter():
            return Filter(node, *below)
        case tree.Multiply():
            return Multiply(node, *below)
        case tree.Union():
            return Union(node, below)
        case tree.Join():
            return Join(node, *below)
        case tree.Group():
            return Group(node, *below)
