"""Conditions and values as SQL text for DuckDB.

Where a column is, the caller says; values become parameters. All types are settled before, so that
DuckDB has nothing to convert by itself.

DuckDB takes a WHERE apart into what can be tested during the scan, and compares these parts with
each other: 2,000 of the form x <> ? take 4 s and 2 GB, 50,000 overflow its stack. So a condition of
many parts is handed over as one value that it cannot take apart, and its AND and OR are balanced
trees, which nobody walks down far.
"""

from collections.abc import Callable, Sequence
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
    In,
    IsNull,
    IsTrue,
    Literal,
    Not,
    Or,
    Truth,
    parts_of,
)
from protocols.algebra.functions import FUNCTIONS

#: What DuckDB raises for a value that there is not: an overflow, a bad cast, a division by zero.
NO_VALUE = (
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
)
#: So many parts, a third of them comparisons, DuckDB may take apart.
_TAKEN_APART = 300
#: So many members of AND and OR stand side by side.
_SIDE_BY_SIDE = 32


def filter_to_sql(condition: Condition, place: Callable[[str], str], parameters: list[Any]) -> str:
    """The text of a condition for WHERE, whose parameters are added to the list."""
    text = condition_to_sql(condition, place, parameters)
    if size_of(condition) <= _TAKEN_APART:
        return text
    return f"({text}) IS NOT DISTINCT FROM true"


def size_of(what: Condition | Expression) -> int:
    """Of how many parts it consists."""
    values = len(what.values) if isinstance(what, In) else 0
    return 1 + values + sum(map(size_of, parts_of(what)))


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
        case In(part, values, type_):
            text = operand(part)
            parameters.extend(values)
            return f"{text} IN ({', '.join([f'?::{type_.name}'] * len(values))})"
        case IsNull(part):
            return f"{operand(part)} IS NULL"
        case IsTrue(part):
            return operand(part)
        case Not(part):
            return f"NOT {inner(part)}"
        case And(parts):
            return _tree(list(map(inner, parts)), " AND ")
        case Or(parts):
            return _tree(list(map(inner, parts)), " OR ")


def _tree(texts: Sequence[str], between: str) -> str:
    if len(texts) <= _SIDE_BY_SIDE:
        return between.join(texts)
    half = len(texts) // 2
    return f"({_tree(texts[:half], between)}){between}({_tree(texts[half:], between)})"


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
