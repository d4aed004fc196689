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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import polars as pl

from protocols.algebra.functions import FUNCTIONS, check_call
from protocols.algebra.steps import (
    Applied,
    Chosen,
    Constant,
    Decided,
    Input,
    Step,
    is_null,
    to_expression,
)
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


class _Part:
    """What all conditions and values have."""

    @cached_property
    def levels(self) -> int:
        """How many lists and objects stand one in another in its form for the wire."""
        below = max((part.levels for part in parts_of(self)), default=0)
        return below + {Call: 2, Case: 3}.get(type(self), 1)

    @cached_property
    def size(self) -> int:
        """Of how many parts it is made; one that is repeated counts as often."""
        return 1 + sum(part.size for part in parts_of(self))


@dataclass(frozen=True)
class Column(_Part):
    """A column, by the name it has in the rows at hand (qualified by alias above one atom)."""

    name: str


@dataclass(frozen=True)
class Literal(_Part):
    """A constant of a column's type; None is NULL."""

    value: Any
    type: ColumnType


@dataclass(frozen=True)
class Call(_Part):
    """An operator or a function; NULL in, NULL out, unless `functions.py` says otherwise."""

    function: str
    arguments: tuple["Expression", ...]
    type: ColumnType


@dataclass(frozen=True)
class Case(_Part):
    """The value of the first branch whose condition is true, else the default."""

    branches: tuple[tuple["Condition", "Expression"], ...]
    default: "Expression"
    type: ColumnType


@dataclass(frozen=True)
class Truth(_Part):
    """The truth value of a condition as a BOOLEAN; unknown is NULL."""

    condition: "Condition"


Expression = Column | Literal | Call | Case | Truth


@dataclass(frozen=True)
class Comparison(_Part):
    left: Expression
    op: str
    right: Expression


@dataclass(frozen=True)
class In(_Part):
    """Whether the operand equals one of these constants of a type; unknown beside a NULL."""

    operand: Expression
    values: tuple[Any, ...]
    type: ColumnType


@dataclass(frozen=True)
class IsNull(_Part):
    operand: Expression


@dataclass(frozen=True)
class IsTrue(_Part):
    """A BOOLEAN value as a condition."""

    operand: Expression


@dataclass(frozen=True)
class Not(_Part):
    inner: "Condition"


@dataclass(frozen=True)
class And(_Part):
    parts: tuple["Condition", ...]


@dataclass(frozen=True)
class Or(_Part):
    parts: tuple["Condition", ...]


Condition = Comparison | In | IsNull | IsTrue | Not | And | Or


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


def parts_of(what: _Part) -> Iterator[Condition | Expression]:
    """What it is directly made of."""
    match what:
        case Comparison(left, _, right):
            yield from (left, right)
        case In(inner) | IsNull(inner) | IsTrue(inner):
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
        case In(operand, values, type_):
            return In(in_value(operand, stands_for), values, type_)
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
            _check_families(type_of(left, columns), type_of(right, columns))
        case In(operand, _, type_):
            _check_families(type_of(operand, columns), type_)
        case IsNull(operand):
            type_of(operand, columns)
        case IsTrue(operand):
            _check_type(operand, BOOLEAN, columns)
        case Not(inner):
            check_types(inner, columns)
        case And(parts) | Or(parts):
            for part in parts:
                check_types(part, columns)


def _check_families(left: ColumnType, right: ColumnType) -> None:
    if left.family != right.family:
        raise ValueError(f"compares {left.family} with {right.family}")


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
            return _compared(op, value(left, row), value(right, row))
        case In(operand, values):
            return _is_among(value(operand, row), values)
        case IsNull(operand):
            return value(operand, row) is None
        case IsTrue(operand):
            truth: bool | None = value(operand, row)
            return truth
        case Not(inner):
            return _negated(holds(inner, row))
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


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _is_among(wanted: Any, values: Iterable[Any]) -> bool | None:
    """Equality with one of them, as OR of equalities says it."""
    truths = {_compared("=", wanted, each) for each in values}
    return True if True in truths else None if None in truths else False


