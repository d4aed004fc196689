"""Conditions and values as data: what WHERE, ON and SELECT say, free of any SQL text.

A condition travels to a query server (`to_json`), is evaluated there by the source's database
(sources/ turns it into SQL), here by the reference (`holds`) and by Polars (`to_polars`). All three
follow SQL's three-valued logic: a comparison with NULL is unknown, and unknown rows are dropped.

Both sides of a comparison have one type, as have the branches of a Case; arguments are what their
function takes. Whoever makes an expression puts a cast where SQL would convert by itself.

What cannot fail for a row must not be made to fail by it: a branch that is not taken, and what
stands behind AND and OR once they are decided, is evaluated for the other rows only. An overflow
and the like in what is evaluated is an error (`NoValue`), as in the databases, and never a value.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from protocols.algebra.functions import FUNCTIONS, check_call
from protocols.algebra.types import BOOLEAN, ColumnType, column_type
from protocols.errors import NoValue

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_REVERSED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


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


# -------------------------------------------------------------------------------------- columns


def columns_of(what: Condition | Expression) -> set[str]:
    """The names of all columns that it mentions."""
    if isinstance(what, Column):
        return {what.name}
    return set().union(*map(columns_of, parts_of(what)))


def parts_of(what: Condition | Expression) -> Iterator[Condition | Expression]:
    """What it is directly made of."""
    match what:
        case Comparison(left, _, right):
            yield from (left, right)
        case IsNull(inner) | IsTrue(inner):
            yield inner
        case Not(condition) | Truth(condition):
            yield condition
        case And(parts) | Or(parts):
            yield from parts
        case Call(_, arguments):
            yield from arguments
        case Case(branches, default):
            for condition, value_ in branches:
                yield from (condition, value_)
            yield default


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


def renamed(condition: Condition, name: Callable[[str], str]) -> Condition:
    """The same condition over columns with other names."""
    return in_condition(condition, lambda column: Column(name(column.name)))


def renamed_value(expression: Expression, name: Callable[[str], str]) -> Expression:
    """The same value of columns with other names."""
    return in_value(expression, lambda column: Column(name(column.name)))


# ---------------------------------------------------------------------------------------- types


def type_of(expression: Expression, columns: Mapping[str, ColumnType]) -> ColumnType:
    """Its type over these columns; ValueError where parts do not fit each other."""
    match expression:
        case Column(name):
            return columns[name]
        case Literal(_, type_):
            return type_
        case Call(function, arguments, type_):
            check_call(function, [type_of(argument, columns) for argument in arguments], type_)
            return type_
        case Case(branches, default, type_):
            for condition, _ in branches:
                check_types(condition, columns)
            for value_ in (*(then for _, then in branches), default):
                _check_type(value_, type_, columns)
            return type_
        case Truth(condition):
            check_types(condition, columns)
            return BOOLEAN


def check_types(condition: Condition, columns: Mapping[str, ColumnType]) -> None:
    """Raises ValueError where values of two types meet; nothing is left to a database's casts."""
    match condition:
        case Comparison(left, _, right):
            families = [type_of(side, columns).family for side in (left, right)]
            if families[0] != families[1]:
                raise ValueError(f"compares {families[0]} with {families[1]}")
        case IsNull(operand):
            type_of(operand, columns)
        case IsTrue(operand):
            _check_type(operand, BOOLEAN, columns)
        case Not(inner):
            check_types(inner, columns)
        case And(parts) | Or(parts):
            for part in parts:
                check_types(part, columns)


def _check_type(
    expression: Expression, wanted: ColumnType, columns: Mapping[str, ColumnType]
) -> None:
    found = type_of(expression, columns)
    if found != wanted:
        raise ValueError(f"has {found.name} where {wanted.name} is wanted")


# ------------------------------------------------------------------------------------- reference


def holds(condition: Condition, row: Mapping[str, Any]) -> bool | None:
    """Its truth value for one row; None is SQL's unknown."""
    match condition:
        case Comparison(left, op, right):
            values = value(left, row), value(right, row)
            if None in values:
                return None
            return _compare(op, *values)
        case IsNull(operand):
            return value(operand, row) is None
        case IsTrue(operand):
            truth: bool | None = value(operand, row)
            return truth
        case Not(inner):
            truth = holds(inner, row)
            return None if truth is None else not truth
        case And(parts):
            return _decided_by(False, parts, row)
        case Or(parts):
            return _decided_by(True, parts, row)


