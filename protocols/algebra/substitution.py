"""Putting values in the place of columns."""

from collections.abc import Callable
from typing import TypeAlias

from protocols.algebra.expressions import (
    And,
    Call,
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    IsNull,
    IsTrue,
    Literal,
    Not,
    Or,
    Truth,
)

#: What stands for a column.
Values: TypeAlias = Callable[[Column], Expression]


def in_value(value: Expression, stands_for: Values) -> Expression:
    """The value with something else in the place of each column."""
    match value:
        case Column():
            return stands_for(value)
        case Literal():
            return value
        case Call(function, arguments, type_):
            return Call(function, tuple(in_value(a, stands_for) for a in arguments), type_)
        case Case(branches, default, type_):
            replaced = tuple(
                (in_condition(test, stands_for), in_value(then, stands_for))
                for test, then in branches
            )
            return Case(replaced, in_value(default, stands_for), type_)
        case Truth(condition):
            return Truth(in_condition(condition, stands_for))


def in_condition(condition: Condition, stands_for: Values) -> Condition:
    """The condition with something else in the place of each column."""
    match condition:
        case Comparison(left, op, right):
            return Comparison(in_value(left, stands_for), op, in_value(right, stands_for))
        case IsNull(operand):
            return IsNull(in_value(operand, stands_for))
        case IsTrue(operand):
            return IsTrue(in_value(operand, stands_for))
        case Not(inner):
            return Not(in_condition(inner, stands_for))
        case And(parts):
            return And(tuple(in_condition(part, stands_for) for part in parts))
        case Or(parts):
            return Or(tuple(in_condition(part, stands_for) for part in parts))
