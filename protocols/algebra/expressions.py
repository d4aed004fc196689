"""Conditions and values as data: what WHERE, ON and SELECT say, free of any SQL text.

A condition travels to a query server (`to_json`), is evaluated there by the source's database
(sources/ turns it into SQL), here by the reference (`holds`) and by Polars (`to_polars`). All three
follow SQL's three-valued logic: a comparison with NULL is unknown, and unknown rows are dropped.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from protocols.algebra.types import ColumnType, column_type

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Column:
    """A column, by the name it has in the rows at hand (qualified by alias above one atom)."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A constant of a column's type; None is NULL."""

    value: Any
    type: ColumnType


@dataclass(frozen=True)
class Call:
    """An operator or a function; NULL in, NULL out, unless `functions.py` says otherwise."""

    function: str
    arguments: tuple["Expression", ...]
    type: ColumnType


@dataclass(frozen=True)
class Case:
    """The value of the first branch whose condition is true, else the default."""

    branches: tuple[tuple["Condition", "Expression"], ...]
    default: "Expression"
    type: ColumnType


@dataclass(frozen=True)
class Truth:
    """The truth value of a condition as a BOOLEAN; unknown is NULL."""

    condition: "Condition"


Expression = Column | Literal | Call | Case | Truth


@dataclass(frozen=True)
class Comparison:
    left: Expression
    op: str
    right: Expression


@dataclass(frozen=True)
class IsNull:
    operand: Expression


@dataclass(frozen=True)
class IsTrue:
    """A BOOLEAN value as a condition."""

    operand: Expression


@dataclass(frozen=True)
class Not:
    inner: "Condition"


@dataclass(frozen=True)
class And:
    parts: tuple["Condition", ...]


@dataclass(frozen=True)
class Or:
    parts: tuple["Condition", ...]


Condition = Comparison | IsNull | IsTrue | Not | And | Or


def conjuncts(condition: Condition) -> Iterator[Condition]:
    """The parts that must all hold."""
    if isinstance(condition, And):
        for part in condition.parts:
            yield from conjuncts(part)
    else:
        yield condition


def conjunction(parts: tuple[Condition, ...]) -> Condition | None:
    """All of them in one, or None when there are none."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    return And(parts)


def columns_of(condition: Condition) -> set[str]:
    """The names of all columns that it mentions."""
    match condition:
        case Comparison(left, _, right):
            return {side.name for side in (left, right) if isinstance(side, Column)}
        case IsNull(operand):
            return {operand.name} if isinstance(operand, Column) else set()
        case Not(inner):
            return columns_of(inner)
        case And(parts) | Or(parts):
            return set().union(*map(columns_of, parts))


def renamed(condition: Condition, name: Callable[[str], str]) -> Condition:
    """The same condition over columns with other names."""

    def side(operand: Operand) -> Operand:
        return Column(name(operand.name)) if isinstance(operand, Column) else operand

    match condition:
        case Comparison(left, op, right):
            return Comparison(side(left), op, side(right))
        case IsNull(operand):
            return IsNull(side(operand))
        case Not(inner):
            return Not(renamed(inner, name))
        case And(parts):
            return And(tuple(renamed(part, name) for part in parts))
        case Or(parts):
            return Or(tuple(renamed(part, name) for part in parts))


def holds(condition: Condition, row: Mapping[str, Any]) -> bool | None:
    """Its truth value for one row; None is SQL's unknown."""
    match condition:
        case Comparison(left, op, right):
            values = _value(left, row), _value(right, row)
            if None in values:
                return None
            return _compare(op, *values)
        case IsNull(operand):
            return _value(operand, row) is None
        case Not(inner):
            truth = holds(inner, row)
            return None if truth is None else not truth
        case And(parts):
            truths = [holds(part, row) for part in parts]
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = [holds(part, row) for part in parts]
            return True if True in truths else None if None in truths else False


def _value(operand: Operand, row: Mapping[str, Any]) -> Any:
    return row[operand.name] if isinstance(operand, Column) else operand.value


def _compare(op: str, left: Any, right: Any) -> bool:
    """Comparison as the databases do it: NaN equals itself and is above every other number."""
    if isinstance(left, float) and isinstance(right, float):
        left, right = (left != left, left), (right != right, right)
        if left[0] or right[0]:
            left, right = left[0], right[0]
    return bool(COMPARISONS[op](left, right))


def to_polars(condition: Condition) -> pl.Expr:
    """The same truth value as a Polars expression."""
    match condition:
        case Comparison(left, op, right):
            comparison: pl.Expr = COMPARISONS[op](_expr(left), _expr(right))
            return comparison
        case IsNull(operand):
            return _expr(operand).is_null()
        case Not(inner):
            return ~to_polars(inner)
        case And(parts):
            return pl.all_horizontal([to_polars(part) for part in parts])
        case Or(parts):
            return pl.any_horizontal([to_polars(part) for part in parts])


def _expr(operand: Operand) -> pl.Expr:
    if isinstance(operand, Column):
        return pl.col(operand.name)
    return pl.lit(operand.value, dtype=operand.type.dtype)


def to_json(condition: Condition) -> list[Any]:
    """A form for the wire: nested lists with the operator first."""
    match condition:
        case Comparison(left, op, right):
            return [op, _operand_to_json(left), _operand_to_json(right)]
        case IsNull(operand):
            return ["is null", _operand_to_json(operand)]
        case Not(inner):
            return ["not", to_json(inner)]
        case And(parts):
            return ["and", *map(to_json, parts)]
        case Or(parts):
            return ["or", *map(to_json, parts)]


def from_json(form: Any) -> Condition:
    """Reads the wire form; ValueError when it is none."""
    match form:
        case [str(op), left, right] if op in COMPARISONS:
            return Comparison(_operand_from_json(left), op, _operand_from_json(right))
        case ["is null", operand]:
            return IsNull(_operand_from_json(operand))
        case ["not", inner]:
            return Not(from_json(inner))
        case ["and", *parts] if parts:
            return And(tuple(map(from_json, parts)))
        case ["or", *parts] if parts:
            return Or(tuple(map(from_json, parts)))
    raise ValueError(f"not a condition: {form!r}")


def _operand_to_json(operand: Operand) -> dict[str, Any]:
    if isinstance(operand, Column):
        return {"column": operand.name}
    return {"value": operand.type.encode(operand.value), "type": operand.type.name}


def _operand_from_json(form: Any) -> Operand:
    match form:
        case {"column": str(name)}:
            return Column(name)
        case {"value": value, "type": str(name)}:
            type_ = column_type(name)
            return Literal(type_.decode(value), type_)
    raise ValueError(f"neither a column nor a value: {form!r}")
