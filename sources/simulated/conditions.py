"""Conditions and values as SQL text for DuckDB.

The caller says where a column is; values become parameters. All types are resolved before, so that
DuckDB converts nothing by itself.

DuckDB splits a WHERE into parts that it can test during the scan, and compares these parts with
each other: 2,000 of the form x <> ? take 4 s and 2 GB, 50,000 overflow its stack. So a condition of
many parts is passed as one value that DuckDB cannot split, and its AND and OR are balanced trees,
so that recursion over them stays shallow.
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
from protocols.algebra.types import SqlType

#: Errors of DuckDB where a value does not exist: an overflow, a bad cast, a division by zero.
NO_VALUE = (
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
)
#: DuckDB may split conditions of up to this many parts, a third of them comparisons.
_TAKEN_APART = 300
#: Up to this many members of an AND or OR stay on one level.
_SIDE_BY_SIDE = 32


def filter_to_sql(condition: Condition, place: Callable[[str], str], parameters: list[Any]) -> str:
    """The SQL of a condition for WHERE; adds its values to the parameters."""
    text = condition_to_sql(condition, place, parameters)
    if size_of(condition) <= _TAKEN_APART:
        return text
    return f"({text}) IS NOT DISTINCT FROM true"


def size_of(what: Condition | Expression) -> int:
    """The number of its parts."""
    values = len(what.values) if isinstance(what, In) else 0
    return 1 + values + sum(map(size_of, parts_of(what)))


def bound(value: Any, type_: SqlType) -> Any:
    """The value as a parameter that is cast to its type.

    A decimal goes as text: DuckDB binds one with 38 places after the point and zeroes in front as
    a DOUBLE.
    """
    is_decimal = value is not None and type_.family == "DECIMAL"
    return format(value, "f") if is_decimal else value


def condition_to_sql(
    condition: Condition, place: Callable[[str], str], parameters: list[Any]
) -> str:
    """The SQL of a condition; adds its values to the parameters."""

    def operand(part: Expression) -> str:
        return value_to_sql(part, place, parameters)

    def inner(part: Condition) -> str:
        return f"({condition_to_sql(part, place, parameters)})"

    match condition:
        case Comparison(left, op, right):
            return f"{operand(left)} {op} {operand(right)}"
        case In(part, values, type_):
            text = operand(part)
            parameters.extend(bound(value, type_) for value in values)
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
    """The SQL of an expression; adds its values to the parameters."""

    def inner(part: Expression) -> str:
        return value_to_sql(part, place, parameters)

    match expression:
        case Column(name):
            return place(name)
        case Literal(constant, type_):
            parameters.append(bound(constant, type_))
            return f"?::{type_.name}"
        case Call(function, arguments, type_):
            spelled = FUNCTIONS[function].sql
            assert spelled is not None, f"no source is asked for {function}"
            text = spelled(type_, list(map(inner, arguments)))
            return f"CAST({text} AS {type_.name})"
        case Case(branches, default, _):
            texts = [
                f"WHEN {condition_to_sql(when, place, parameters)} THEN {inner(then)}"
                for when, then in branches
            ]
            return f"CASE {' '.join(texts)} ELSE {inner(default)} END"
        case Truth(condition):
            return f"({condition_to_sql(condition, place, parameters)})"