def _decided_by(deciding: bool, parts: Iterable[Condition], row: Mapping[str, Any]) -> bool | None:
    """False decides AND, true decides OR; what stands behind that is not looked at."""
    unknown = False
    for part in parts:
        truth = holds(part, row)
        if truth is deciding:
            return deciding
        unknown = unknown or truth is None
    return None if unknown else not deciding


def value(expression: Expression, row: Mapping[str, Any]) -> Any:
    """Its value for one row; None is NULL. NoValue where a database would raise an error."""
    match expression:
        case Column(name):
            return row[name]
        case Literal(constant):
            return constant
        case Call(function, arguments, type_):
            return FUNCTIONS[function].of(type_, [value(argument, row) for argument in arguments])
        case Case(branches, default):
            for condition, then in branches:
                if holds(condition, row):
                    return value(then, row)
            return value(default, row)
        case Truth(condition):
            return holds(condition, row)


def _compare(op: str, left: Any, right: Any) -> bool:
    """Comparison as the databases do it: NaN equals itself and is above every other number."""
    if isinstance(left, float) and isinstance(right, float):
        left, right = (left != left, left), (right != right, right)
        if left[0] or right[0]:
            left, right = left[0], right[0]
    return bool(COMPARISONS[op](left, right))


# ---------------------------------------------------------------------------------------- Polars


def to_polars(condition: Condition) -> pl.Expr:
    """The same truth value as a Polars expression."""
    return _condition(condition, None)


def value_to_polars(expression: Expression) -> pl.Expr:
    """The same value as a Polars expression; it is as long as a column only if it has one."""
    return _value(expression, None)


def _condition(condition: Condition, rows: pl.Expr | None) -> pl.Expr:
    """Where `rows` are given, what it is for other rows does not matter, and must not fail."""
    constant = _constant(Truth(condition))
    if constant is not None:
        return pl.lit(constant.value, dtype=pl.Boolean)
    match condition:
        case Comparison(left, op, right):
            if not columns_of(left):
                # Polars loses the length of `constant < CASE of constants`, not of the reverse.
                left, op, right = right, _REVERSED[op], left
            comparison: pl.Expr = COMPARISONS[op](_value(left, rows), _value(right, rows))
            return comparison
        case IsNull(operand):
            return _value(operand, rows).is_null()
        case IsTrue(operand):
            return _value(operand, rows)
        case Not(inner):
            return ~_condition(inner, rows)
        case And(parts):
            return _decided(False, parts, rows)
        case Or(parts):
            return _decided(True, parts, rows)


def _decided(deciding: bool, parts: Iterable[Condition], rows: pl.Expr | None) -> pl.Expr:
    """AND or OR; each part is about the rows that are not decided before it."""
    truths = []
    for part in parts:
        constant = _constant(Truth(part))
        if constant is not None and constant.value is deciding:
            return pl.lit(deciding)
        if constant is None or constant.value is None:
            truths.append(_condition(part, rows if _may_fail(part) else None))
            rows = _among(rows, truths[-1].ne_missing(deciding))
    return pl.any_horizontal(truths) if deciding else pl.all_horizontal(truths)


def _value(expression: Expression, rows: pl.Expr | None) -> pl.Expr:
    expression = _constant(expression) or expression
    match expression:
        case Column(name):
            return _masked(pl.col(name), rows)
        case Literal(constant, type_):
            return _masked(pl.lit(constant, dtype=type_.dtype), rows)
        case Call(function, arguments, type_):
            return FUNCTIONS[function].to_polars(type_, [_value(a, rows) for a in arguments])
        case Case():
            return _chosen(expression, rows)
        case Truth(condition):
            return _condition(condition, rows)


def _constant(expression: Expression) -> Literal | None:
    """What an expression without columns is, unless it fails."""
    if columns_of(expression):
        return None
    try:
        return Literal(value(expression, {}), type_of(expression, {}))
    except NoValue:
        return None


