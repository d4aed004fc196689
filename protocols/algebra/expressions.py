"""Conditions and values as data: the contents of WHERE, ON and SELECT, without SQL text.

A condition is sent to a query server (`expressions_wire.py`) and evaluated there by the source's
database (sources/ turns it into SQL). Here the reference (`expressions_reference.py`) and Polars
(`expressions_polars.py`) evaluate it. All three follow SQL's three-valued logic: a comparison with
NULL is unknown, and unknown rows are dropped.

Both sides of a comparison have one type, and so do the branches of a Case; arguments have the types
that their function takes. The code that makes an expression adds a cast where SQL would convert
implicitly.

A row must not fail because of a part that it does not need. So a branch of CASE is evaluated only
for the rows that take it, and the parts of AND and OR only for rows that are not decided yet. An
overflow and the like in an evaluated part is an error (`NoValue`), as in the databases, and never
a value.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from protocols.algebra.types import ColumnType

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _Part:
    """The common part of all conditions and values."""

    @cached_property
    def levels(self) -> int:
        """How deep lists and objects are nested in its wire form."""
        below = max((part.levels for part in parts_of(self)), default=0)
        return below + {Call: 2, Case: 3}.get(type(self), 1)

    @cached_property
    def size(self) -> int:
        """The number of its parts; a repeated part counts each time."""
        return 1 + sum(part.size for part in parts_of(self))


@dataclass(frozen=True)
class Column(_Part):
    """A column, by its name in the given rows (qualified by alias above one atom)."""

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
    """Whether the operand equals one of these constants; NULL makes it unknown as in SQL."""

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


def conjuncts(condition: Condition | None) -> Iterator[Condition]:
    """The parts that must all hold; None (no condition) has none."""
    if condition is None:
        return
    if isinstance(condition, And):
        for part in condition.parts:
            yield from conjuncts(part)
    else:
        yield condition


def conjunction(parts: tuple[Condition, ...]) -> Condition | None:
    """The inverse: one condition from its parts, or None without parts."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    return And(parts)


def same(left: Expression, right: Expression) -> Condition:
    """`left IS NOT DISTINCT FROM right`: equal, or both NULL; never unknown."""
    nulls = IsNull(left), IsNull(right)
    equal = And((Not(nulls[0]), Not(nulls[1]), Comparison(left, "=", right)))
    return Or((And(nulls), equal))


def compared_by_same(condition: Condition) -> tuple[Expression, Expression] | None:
    """The two sides of `same`; None for any other condition."""
    match condition:
        case Or((And((IsNull(left), IsNull(right))), _)) if condition == same(left, right):
            return left, right
    return None


def columns_of(what: Condition | Expression) -> set[str]:
    """The names of all columns that it mentions."""
    if isinstance(what, Column):
        return {what.name}
    return set().union(*map(columns_of, parts_of(what)))


def parts_of(what: _Part) -> Iterator[Condition | Expression]:
    """Its direct parts."""
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


#: Column → the value that replaces it.
Values: TypeAlias = Callable[[Column], Expression]


def in_value(value: Expression, stands_for: Values) -> Expression:
    """The value with each column replaced."""
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
    """The condition with each column replaced."""
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
    """The same value over columns with other names."""
    return in_value(expression, lambda column: Column(name(column.name)))
