"""Expands SQL's shorthands.

BETWEEN and IN are comparisons, COALESCE and NULLIF a CASE, IS TRUE is a test with IS NULL.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.types import DOUBLE, SqlType
from protocols.views.dialects import SAY_WHICH
from protocols.views.operands import Operand, kept

if TYPE_CHECKING:
    from protocols.views.scalars import ScalarReader


def is_(scalars: "ScalarReader", node: exp.Is) -> ex.Condition:
    match node.expression:
        case exp.Null():
            return ex.IsNull(scalars.operand(node.this).expression)
        case exp.Boolean():
            condition = scalars.condition(node.this)
            known = ex.Not(ex.IsNull(ex.Truth(condition)))
            return ex.And((condition if node.expression.this else ex.Not(condition), known))
    scalars.refuse(node, f"the condition {node.sql('duckdb')} is not supported")


def between(scalars: "ScalarReader", node: exp.Between) -> ex.Condition:
    middle, low, high = (scalars.operand(node.args[name]) for name in ("this", "low", "high"))
    middle, low, high = _of_kinds(scalars, node, (middle, low, high))
    above = scalars.comparison(node, middle, ">=", low)
    return ex.And((above, scalars.comparison(node, middle, "<=", high)))


def in_(scalars: "ScalarReader", node: exp.In) -> ex.Condition:
    wanted, choices = scalars.operand(node.this), list(map(scalars.operand, node.expressions))
    wanted, *choices = _of_kinds(scalars, node, (wanted, *choices))
    equal = [scalars.comparison(node, wanted, "=", choice) for choice in choices]
    parts = tuple(_one_test(list(run)) for _, run in groupby(equal, _tested))
    return parts[0] if len(parts) == 1 else ex.Or(parts)


def _of_kinds(
    scalars: "ScalarReader", node: exp.Expr, operands: Sequence[Operand]
) -> Sequence[Operand]:
    """DOUBLE among other types: DuckDB compares all as DOUBLE, PostgreSQL pair by pair."""
    types = {o.type for o in operands if o.type is not None and not o.is_constant}
    if DOUBLE not in types or len(types) == 1 or scalars.dialect == "postgres":
        return operands
    if scalars.dialect is None:
        names = " and ".join(sorted(type_.name for type_ in types))
        scalars.refuse(
            node,
            f"{names} meet here, which databases compare differently; cast them, or {SAY_WHICH}",
        )
    return [o if o.is_open else Operand(o.node, scalars.as_(o, DOUBLE), DOUBLE) for o in operands]


def not_distinct(scalars: "ScalarReader", node: exp.Binary) -> ex.Condition:
    left, right = scalars.operand(node.left), scalars.operand(node.right)
    comparison = scalars.comparison(node, left, "=", right)
    return ex.same(comparison.left, comparison.right)


def _tested(equality: ex.Comparison) -> tuple[ex.Expression, SqlType | int]:
    """The left side and the type of the constant; without a constant, a pair like no other."""
    right = equality.right
    return equality.left, right.type if isinstance(right, ex.Literal) else id(right)


def _one_test(equalities: list[ex.Comparison]) -> ex.Condition:
    """Equality of one value with any of these."""
    first, *others = equalities
    if not others or not isinstance(first.right, ex.Literal):
        return first
    constants = (each.right for each in equalities)
    values = tuple(each.value for each in constants if isinstance(each, ex.Literal))
    return ex.In(first.left, values, first.right.type)


def coalesce(scalars: "ScalarReader", node: exp.Coalesce) -> Operand:
    """The first value that is not NULL; the others are not evaluated."""
    operands = list(map(scalars.operand, scalars.arguments(node, "this", "expressions")))
    type_, (*values, last) = scalars.of_one_type(node, operands)
    branches = tuple(
        (ex.Not(ex.IsNull(operand.expression)), value)
        for operand, value in zip(operands, values, strict=False)
    )
    case = ex.Case(branches, last, kept(type_)) if branches else last
    return Operand(node, case, type_)


def nullif(scalars: "ScalarReader", node: exp.Nullif) -> Operand:
    operand, other = map(scalars.operand, scalars.arguments(node, "this", "expression"))
    if operand.type is None:
        scalars.refuse(node, "NULL has no type here; write CAST(NULL AS …)")
    type_ = kept(operand.type)
    equal = scalars.comparison(node, operand, "=", other)
    case = ex.Case(((equal, ex.Literal(None, type_)),), operand.expression, type_)
    return Operand(node, case, operand.type)
