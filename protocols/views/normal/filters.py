"""Moves conditions down as far as they may go.

A condition goes below every node that leaves the columns it reads unchanged: below a Compute if it
reads no computed column, below a Group if it reads only keys, to the side of a join that has its
columns and is never padded. On its way it is tested on padded rows: a condition that cannot be true
where the columns of one side are all NULL makes an outer join an inner one on that side (section 2
of the paper on outer joins: join simplification).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from protocols.algebra.expressions import (
    Column,
    Condition,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    in_condition,
)
from protocols.algebra.nullrejection import rejects_null
from protocols.views import tree
from protocols.views.normal.regions import filtered, joined, region


def pushed(node: tree.Node, tests: Sequence[Condition] = ()) -> tree.Node:
    """The node under these conditions, each as far down as it may go."""
    match node:
        case tree.Filter() | tree.Join(kind="inner"):
            parts, own = region(node)
            return _region(parts, [*own, *tests])
        case tree.Compute():
            values = {name: value for name, value, _ in node.values}
            # Each value is computed once: a condition on a computed value stays above.
            passed = [name for name, value in values.items() if isinstance(value, Column | Literal)]
            inside, above = _apart(tests, passed)
            below = [in_condition(test, lambda column: values[column.name]) for test in inside]
            return filtered(replace(node, input=pushed(node.input, below)), above)
        case tree.Multiply():
            return replace(node, input=pushed(node.input, tests))
        case tree.Union():
            return tree.Union(tuple(pushed(each, tests) for each in node.inputs))
        case tree.Group():
            below, above = _apart(tests, node.keys)
            return filtered(replace(node, input=pushed(node.input, below)), above)
        case tree.Window():
            below, above = _apart(tests, node.partition)
            return filtered(replace(node, input=pushed(node.input, below)), above)
        case tree.Join():
            return _join(node, tests)
        case tree.Core() | tree.Constants():
            return filtered(node, tests)


def _region(parts: Sequence[tree.Node], tests: list[Condition]) -> tree.Node:
    """Keeps conditions of relations in their order, for `innerjoins.py`; pushes others down."""
    done: list[tree.Node] = []
    for part in parts:
        if not isinstance(part, tree.Core):
            below, tests = _apart(tests, part.columns)
            part = pushed(part, below)
        done.append(part)
    return joined(done, tests)


def _join(node: tree.Join, tests: Sequence[Condition]) -> tree.Node:
    node = _simplified(node, tests)
    if node.kind == "inner":
        return pushed(node, tests)
    own = list(conjuncts(node.condition))
    # Above or below the join, a condition sees the same rows of a side that is not padded.
    of_left, above = _apart(tests, () if node.kind == "full" else node.left.columns)
    if node.kind == "semi":
        to_left, own = _apart(own, node.left.columns)
        of_left = [*of_left, *to_left]
    # A condition of ON on the right side alone decides about partners, not about shown rows.
    of_right, own = _apart(own, () if node.kind == "full" else node.right.columns)
    changed = replace(
        node,
        left=pushed(node.left, of_left),
        right=pushed(node.right, of_right),
        condition=conjunction(tuple(own)),
    )
    return filtered(changed, above)


def _simplified(node: tree.Join, tests: Sequence[Condition]) -> tree.Join:
    """The join without paddings that no condition passes."""
    if node.kind not in ("left", "full"):
        return node
    left, right = (
        any(rejects_null(test, side.columns) for test in tests) for side in (node.left, node.right)
    )
    if node.kind == "left":
        return replace(node, kind="inner") if right else node
    if left and right:
        return replace(node, kind="inner")
    if left:
        return replace(node, kind="left")
    if right:
        turned = tuple((theirs, ours) for ours, theirs in node.on)
        return replace(node, kind="left", left=node.right, right=node.left, on=turned)
    return node


def _apart(
    tests: Sequence[Condition], columns: Collection[str]
) -> tuple[list[Condition], list[Condition]]:
    """Splits conditions: those that read these columns only (and at least one), and the others."""
    inside = [test for test in tests if (read := columns_of(test)) and read <= set(columns)]
    return inside, [test for test in tests if not any(test is other for other in inside)]
