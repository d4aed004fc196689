"""UNION, INTERSECT and EXCEPT, with and without ALL.

UNION is a Union, under a Group unless it has ALL. For the others each row carries its side, and the
number of its copies on each side decides: INTERSECT shows rows of both sides, EXCEPT rows that only
the left has. With ALL a row is shown as often as the smaller number, or the difference, says.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from protocols.algebra.expressions import (
    Call,
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    Literal,
    conjunction,
)
from protocols.algebra.types import BIGINT, ColumnType
from protocols.views import tree
from protocols.views.binding.rows import Names
from protocols.views.binding.scope import Columns, NamedColumn, ShownColumn
from protocols.views.binding.sources import Bound
from protocols.views.binding.statement import Text
from protocols.views.operands import kept


def bound(text: Text, names: Names, query: exp.SetOperation, left: Bound, right: Bound) -> Bound:
    """Reads the operation over its two sides."""
    columns = _columns(text, names, query, left[1], right[1])
    keys = tuple(each.shown.name for each in columns)
    if isinstance(query, exp.Union):
        sides = tuple(_renamed(side, columns, {}) for side in (left, right))
        both: tree.Node = tree.Union(sides)
        return (tree.Group(both, keys, ()) if query.args.get("distinct") else both), columns
    marks = [names.fresh(mark) for mark in ("left", "right")]
    sides = tuple(
        _renamed(side, columns, {mark: 1 if mark == own else None for mark in marks})
        for side, own in zip((left, right), marks, strict=True)
    )
    sums = [tree.Aggregate(names.fresh(f"rows_{mark}"), "count", mark, BIGINT) for mark in marks]
    less, distinct = isinstance(query, exp.Except), bool(query.args.get("distinct"))
    counted = tree.Group(tree.Union(sides), keys, tuple(sums), _operation(less, distinct))
    ours, theirs = (Column(each.name) for each in sums)
    if distinct:
        return _plain(tree.Filter(counted, _shown(ours, theirs, less)), columns), columns
    return _as_often(names, counted, columns, ours, theirs, less), columns


def all_of(names: Names, parts: Sequence[Bound], distinct: bool) -> Bound:
    """The rows of several readings of one SELECT, each row once with DISTINCT."""
    if len(parts) == 1:
        return parts[0]
    columns = tuple(
        replace(each, shown=ShownColumn(names.fresh(each.name), each.shown.type))
        for each in parts[0][1]
    )
    whole = tree.Union(tuple(_renamed(part, columns, {}) for part in parts))
    keys = tuple(each.shown.name for each in columns)
    return (tree.Group(whole, keys, ()) if distinct else whole), columns


def _operation(less: bool, distinct: bool) -> tree.SetOperation:
    if distinct:
        return "except" if less else "intersect"
    return "except all" if less else "intersect all"


def _columns(
    text: Text,
    names: Names,
    query: exp.Expr,
    left: Columns,
    right: Columns,
) -> Columns:
    """The columns of the result, named as on the left."""
    if len(left) != len(right):
        text.refuse(
            query,
            f"the left side has {len(left)} columns, the right side {len(right)}; select as many",
        )
    columns = []
    for mine, other in zip(left, right, strict=True):
        ours, theirs = mine.shown.type, other.shown.type
        if kept(ours) != kept(theirs):
            text.refuse(
                query,
                f"{mine.name!r} is {kept(ours).name} on the left, {other.name!r} is"
                f" {kept(theirs).name} on the right; cast one of them",
            )
        shown = ShownColumn(names.fresh(mine.name), ours if ours == theirs else kept(ours))
        columns.append(NamedColumn(mine.name, shown, mine.at))
    return tuple(columns)


def _renamed(side: Bound, columns: Columns, marks: dict[str, int | None]) -> tree.Node:
    node, own = side
    values: list[tuple[str, Expression, ColumnType]] = [
        (each.shown.name, Column(mine.shown.name), kept(each.shown.type))
        for each, mine in zip(columns, own, strict=True)
    ]
    values += [(mark, Literal(value, BIGINT), BIGINT) for mark, value in marks.items()]
    return tree.Compute(node, tuple(values))


def _shown(ours: Column, theirs: Column, less: bool) -> Condition:
    none = Literal(0, BIGINT)
    here = Comparison(ours, ">", none)
    there = Comparison(theirs, "=" if less else ">", none)
    test = conjunction((here, there))
    assert test is not None
    return test


def _plain(node: tree.Node, columns: Columns) -> tree.Node:
    return tree.Compute(node, tuple(_values(columns)))


def _values(columns: Columns) -> list[tuple[str, Expression, ColumnType]]:
    return [(e.shown.name, Column(e.shown.name), kept(e.shown.type)) for e in columns]


def _as_often(
    names: Names,
    counted: tree.Node,
    columns: Columns,
    ours: Column,
    theirs: Column,
    less: bool,
) -> tree.Node:
    """Repeats each row as often as ALL wants it."""
    times, none = names.fresh("times"), Literal(0, BIGINT)
    if less:
        more = Case(
            ((Comparison(ours, ">", theirs), Call("-", (ours, theirs), BIGINT)),), none, BIGINT
        )
    else:
        more = Case(((Comparison(ours, "<", theirs), ours),), theirs, BIGINT)
    values = (*_values(columns), (times, more, BIGINT))
    return tree.Multiply(tree.Compute(counted, values), times)