def _chosen(case: Case, rows: pl.Expr | None) -> pl.Expr:
    """Each branch is evaluated for the rows that come to it; the default is one for all of them."""
    chosen: list[tuple[pl.Expr, pl.Expr]] = []
    default = case.default
    for condition, then in case.branches:
        constant = _constant(Truth(condition))
        if constant is not None and constant.value:
            default = then
            break
        if constant is None:
            taken = _condition(condition, rows if _may_fail(condition) else None)
            there = _among(rows, taken.eq_missing(True)) if _may_fail(then) else None
            chosen.append((taken, _value(then, there)))
            rows = _among(rows, taken.ne_missing(True))
    value_ = _value(default, rows if _may_fail(default) else None)
    for taken, then_ in reversed(chosen):
        value_ = pl.when(taken).then(then_).otherwise(value_)
    return value_


def _may_fail(what: Condition | Expression) -> bool:
    return isinstance(what, Call) or any(map(_may_fail, parts_of(what)))


def _among(rows: pl.Expr | None, which: pl.Expr) -> pl.Expr:
    return which if rows is None else rows & which


def _masked(values: pl.Expr, rows: pl.Expr | None) -> pl.Expr:
    """NULL outside of the rows: no function fails for NULL."""
    return values if rows is None else pl.when(rows).then(values)


# ------------------------------------------------------------------------------------------ wire


def to_json(condition: Condition) -> list[Any]:
    """A form for the wire: nested lists with the operator first."""
    match condition:
        case Comparison(left, op, right):
            return [op, value_to_json(left), value_to_json(right)]
        case IsNull(operand):
            return ["is null", value_to_json(operand)]
        case IsTrue(operand):
            return ["is true", value_to_json(operand)]
        case Not(inner):
            return ["not", to_json(inner)]
        case And(parts):
            return ["and", *map(to_json, parts)]
        case Or(parts):
            return ["or", *map(to_json, parts)]


def value_to_json(expression: Expression) -> dict[str, Any]:
    """A form for the wire: an object whose keys say what it is."""
    match expression:
        case Column(name):
            return {"column": name}
        case Literal(constant, type_):
            return {"value": type_.encode(constant), "type": type_.name}
        case Call(function, arguments, type_):
            forms = [value_to_json(argument) for argument in arguments]
            return {"call": function, "arguments": forms, "type": type_.name}
        case Case(branches, default, type_):
            pairs = [[to_json(when), value_to_json(then)] for when, then in branches]
            return {"case": pairs, "else": value_to_json(default), "type": type_.name}
        case Truth(condition):
            return {"truth": to_json(condition)}


def from_json(form: Any) -> Condition:
    """Reads the wire form; ValueError when it is none."""
    match form:
        case [str(op), left, right] if op in COMPARISONS:
            return Comparison(value_from_json(left), op, value_from_json(right))
        case ["is null", operand]:
            return IsNull(value_from_json(operand))
        case ["is true", operand]:
            return IsTrue(value_from_json(operand))
        case ["not", inner]:
            return Not(from_json(inner))
        case ["and", *parts] if parts:
            return And(tuple(map(from_json, parts)))
        case ["or", *parts] if parts:
            return Or(tuple(map(from_json, parts)))
    raise ValueError(f"not a condition: {form!r}")


def value_from_json(form: Any) -> Expression:
    """Reads the wire form; ValueError when it is none."""
    match form:
        case {"column": str(name)}:
            return Column(name)
        case {"value": constant, "type": str(name)}:
            type_ = column_type(name)
            return Literal(type_.decode(constant), type_)
        case {"call": str(function), "arguments": [*arguments], "type": str(name)}:
            if function in FUNCTIONS:
                given = tuple(map(value_from_json, arguments))
                return Call(function, given, column_type(name))
        case {"case": [*pairs], "else": default, "type": str(name)} if pairs:
            branches = tuple(map(_branch_from_json, pairs))
            return Case(branches, value_from_json(default), column_type(name))
        case {"truth": condition}:
            return Truth(from_json(condition))
    raise ValueError(f"neither a column nor a value: {form!r}")


def _branch_from_json(form: Any) -> tuple[Condition, Expression]:
    match form:
        case [condition, then]:
            return from_json(condition), value_from_json(then)
    raise ValueError(f"not a branch: {form!r}")
