"""Type checks of conditions and values, and the type of a value."""

from collections.abc import Mapping

from protocols.algebra import expressions as ex
from protocols.algebra.functions import check_call
from protocols.algebra.types import BOOLEAN, ColumnType


def type_of(expression: ex.Expression, columns: Mapping[str, ColumnType]) -> ColumnType:
    """Its type over these columns; raises ValueError if the types of its parts do not match."""
    match expression:
        case ex.Column(name):
            return columns[name]
        case ex.Literal(_, type_):
            return type_
        case ex.Call(function, arguments, type_):
            check_call(function, [type_of(argument, columns) for argument in arguments], type_)
            return type_
        case ex.Case(branches, default, type_):
            for condition, _ in branches:
                check_types(condition, columns)
            for value_ in (*(then for _, then in branches), default):
                _check_type(value_, type_, columns)
            return type_
        case ex.Truth(condition):
            check_types(condition, columns)
            return BOOLEAN


def check_types(condition: ex.Condition, columns: Mapping[str, ColumnType]) -> None:
    """Raises ValueError if types do not match; no implicit cast of a database is relied on."""
    match condition:
        case ex.Comparison(left, _, right):
            _check_families(type_of(left, columns), type_of(right, columns))
        case ex.In(operand, _, type_):
            _check_families(type_of(operand, columns), type_)
        case ex.IsNull(operand):
            type_of(operand, columns)
        case ex.IsTrue(operand):
            _check_type(operand, BOOLEAN, columns)
        case ex.Not(inner):
            check_types(inner, columns)
        case ex.And(parts) | ex.Or(parts):
            for part in parts:
                check_types(part, columns)


def _check_families(left: ColumnType, right: ColumnType) -> None:
    if left.family != right.family:
        raise ValueError(f"compares {left.family} with {right.family}")


def _check_type(
    expression: ex.Expression, wanted: ColumnType, columns: Mapping[str, ColumnType]
) -> None:
    found = type_of(expression, columns)
    if found != wanted:
        raise ValueError(f"has {found.name} where {wanted.name} is wanted")
