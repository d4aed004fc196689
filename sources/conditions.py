"""Conditions and values as SQL text for DuckDB.

Where a column is, the caller says; values become parameters. All types are settled before, so that
DuckDB has nothing to convert by itself.
"""

from collections.abc import Callable
from typing import Any

import duckdb

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
from protocols.algebra.functions import FUNCTIONS

#: What DuckDB raises for a value that there is not: an overflow, a bad cast, a division by zero.
NO_VALUE = (
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
)


def condition_to_sql(
    condition: Condition, place: Callable[[str], str], parameters: list[Any]
) -> str:
    """The text of a condition, whose parameters are added to the list."""

    def operand(part: Expression) -> str:
        return value_to_sql(part, place, parameters)

    def inner(part: Condition) -> str:
        return f"({condition_to_sql(part, place, parameters)})"

    match condition:
        case Comparison(left, op, right):
            return f"{operand(left)} {op} {operand(right)}"
        case IsNull(part):
            return f"{operand(part)} IS NULL"
        case IsTrue(part):
            return operand(part)
        case Not(part):
            return f"NOT {inner(part)}"
        case And(parts):
            return " AND ".join(map(inner, parts))
        case Or(parts):
            return " OR ".join(map(inner, parts))


def value_to_sql(expression: Expression, place: Callable[[str], str], parameters: list[Any]) -> str:
    """The text of a value, whose parameters are added to the list."""

    def inner(part: Expression) -> str:
        return value_to_sql(part, place, parameters)

    match expression:
        case Column(name):
            return place(name)
        case Literal(constant, type_):
            parameters.append(constant)
            return f"?::{type_.name}"
        case Call(function, arguments, type_):
            text = FUNCTIONS[function].sql(type_, list(map(inner, arguments)))
            return f"CAST({text} AS {type_.name})"
        case Case(branches, default, _):
            texts = [
                f"WHEN {condition_to_sql(when, place, parameters)} THEN {inner(then)}"
                for when, then in branches
            ]
            return f"CASE {' '.join(texts)} ELSE {inner(default)} END"
        case Truth(condition):
            return f"({condition_to_sql(condition, place, parameters)})"
