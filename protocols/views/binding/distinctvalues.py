"""Aggregates with DISTINCT as two groups, one above the other, which both can be remembered.

The lower one has a row per group and value, with what the other aggregates make of its rows; the
upper one adds these up and counts each value once:

    COUNT(DISTINCT v), COUNT(*), MAX(w) … GROUP BY g

    group by g: COUNT(v), SUM(n), MAX(w)
    └─ group by g, v: COUNT(*) AS n, MAX(w) AS w

So a new row is no reason to read the group again: how often its value is there is known.
"""

from collections.abc import Sequence
from dataclasses import replace

from protocols.algebra.expressions import Call, Column, Expression, Literal
from protocols.algebra.types import BIGINT, DOUBLE, ColumnType, column_type
from protocols.views import tree
from protocols.views.binding.rows import Names, either

_COUNTED = column_type("DECIMAL(38,0)")


def grouped(
    node: tree.Node, keys: Sequence[str], aggregates: Sequence[tree.Aggregate], names: Names
) -> tree.Node:
    """A Group of the node; two if all DISTINCTs are about one column, and the rest can be added."""
    values = {each.column for each in aggregates if _counts_values(each)}
    others = [each for each in aggregates if not _counts_values(each)]
    if len(values) != 1 or any(_is_rounded(node, each) for each in others):
        return tree.Group(node, tuple(keys), tuple(aggregates))
    (value,) = (name for name in values if name is not None)
    parts = {each.name: replace(each, name=names.fresh(each.name)) for each in others}
    lower = tree.Group(node, tuple(dict.fromkeys((*keys, value))), tuple(parts.values()))
    sums = {each.name: names.fresh(each.name) for each in others if each.function == "count"}
    upper = [
        replace(each, distinct=False)
        if _counts_values(each)
        else _of_parts(each, parts[each.name].name, sums.get(each.name))
        for each in aggregates
    ]
    above = tree.Group(lower, tuple(keys), tuple(upper))
    return _with_counts(above, keys, aggregates, sums) if sums else above


def _counts_values(each: tree.Aggregate) -> bool:
    return each.distinct and each.function not in ("min", "max")


def _is_rounded(node: tree.Node, each: tree.Aggregate) -> bool:
    """Whether what it makes of some rows cannot be added to what it makes of others."""
    of_doubles = each.column is not None and node.columns[each.column] == DOUBLE
    return each.function == "avg" or (each.function == "sum" and of_doubles)


def _of_parts(each: tree.Aggregate, part: str, sum_: str | None) -> tree.Aggregate:
    """The aggregate of all rows, from those of the values."""
    if sum_ is None:
        return replace(each, column=part, distinct=False)
    return tree.Aggregate(sum_, "sum", part, _COUNTED)


def _with_counts(
    node: tree.Node,
    keys: Sequence[str],
    aggregates: Sequence[tree.Aggregate],
    sums: dict[str, str],
) -> tree.Compute:
    """Sums of counts as counts: there is 0, not NULL, where there is nothing."""
    values: list[tuple[str, Expression, ColumnType]] = [
        (key, Column(key), node.columns[key]) for key in keys
    ]
    for each in aggregates:
        value: Expression = Column(each.name)
        if each.name in sums:
            whole = Call("cast", (Column(sums[each.name]),), BIGINT)
            value = either(whole, Literal(0, BIGINT), BIGINT)
        values.append((each.name, value, each.type))
    return tree.Compute(node, tuple(values))
