"""Conditions and values as data: what WHERE, ON and SELECT say, free of any SQL text.

A condition travels to a query server (`expressions_wire.py`), is evaluated there by the source's
database (sources/ turns it into SQL), here by the reference (`expressions_reference.py`) and by
Polars (`expressions_polars.py`). All three follow SQL's three-valued logic: a comparison with NULL
is unknown, and unknown rows are dropped.

Both sides of a comparison have one type, as have the branches of a Case; arguments are what their
function takes. Whoever makes an expression puts a cast where SQL would convert by itself.

What cannot fail for a row must not be made to fail by it: a branch that is not taken, and what
stands behind AND and OR once they are decided, is evaluated for the other rows only. An overflow
and the like in what is evaluated is an error (`NoValue`), as in the databases, and never a value.
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


def conjuncts(condition: Condition | None) -> Iterator[Condition]:
    """The parts that must all hold; None, no condition, has none."""
    if condition is None:
        return
    if isinstance(condition, And):
        for part in condition.parts:
            yield from conjuncts(part)
    else:
        yield condition


def conjunction(parts: tuple[Condition, ...]) -> Condition | None:
    """All of them in one, or None when there are none: the inverse."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    return And(parts)


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
