"""Regions: inner joins and conditions that belong together, however they were written."""

from collections.abc import Sequence
from functools import reduce

from protocols.algebra.expressions import Condition, conjunction, conjuncts
from protocols.views import tree


def region(node: tree.Node) -> tuple[list[tree.Node], list[Condition]]:
    """The parts of a region and its conditions, in the order of the text: ON before WHERE."""
    match node:
        case tree.Filter():
            parts, tests = region(node.input)
            return parts, [*tests, *conjuncts(node.condition)]
        case tree.Join(kind="inner"):
            left, right = region(node.left), region(node.right)
            return [*left[0], *right[0]], [*left[1], *right[1], *node.conditions]
    return [node], []


def joined(parts: Sequence[tree.Node], tests: Sequence[Condition]) -> tree.Node:
    """The inverse of `region`: joins the parts from left to right, then applies all conditions."""
    return filtered(reduce(lambda left, right: tree.Join("inner", left, right, ()), parts), tests)


def filtered(node: tree.Node, tests: Sequence[Condition]) -> tree.Node:
    """The node under all these conditions."""
    test = conjunction(tuple(tests))
    return node if test is None else tree.Filter(node, test)
