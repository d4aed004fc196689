"""Drops the columns that nothing reads, down to the columns that sources are asked for."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from protocols.algebra.expressions import (
    Column,
    Condition,
    Expression,
    Literal,
    columns_of,
    in_value,
)
from protocols.views import tree
from protocols.views.view import View


def narrowed(node: tree.Node, wanted: Collection[str]) -> tree.Node:
    """The node without unneeded columns; it may keep others that it needs itself."""
    match node:
        case tree.Core():
            return tree.Core(_narrowed(node.view, wanted))
        case tree.Constants():
            return _constants(node, wanted)
        case tree.Compute():
            return _compute(node, wanted)
        case tree.Filter():
            return replace(node, input=narrowed(node.input, {*wanted, *_read(node.condition)}))
        case tree.Multiply():
            return replace(node, input=narrowed(node.input, {*wanted, node.times}))
        case tree.Union():
            return tree.Union(
                tuple(_exactly(narrowed(each, wanted), wanted, node) for each in node.inputs)
            )
        case tree.Group():
            aggregates = tuple(each for each in node.aggregates if each.name in wanted)
            values = {each.column for each in aggregates if each.column is not None}
            below = narrowed(node.input, {*node.keys, *values})
            return replace(node, input=below, aggregates=aggregates)
        case tree.Window():
            return _window(node, wanted)
        case tree.Join():
            needed = {*wanted, *_read(node.condition), *(c for pair in node.on for c in pair)}
            left, right = (
                narrowed(side, needed & side.columns.keys()) for side in (node.left, node.right)
            )
            return replace(node, left=left, right=right)


def _window(node: tree.Window, wanted: Collection[str]) -> tree.Node:
    functions = tuple(each for each in node.functions if each.name in wanted)
    if not functions:
        return narrowed(node.input, wanted)
    read = {c for each in functions for c in (each.column, each.default) if c is not None}
    ordered = {key.name for key in node.order}
    needed = (set(wanted) & node.input.columns.keys()) | read | ordered | set(node.partition)
    return replace(node, input=narrowed(node.input, needed), functions=functions)


def _constants(node: tree.Constants, wanted: Collection[str]) -> tree.Constants:
    # Rows without columns would be no rows.
    places = [n for n, (name, _) in enumerate(node.named) if name in wanted] or [0]
    rows = tuple(tuple(row[place] for place in places) for row in node.rows)
    return tree.Constants(tuple(node.named[place] for place in places), rows)


def _compute(node: tree.Compute, wanted: Collection[str]) -> tree.Node:
    values = tuple(value for value in node.values if value[0] in wanted)
    if isinstance(node.input, tree.Compute):
        below = {name: value for name, value, _ in node.input.values}
        if _copies_nothing([value for _, value, _ in values], below):
            values = tuple(
                (name, in_value(value, lambda column: below[column.name]), type_)
                for name, value, type_ in values
            )
            return _compute(tree.Compute(node.input.input, values), [name for name, _, _ in values])
    read = {name for _, value, _ in values for name in _of(value)}
    return tree.Compute(narrowed(node.input, read), values)


def _copies_nothing(values: Sequence[Expression], below: Mapping[str, Expression]) -> bool:
    """Whether no computed value would have to be computed in several places."""
    used = Counter(name for value in values for name in _of(value))
    return all(n == 1 or isinstance(below[name], Column | Literal) for name, n in used.items())


def _exactly(node: tree.Node, wanted: Collection[str], union: tree.Union) -> tree.Node:
    """The node with exactly these columns: all sides of a Union need the same."""
    names = [name for name in union.columns if name in wanted]
    if list(node.columns) == names:
        return node
    return tree.Compute(node, tuple((n, Column(n), union.columns[n]) for n in names))


def _narrowed(view: View, wanted: Collection[str]) -> View:
    # A count of rows reads no column, but a question has to ask for one.
    outputs = tuple(o for o in view.outputs if o.name in wanted) or view.outputs[:1]
    residual = {name for test in view.residuals for name in columns_of(test)}
    linked = {end for link in view.links for end in (link.left, link.right)}
    needed = {output.column for output in outputs} | residual
    atoms = tuple(
        replace(
            atom,
            columns=tuple(
                c
                for c in atom.relation.column_names
                if atom.qualified(c) in needed or (atom.index, c) in linked
            ),
        )
        for atom in view.atoms
    )
    return replace(view, atoms=atoms, outputs=outputs)


def _read(condition: Condition | None) -> set[str]:
    return set() if condition is None else columns_of(condition)


def _of(value: Expression) -> list[str]:
    """The columns that a value reads, as often as it reads them."""
    found: list[str] = []

    def seen(column: Column) -> Expression:
        found.append(column.name)
        return column

    in_value(value, seen)
    return found
