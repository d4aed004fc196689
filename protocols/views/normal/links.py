"""Columns to join on for equalities of computed values.

Columns of two types are compared in a third one: of `amount = id`, a DECIMAL(10,2) and a BIGINT,
SQL makes CAST(amount AS DECIMAL(21,2)) = CAST(id AS DECIMAL(21,2)), and no source can be asked for
that. But each side determines the value of the other's type that it equals, if there is one:

    exactly(amount, BIGINT) = id    and    amount = exactly(id, DECIMAL(10,2))

Both stand for the whole condition, so either side can be asked by its own column. Any other value
(CAST(amount AS BIGINT), which rounds; k + 1) becomes an additional column, and only the other side
can be asked by a column of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from protocols.algebra.expressions import (
    And,
    Call,
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    Literal,
    Truth,
    columns_of,
)
from protocols.algebra.numbertypes import as_decimal
from protocols.algebra.types import BIGINT, BOOLEAN, DOUBLE, ColumnType
from protocols.views import tree
from protocols.views.binding.rows import Names, as_column
from protocols.views.operands import common_type, digits_lost, kept


@dataclass(frozen=True)
class _Side:
    """One side of an equality."""

    node: tree.Node
    value: Expression

    @property
    def type(self) -> ColumnType:
        match self.value:
            case Column(name):
                return self.node.columns[name]
            case Truth():
                return BOOLEAN
            case value:
                return value.type

    @property
    def column(self) -> tuple[Column, ColumnType] | None:
        """The column that the side is, perhaps in a type that holds all of its values."""
        match self.value:
            case Column(name) as column:
                return column, self.node.columns[name]
            case Call("cast", (Column(name) as column,), type_):
                own = self.node.columns[name]
                return (column, own) if _has_room(type_, own) else None
        return None


@dataclass(frozen=True)
class EqualValues:
    """A condition that a value of one side equals a value of the other."""

    test: Condition
    left: _Side
    right: _Side


def equal_values(
    left: tree.Node, right: tree.Node, tests: Sequence[Condition]
) -> EqualValues | None:
    """The first condition that is such an equality."""
    for test in tests:
        match test:
            case Comparison(one, "=", other):
                for ours, theirs in ((one, other), (other, one)):
                    if _reads(ours, left) and _reads(theirs, right):
                        return EqualValues(test, _Side(left, ours), _Side(right, theirs))
    return None


def on_values(
    join: tree.Join, equal: EqualValues, names: Names
) -> tuple[tree.Join, tuple[tuple[str, str], ...]]:
    """The join with the equal values as columns of its sides, and the pairs of these columns."""
    sides, on = [join.left, join.right], list[tuple[str, str]]()
    for pair in _pairs(equal.left, equal.right):
        linked = []
        for side, value in enumerate(pair):
            type_ = _Side(sides[side], value).type
            sides[side], shown = as_column(sides[side], value, type_, names, "link")
            linked.append(shown.name)
        on.append((linked[0], linked[1]))
    return replace(join, left=sides[0], right=sides[1]), tuple(on)


def exactly(value: Expression, own: ColumnType, wanted: ColumnType) -> Expression:
    """The value of the wanted type that equals this one, or NULL."""
    if own == wanted:
        return value
    there = Call("cast", (value,), wanted)
    if _has_room(wanted, own):
        return there
    common = common_type(own, wanted)
    assert common is not None
    both = kept(common)
    widened, nothing = _as(value, own, both), Literal(None, wanted)
    same = Case(((Comparison(_as(there, wanted, both), "=", widened), there),), nothing, wanted)
    ends = _ends(wanted)
    if ends is None or _digits(own) < _digits(wanted):
        return same
    # A value outside the range of the type cannot even be cast.
    least, greatest = (Literal(both.decode(end), both) for end in ends)
    within = And((Comparison(widened, ">=", least), Comparison(widened, "<=", greatest)))
    return Case(((within, same),), nothing, wanted)


def exact(value: Expression) -> Expression | None:
    """Undoes `exactly`: the value that it converted; None for any other expression."""
    match value:
        case Case(((And((Comparison(_, ">=", _), Comparison(_, "<=", _))), inner),), Literal(None)):
            return exact(inner)
        case Case(
            ((Comparison(again, "=", widened), Call("cast", (one,), _) as there),), Literal(None)
        ) if again in (there, _recast(again, there)) and widened in (one, _recast(widened, one)):
            return one
    return None


def _pairs(left: _Side, right: _Side) -> list[tuple[Expression, Expression]]:
    """Equalities to use instead, with plain columns on as many sides as possible."""
    if left.column is None or right.column is None:
        return [(left.value, right.value)]
    (ours, our_type), (theirs, their_type) = left.column, right.column
    if our_type == their_type:
        return [(ours, theirs)]
    both = common_type(our_type, their_type)
    if both in (None, DOUBLE) or digits_lost(our_type, their_type, both):
        return [(left.value, right.value)]
    return [
        (exactly(ours, our_type, their_type), theirs),
        (ours, exactly(theirs, their_type, our_type)),
    ]


def _reads(value: Expression, node: tree.Node) -> bool:
    """Whether a value reads at least one column, and only columns of this node."""
    read = columns_of(value)
    return bool(read) and read <= node.columns.keys()


def _has_room(wide: ColumnType, own: ColumnType) -> bool:
    """Whether the wide type holds each value of the other type."""
    both = common_type(own, wide)
    return both == wide != DOUBLE and not digits_lost(own, wide, both)


def _as(value: Expression, own: ColumnType, wanted: ColumnType) -> Expression:
    return value if own == wanted else Call("cast", (value,), wanted)


def _recast(like: Expression, value: Expression) -> Expression | None:
    """The value under the same cast as another one; None if that is not a cast."""
    return Call("cast", (value,), like.type) if isinstance(like, Call) else None


def _digits(type_: ColumnType) -> int:
    """The number of digits before the point."""
    precision, scale = as_decimal(type_).precision_and_scale
    return precision - scale


def _ends(type_: ColumnType) -> tuple[str, str] | None:
    """The least and the greatest number of an exact numeric type."""
    if type_ == BIGINT:
        return str(-(2**63)), str(2**63 - 1)
    if type_.family != "DECIMAL":
        return None
    precision, scale = type_.precision_and_scale
    digits = "9" * precision
    greatest = f"{digits[: precision - scale] or '0'}.{digits[precision - scale :]}".rstrip(".")
    return f"-{greatest}", greatest