def _compared(op: str, left: Any, right: Any) -> bool | None:
    """Comparison as the databases do it: NaN equals itself and is above every other number."""
    if left is None or right is None:
        return None
    if isinstance(left, float) and isinstance(right, float):
        left, right = (left != left, left), (right != right, right)
        if left[0] or right[0]:
            left, right = left[0], right[0]
    return bool(COMPARISONS[op](left, right))


# ---------------------------------------------------------------------------------------- Polars


def to_polars(condition: Condition) -> pl.Expr:
    """The same truth value as a Polars expression."""
    if _is_plain(condition):
        return _plainly(condition)
    return _stepwise(condition, BOOLEAN)


def value_to_polars(expression: Expression) -> pl.Expr:
    """The same value as a Polars expression; it is as long as a column only if it has one."""
    match expression:
        case Column(name):
            return pl.col(name)
        case Truth(condition):
            return to_polars(condition)
        case Literal(_, type_) | Call(_, _, type_) | Case(_, _, type_):
            return _stepwise(expression, type_)


def _is_plain(condition: Condition) -> bool:
    """Is it about columns and constants alone? Then Polars has all that it needs."""
    match condition:
        case Comparison(left, _, right):
            sides = left, right
            return any(isinstance(side, Column) for side in sides) and all(
                isinstance(side, Column | Literal) for side in sides
            )
        case In(operand) | IsNull(operand) | IsTrue(operand):
            return isinstance(operand, Column)
        case Not(inner):
            return _is_plain(inner)
        case And(parts) | Or(parts):
            return all(map(_is_plain, parts))


def _plainly(condition: Condition) -> pl.Expr:
    match condition:
        case Comparison(left, op, right):
            comparison: pl.Expr = COMPARISONS[op](_side(left), _side(right))
            return comparison
        case In(operand, values, type_):
            return _side(operand).is_in(_collected(values, type_)) | pl.lit(_unknown_among(values))
        case IsNull(operand):
            return _side(operand).is_null()
        case IsTrue(operand):
            return _side(operand)
        case Not(inner):
            return ~_plainly(inner)
        case And(parts):
            return pl.all_horizontal(map(_plainly, parts))
        case Or(parts):
            return pl.any_horizontal(map(_plainly, parts))


def _side(operand: Expression) -> pl.Expr:
    if isinstance(operand, Column):
        return pl.col(operand.name)
    assert isinstance(operand, Literal)
    return pl.lit(operand.value, dtype=operand.type.dtype)


def _stepwise(what: Condition | Expression, type_: ColumnType) -> pl.Expr:
    made = _Steps()
    step = made.of(what)
    if isinstance(step, Constant):
        return pl.lit(step.value, dtype=type_.dtype)
    return to_expression(step, made.columns, type_.dtype)


