"""Operands of expressions before their type is settled, and the type that two of them share.

`INTEGER` is a type only here: DuckDB gives it to a whole number in the text, and it needs fewer
digits in a DECIMAL than a BIGINT. Its values are kept as BIGINT, so it is a `SqlType` and not a
`ColumnType`: mypy finds every place where `kept` is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from types import EllipsisType
from typing import TypeAlias

from sqlglot import exp

from protocols.algebra.expressions import Condition, Expression, Literal
from protocols.algebra.numbertypes import (
    INTEGER,
    MOST_DIGITS,
    as_decimal,
    common_number,
    is_number,
)
from protocols.algebra.types import (
    BIGINT,
    DATE,
    DOUBLE,
    TIMESTAMP,
    ColumnType,
    SqlType,
    decimal_type,
)


class Number(str):
    """The digits of a number in the SQL text."""


#: A text, the digits of a number, a truth value, NULL.
Constant: TypeAlias = str | Number | bool | None


@dataclass(frozen=True)
class Operand:
    """A value whose type may not be settled yet: a constant then, as it stands in the text."""

    node: exp.Expr
    expression: Expression
    #: INTEGER and None, for NULL, occur only here.
    type: SqlType | None
    #: The constant if it is one.
    constant: Constant | EllipsisType = ...

    @property
    def is_constant(self) -> bool:
        return self.constant is not ...

    @property
    def is_column(self) -> bool:
        """Is it a column in the text?"""
        return isinstance(self.node, exp.Column)

    @property
    def is_open(self) -> bool:
        """Can it take any type? A text that is not a number, for instance, may still be a date."""
        return self.is_constant and not isinstance(self.constant, Number | bool)

    @property
    def has_exponent(self) -> bool:
        """Is it a number like 1e3, a DOUBLE in DuckDB and a NUMERIC in PostgreSQL?"""
        return isinstance(self.constant, Number) and self.type == DOUBLE


#: Turns the digits into a value that the type decodes; no other type has numbers.
FROM_DIGITS: dict[str, Callable[[str], object]] = {
    "BIGINT": int,
    "DOUBLE": float,
    "DECIMAL": str,
}


#: orjson writes 254 levels.
_MOST_LEVELS = 240
_MOST_PARTS = 20_000


def number_type(text: str) -> SqlType | None:
    """The type that DuckDB gives a number in the text; None if it has too many digits for us."""
    if "e" in text.lower():
        return DOUBLE
    digits = text.lstrip("-")
    if "." in digits:
        scale = len(digits) - 1 - digits.index(".")
        return decimal_type(len(digits) - 1, scale) if len(digits) - 1 <= MOST_DIGITS else None
    if -(2**31) <= int(text) < 2**31:
        return INTEGER
    return BIGINT if -(2**63) <= int(text) < 2**63 else None


def written_out(text: str) -> str:
    """A number with an exponent as PostgreSQL reads it: as digits, with a point."""
    if "e" not in text.lower():
        return text
    digits = format(Decimal(text), "f")
    return digits if "." in digits else digits + "."


def of_type(constant: Operand, type_: ColumnType) -> Literal:
    """A constant as a value of a type; raises ValueError or KeyError if it is none."""
    value: object = constant.constant
    if isinstance(value, Number):
        value = FROM_DIGITS[type_.family](value)
    return Literal(type_.decode(value), type_)


def too_large(what: Condition | Expression) -> str | None:
    """The reason why an expression cannot be sent to a source, or evaluated; None if it can."""
    if what.levels > _MOST_LEVELS:
        return "is nested too deeply"
    if what.size > _MOST_PARTS:
        return f"has more than {_MOST_PARTS} parts once COALESCE and the like are written out"
    return None


def kept(type_: SqlType) -> ColumnType:
    """The type in which values are kept."""
    return type_ if isinstance(type_, ColumnType) else BIGINT


def type_name(type_: SqlType | None) -> str:
    return "NULL" if type_ is None else kept(type_).name


def common_type(left: SqlType | None, right: SqlType | None) -> SqlType | None:
    """The type in which both can be compared; None if there is none."""
    if left == right or right is None:
        return left
    if left is None:
        return right
    if is_number(left) and is_number(right):
        return common_number(left, right)
    return TIMESTAMP if {left, right} == {DATE, TIMESTAMP} else None


def digits_lost(left: SqlType | None, right: SqlType | None, common: SqlType) -> bool:
    """Are 38 digits too few for the digits before the point?"""
    if common.family != "DECIMAL":
        return False
    precision, scale = common.precision_and_scale
    sides = (as_decimal(t).precision_and_scale for t in (left, right) if t is not None)
    return any(p - s > precision - scale for p, s in sides)
