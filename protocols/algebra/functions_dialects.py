"""Functions of numbers that only one of the databases has, for views that speak its dialect."""

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from protocols.algebra.function import Function, Signature, Unfit, always, infix
from protocols.algebra.functions_numbers import EXACT, fitting
from protocols.algebra.numbertypes import MOST_DIGITS, as_decimal, common_number, is_number
from protocols.algebra.types import BIGINT, DOUBLE, ColumnType, SqlType, decimal_type
from protocols.errors import NoValue

#: The digits after the point with which PostgreSQL's quotients are stored.
QUOTIENT_DIGITS = 20
#: The least significant digits of a quotient, and the digits that PostgreSQL groups into one.
_SIGNIFICANT, _GROUPED = 16, 4
_LONG = Context(prec=200)


def has_unknown_digits(type_: SqlType) -> bool:
    """Whether it is the type of a quotient, whose digits in PostgreSQL depend on its value."""
    if type_.family != "DECIMAL":
        return False
    precision, scale = type_.precision_and_scale
    return precision == MOST_DIGITS and scale >= QUOTIENT_DIGITS


# -- PostgreSQL ------------------------------------------------------------------------------------


def _whole(types: Sequence[SqlType]) -> Signature:
    left, right = types
    common = common_number(left, right)
    return Signature((common, common), common)


def _quotient(type_: ColumnType, left: int, right: int) -> Any:
    """The quotient without its fraction."""
    if not right:
        raise _by_zero(left)
    found = abs(left) // abs(right)
    return fitting(type_, found if (left < 0) == (right < 0) else -found)


def _exact(types: Sequence[SqlType]) -> Signature:
    left, right = map(as_decimal, types)
    for each in (left, right):
        if not is_number(each) or each == DOUBLE:
            raise Unfit(f"{each.name} is no exact number")
        if has_unknown_digits(each):
            raise Unfit(
                "the number of digits of a quotient or an AVG depends on its value, and so would"
                " those of this quotient; give it a fixed number first: CAST(… AS DECIMAL(30,10))"
            )
    return Signature((left, right), decimal_type(MOST_DIGITS, QUOTIENT_DIGITS))


def _exact_quotient(type_: ColumnType, left: Decimal, right: Decimal) -> Any:
    """The quotient with as many digits as PostgreSQL gives it (select_div_scale)."""
    if not right:
        raise _by_zero(left)
    weight, first = _leading(left)
    under, divisor = _leading(right)
    weight -= under + (first <= divisor)
    scale = max(_SIGNIFICANT - weight * _GROUPED, _digits(left), _digits(right), 0)
    found = _rounded(_LONG.divide(left, right), scale)
    return fitting(type_, _rounded(found, QUOTIENT_DIGITS))


def _leading(number: Decimal) -> tuple[int, int]:
    """The place of the first group of four digits that is not 0, and the group; of 0, two zeros."""
    if not number:
        return 0, 0
    place = number.adjusted() // _GROUPED
    return place, int(abs(number).scaleb(-place * _GROUPED, EXACT))


def _digits(number: Decimal) -> int:
    return -int(number.as_tuple().exponent)


def _rounded(number: Decimal, digits: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _LONG)


def _by_zero(number: object) -> NoValue:
    return NoValue(f"{number} / 0 divides by zero; write NULLIF(…, 0) to get NULL")


def _half_to_even(_type: ColumnType, number: float) -> float:
    return math.copysign(round(number), number) if math.isfinite(number) else number


# -- DuckDB ----------------------------------------------------------------------------------------


def _half_away(_type: ColumnType, number: float, digits: int) -> float:
    """ROUND of DuckDB: the number as it is if it is too large for so many digits."""
    times = 10.0**digits
    shifted = number * times
    if not math.isfinite(shifted):
        return number
    whole = math.floor(abs(shifted))
    whole += abs(shifted) - whole >= 0.5
    return math.copysign(whole, number) / times


def _one_double(types: Sequence[SqlType]) -> Signature:
    if types[0] != DOUBLE:
        raise Unfit(f"ROUND takes numbers, not {types[0].name}")
    return Signature((DOUBLE,), DOUBLE)


def _double_and_digits(types: Sequence[SqlType]) -> Signature:
    return Signature((*_one_double(types).arguments, BIGINT), DOUBLE)


DIALECTS: Iterable[Function] = (
    Function("quotient", _whole, _quotient, infix("//")),
    Function("exact quotient", _exact, _exact_quotient, None),
    Function(
        "round half to even",
        _one_double,
        _half_to_even,
        lambda _, texts: f"round_even({texts[0]}, 0)",
        lambda _, column: column.round(0, mode="half_to_even"),
        never_fails=always,
    ),
    Function(
        "round",
        _double_and_digits,
        _half_away,
        lambda _, texts: f"round({texts[0]}, CAST({texts[1]} AS INTEGER))",
        never_fails=always,
    ),
)
