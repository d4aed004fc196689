"""Conditions and values for one row, in plain Python: the reference for the other evaluators."""

from collections.abc import Iterable, Mapping
from typing import Any

from protocols.algebra.expressions import (
    COMPARISONS,
    And,
    Call,
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    In,
    IsNull,
    IsTrue,
    Literal,
    Not,
    Or,
    Truth,
)
from protocols.algebra.functions import FUNCTIONS


def holds(condition: Condition, row: Mapping[str, Any]) -> bool | None:
    """Its truth value for one row; None is SQL's unknown."""
    match condition:
        case Comparison(left, op, right):
            return compared(op, value_of(left, row), value_of(right, row))
        case In(operand, values):
            return is_among(value_of(operand, row), values)
        case IsNull(operand):
            return value_of(operand, row) is None
        case IsTrue(operand):
            truth: bool | None = value_of(operand, row)
            return truth
        case Not(inner):
            return negated(holds(inner, row))
        case And(parts):
            return _decided_by(False, parts, row)
        case Or(parts):
            return _decided_by(True, parts, row)


def _decided_by(deciding: bool, parts: Iterable[Condition], row: Mapping[str, Any]) -> bool | None:
    """False decides AND, true decides OR; later parts are not evaluated."""
    unknown = False
    for part in parts:
        truth = holds(part, row)
        if truth is deciding:
            return deciding
        unknown = unknown or truth is None
    return None if unknown else not deciding


def value_of(expression: Expression, row: Mapping[str, Any]) -> Any:
    """Its value for one row; None is NULL. Raises NoValue where a database would raise an error."""
    match expression:
        case Column(name):
            return row[name]
        case Literal(constant):
            return constant
        case Call(function, arguments, type_):
            return FUNCTIONS[function].of(
                type_, [value_of(argument, row) for argument in arguments]
            )
        case Case(branches, default):
            for condition, then in branches:
                if holds(condition, row):
                    return value_of(then, row)
            return value_of(default, row)
        case Truth(condition):
            return holds(condition, row)


def negated(truth: bool | None) -> bool | None:
    """NOT: unknown stays unknown."""
    return None if truth is None else not truth


def is_among(wanted: Any, values: Iterable[Any]) -> bool | None:
    """Equality with one of them, defined as an OR of equalities."""
    truths = {compared("=", wanted, each) for each in values}
    return True if True in truths else None if None in truths else False


def compared(op: str, left: Any, right: Any) -> bool | None:
    """Compares as the databases do: NaN equals itself and is above every other number."""
    if left is None or right is None:
        return None
    if isinstance(left, float) and isinstance(right, float):
        left, right = (left != left, left), (right != right, right)
        if left[0] or right[0]:
            left, right = left[0], right[0]
    return bool(COMPARISONS[op](left, right))