class _Steps:
    """Makes the steps of conditions and values: of equal parts one, of constant ones a constant.

    A constant part that has no value stays a step, to fail only if it is needed.
    """

    def __init__(self) -> None:
        self.columns: list[str] = []
        self._made: dict[tuple[Any, ...], Step] = {}

    def of(self, what: Condition | Expression) -> Step:
        """The step that gives the value, or the truth value, of this."""
        match what:
            case Column(name):
                return self._input(name)
            case Literal(constant, type_):
                return self._constant(constant, type_)
            case Truth(inner) | IsTrue(inner):
                return self.of(inner)
            case And(parts):
                return self._decided(False, parts)
            case Or(parts):
                return self._decided(True, parts)
            case Case():
                return self._chosen(what)
            case Call():
                return self._called(what)
            case Comparison(left, op, right):
                return self._applied(
                    (op,),
                    (self.of(left), self.of(right)),
                    lambda *sides: _compared(op, *sides),
                    lambda sides: COMPARISONS[op](*sides),
                )
            case In(operand, values, type_):
                collected, unknown = _collected(values, type_), _unknown_among(values)
                return self._applied(
                    ("in", type_, *map(repr, values)),
                    (self.of(operand),),
                    lambda wanted: _is_among(wanted, values),
                    lambda columns: columns[0].is_in(collected) | unknown,
                )
            case IsNull(operand):
                return self._applied(
                    ("is null",),
                    (self.of(operand),),
                    lambda found: found is None,
                    lambda columns: is_null(columns[0]),
                )
            case Not(inner):
                return self._applied(
                    ("not",), (self.of(inner),), _negated, lambda truths: ~truths[0]
                )

    def _input(self, name: str) -> Step:
        if name not in self.columns:
            self.columns.append(name)
        return self._once(("column", name), lambda: Input(False, self.columns.index(name)))

    def _constant(self, constant: Any, type_: ColumnType) -> Step:
        # -0.0 equals 0.0 and is another constant.
        key = ("constant", type_, repr(constant))
        return self._once(key, lambda: Constant(False, constant, type_))

    def _called(self, call: Call) -> Step:
        function, type_ = FUNCTIONS[call.function], call.type
        operands = tuple(map(self.of, call.arguments))
        known = [each.value if isinstance(each, Constant) else ... for each in operands]
        return self._applied(
            (call.function, type_),
            operands,
            lambda *values: function.of(type_, values),
            lambda columns: function.of_columns(type_, columns),
            type_,
            fails=not function.never_fails(type_, known),
        )

    def _applied(
        self,
        name: tuple[Any, ...],
        operands: tuple[Step, ...],
        of_values: Callable[..., Any],
        of_columns: Callable[[Sequence[pl.Series]], pl.Series],
        type_: ColumnType = BOOLEAN,
        fails: bool = False,
    ) -> Step:
        """A function of other steps, of values and of columns."""
        constants = [each.value for each in operands if isinstance(each, Constant)]
        if len(constants) == len(operands):
            try:
                return self._constant(of_values(*constants), type_)
            except NoValue:
                pass
        may_fail = fails or any(each.may_fail for each in operands)
        return self._once(
            (*name, *operands), lambda: Applied(may_fail, operands, of_columns, fails)
        )

    def _decided(self, deciding: bool, parts: Iterable[Condition]) -> Step:
        steps: list[Step] = []
        for step in map(self.of, parts):
            if not isinstance(step, Constant) or step.value is None:
                steps.append(step)
            elif step.value is deciding:
                # Nothing behind it is needed; what stands before it only if it may fail.
                steps = [*steps, step] if any(each.may_fail for each in steps) else [step]
                break
        needed = tuple(dict.fromkeys(steps))
        if len(needed) < 2:
            return needed[0] if needed else self._constant(not deciding, BOOLEAN)
        may_fail = any(each.may_fail for each in needed)
        return self._once(
            ("decided", deciding, *needed), lambda: Decided(may_fail, deciding, needed)
        )

    def _chosen(self, case: Case) -> Step:
        branches: list[tuple[Step, Step]] = []
        default = case.default
        for condition, then in case.branches:
            test = self.of(condition)
            if not isinstance(test, Constant):
                branches.append((test, self.of(then)))
            elif test.value:
                default = then
                break
        last = self.of(default)
        if not branches:
            return last
        may_fail = any(each.may_fail for each in (last, *chain.from_iterable(branches)))
        return self._once(
            ("case", case.type, *branches, last),
            lambda: Chosen(may_fail, tuple(branches), last, case.type),
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Step]) -> Step:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found


def _collected(values: Iterable[Any], type_: ColumnType) -> pl.Series:
    """The values that are none of NULL, as one list."""
    there = [each for each in values if each is not None]
    return pl.Series(there, dtype=type_.dtype).implode()


def _unknown_among(values: Iterable[Any]) -> pl.Series:
    """What OR makes unknown where a value is among none of these: NULL might be it."""
    return pl.Series([None if None in values else False], dtype=pl.Boolean)


# ------------------------------------------------------------------------------------------ wire


def to_json(condition: Condition) -> list[Any]:
    """A form for the wire: nested lists with the operator first."""
    match condition:
        case Comparison(left, op, right):
            return [op, value_to_json(left), value_to_json(right)]
        case In(operand, values, type_):
            listed = {"values": list(map(type_.encode, values)), "type": type_.name}
            return ["in", value_to_json(operand), listed]
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
        case ["in", operand, {"values": [_, *_] as values, "type": str(name)}]:
            type_ = column_type(name)
            return In(value_from_json(operand), tuple(map(type_.decode, values)), type_)
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
