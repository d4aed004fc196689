"""Arithmetic on BIGINT, DOUBLE and DECIMAL, with the types that DuckDB gives it.

Values of INTEGER (numbertypes.py) are kept as BIGINT, and `integer` tests that they fit.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import polars as pl

from protocols.algebra.function import Function, NeverFails, Signature, Unfit, always, call, infix
from protocols.algebra.numbertypes import (
    MOST_DIGITS,
    SHORT_DIGITS,
    as_decimal,
    common_number,
    is_number,
    product_type,
    sum_type,
)
from protocols.algebra.types import BIGINT, DOUBLE, ColumnType, SqlType, decimal_type
from protocols.errors import NoValue

#: Enough digits for any sum or product of two values of 38.
EXACT = Context(prec=100)
#: The bound of a column of whole numbers with 128 bits.
_WIDEST = 2**127


# ---------------------------------------------------------------------------------------- types


def _numbers(name: str, types: Sequence[SqlType], count: int) -> None:
    """Raises Unfit unless there are `count` types and all are numbers."""
    if len(types) != count:
        raise Unfit(f"{name} takes {count} value{'s' * (count > 1)}, not {len(types)}")
    for type_ in types:
        if not is_number(type_):
            raise Unfit(f"{name} takes numbers, not {type_.name}")


def _arithmetic(
    name: str, decimals: Callable[[SqlType, SqlType], SqlType]
) -> Callable[[Sequence[SqlType]], Signature]:
    """Whole numbers stay whole, one DOUBLE makes all DOUBLE; `decimals` gives the other types."""

    def signature(types: Sequence[SqlType]) -> Signature:
        _numbers(name, types, 2)
        left, right = types
        if "DECIMAL" not in (left.family, right.family) or DOUBLE in types:
            common = common_number(left, right)
            return Signature((common, common), common)
        left, right = as_decimal(left), as_decimal(right)
        return Signature((left, right), decimals(left, right))

    return signature


def _remainder(types: Sequence[SqlType]) -> Signature:
    if DOUBLE in types:
        raise Unfit("PostgreSQL has no % for DOUBLE; cast to BIGINT")
    return _arithmetic("%", common_number)(types)


def _quotient(types: Sequence[SqlType]) -> Signature:
    _numbers("/", types, 2)
    if DOUBLE not in types:
        raise Unfit(
            f"{types[0].name} / {types[1].name} is a DOUBLE in DuckDB, but truncated or rounded in"
            " PostgreSQL; cast one side to DOUBLE"
        )
    return Signature((DOUBLE, DOUBLE), DOUBLE)


def _same(name: str) -> Callable[[Sequence[SqlType]], Signature]:
    def signature(types: Sequence[SqlType]) -> Signature:
        _numbers(name, types, 1)
        return Signature((types[0],), types[0])

    return signature


def _to_whole(name: str) -> Callable[[Sequence[SqlType]], Signature]:
    def signature(types: Sequence[SqlType]) -> Signature:
        _numbers(name, types, 1)
        if types[0].family in ("INTEGER", "BIGINT"):
            raise Unfit(f"{name} of a BIGINT would be a DOUBLE; it is a whole number already")
        if types[0] == DOUBLE:
            return Signature((DOUBLE,), DOUBLE)
        precision, _ = types[0].precision_and_scale
        return Signature((types[0],), decimal_type(precision, 0))

    return signature


# ------------------------------------------------------------------------------------- one value


def fitting(type_: ColumnType, number: Any) -> Any:
    """The number as a value of the type; raises NoValue if it has too many digits."""
    if type_ == BIGINT:
        if not -(2**63) <= number < 2**63:
            raise NoValue(f"{number} is not a BIGINT; cast to a DECIMAL or a DOUBLE first")
        return int(number)
    precision, scale = type_.precision_and_scale
    if number.copy_abs() >= EXACT.scaleb(Decimal(1), precision - scale):
        raise NoValue(f"{number} is not a {type_.name}; cast to one with more digits first")
    # Plus turns -0 into 0.
    return EXACT.plus(EXACT.quantize(number, EXACT.scaleb(Decimal(1), -scale)))


def _exactly(
    of_decimals: Callable[[Decimal, Decimal], Decimal], of_others: Callable[[Any, Any], Any]
) -> Callable[[ColumnType, Any, Any], Any]:
    def applied(type_: ColumnType, left: Any, right: Any) -> Any:
        if type_ == DOUBLE:
            return of_others(left, right)
        exact = of_decimals if type_.family == "DECIMAL" else of_others
        return fitting(type_, exact(left, right))

    return applied


def _divided(_type: ColumnType, left: float, right: float) -> float:
    """Divides as the processor does: by zero it returns an infinity or NaN, and no error."""
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _remainder_of(type_: ColumnType, left: Any, right: Any) -> Any:
    """The remainder, with the sign of the dividend."""
    if not right:
        raise NoValue(f"{left} % {right} divides by zero; write NULLIF(…, 0) to get NULL")
    if type_ != BIGINT:
        return fitting(type_, EXACT.remainder(left, right))
    sign = 1 if left >= 0 else -1
    # The quotient has to be a BIGINT as well.
    fitting(type_, left // right)
    return abs(left) % abs(right) * sign


def _negated(type_: ColumnType, number: Any) -> Any:
    if type_ == DOUBLE:
        return -number
    return fitting(type_, EXACT.minus(number) if isinstance(number, Decimal) else -number)


def _absolute(type_: ColumnType, number: Any) -> Any:
    return _negated(type_, number) if number < 0 else abs(number) if number == 0 else number


def _rounded(rounding: str) -> Callable[[ColumnType, Any], Any]:
    """FLOOR and CEIL; a DOUBLE that becomes zero keeps its sign."""

    def applied(type_: ColumnType, number: Any) -> Any:
        if type_ != DOUBLE:
            return fitting(type_, number.quantize(Decimal(1), rounding, EXACT))
        if not math.isfinite(number):
            return number
        whole = math.floor(number) if rounding == ROUND_FLOOR else math.ceil(number)
        return math.copysign(float(whole), number)

    return applied


def _rounded_column(rounding: str) -> Callable[[ColumnType, pl.Series], pl.Series | None]:
    def applied(type_: ColumnType, column: pl.Series) -> pl.Series | None:
        if not isinstance(column.dtype, pl.Decimal):
            return column.floor() if rounding == ROUND_FLOOR else column.ceil()
        factor = 10**column.dtype.scale
        one, below = (pl.Series([number], dtype=pl.Int128) for number in (factor, factor - 1))
        whole = column.to_physical()
        return of_units((whole if rounding == ROUND_FLOOR else whole + below) // one, type_)

    return applied


def _integer(_type: ColumnType, number: int) -> int:
    if not -(2**31) <= number < 2**31:
        raise NoValue(f"{number} is not an INTEGER; cast to BIGINT first")
    return number


# --------------------------------------------------------------------------------- whole columns


def units(column: pl.Series, scale: int) -> pl.Series | None:
    """A DECIMAL column as whole multiples of 10^-scale; None if they might exceed 128 bits."""
    assert isinstance(column.dtype, pl.Decimal)
    whole = column.to_physical()
    factor = 10 ** (scale - column.dtype.scale)
    if largest(whole) * factor >= _WIDEST:
        return None
    return whole if factor == 1 else whole * pl.Series([factor], dtype=pl.Int128)


def coarser(column: pl.Series, scale: int) -> pl.Series | None:
    """A DECIMAL column rounded to whole multiples of 10^-scale; its own scale is larger."""
    assert isinstance(column.dtype, pl.Decimal)
    whole, factor = column.to_physical(), 10 ** (column.dtype.scale - scale)
    if largest(whole) + factor >= _WIDEST:
        return None
    one, half = (pl.Series([number], dtype=pl.Int128) for number in (factor, factor // 2))
    return (whole.abs() + half) // one * whole.sign()


def of_units(whole: pl.Series | None, type_: ColumnType) -> pl.Series | None:
    """The DECIMAL column from whole multiples of 10^-scale; None if the type has too few digits."""
    if whole is None or largest(whole) >= 10 ** type_.precision_and_scale[0]:
        return None
    return whole.reinterpret(dtype=type_.dtype)


def largest(column: pl.Series) -> int:
    """The largest absolute value in a column of whole numbers."""
    values = [column.min(), column.max()]
    return max((abs(value) for value in values if isinstance(value, int)), default=0)


def _columns(
    of_columns: Callable[[Any, Any], Any],
    bound: Callable[[int, int], int],
    scaled: bool,
) -> Callable[[ColumnType, pl.Series, pl.Series], pl.Series | None]:
    """An operation on whole numbers; `scaled` if both sides need the scale of the result."""

    def applied(type_: ColumnType, left: pl.Series, right: pl.Series) -> pl.Series | None:
        if type_ == DOUBLE:
            found: pl.Series = of_columns(left, right)
            return found
        if type_ == BIGINT:
            whole = _bounded(left.cast(pl.Int128), right.cast(pl.Int128))
            if whole is None or largest(whole) >= 2**63:
                return None
            return whole.cast(pl.Int64)
        scales = [
            type_.precision_and_scale[1] if scaled else column.dtype.scale  # type: ignore[attr-defined]
            for column in (left, right)
        ]
        return of_units(_bounded(units(left, scales[0]), units(right, scales[1])), type_)

    def _bounded(left: pl.Series | None, right: pl.Series | None) -> pl.Series | None:
        if left is None or right is None or bound(largest(left), largest(right)) >= _WIDEST:
            return None
        found: pl.Series = of_columns(left, right)
        return found

    return applied


def _divided_columns(_type: ColumnType, left: pl.Series, right: pl.Series) -> pl.Series | None:
    """Polars would multiply by the inverse of a single divisor, which rounds twice."""
    if len(right) == 1:
        return None if len(left) == 1 else left / right.new_from_index(0, len(left))
    return left / right


def _remainder_columns(
    type_: ColumnType, dividends: pl.Series, divisors: pl.Series
) -> pl.Series | None:
    if (divisors == 0).any() or _holds_lowest(dividends, divisors):
        return None
    if type_ == BIGINT:
        return dividends.abs() % divisors.abs() * dividends.sign()
    scale = type_.precision_and_scale[1]
    left, right = units(dividends, scale), units(divisors, scale)
    if left is None or right is None:
        return None
    return of_units(left.abs() % right.abs() * left.sign(), type_)


def _negated_column(_type: ColumnType, column: pl.Series) -> pl.Series | None:
    return None if _holds_lowest(column) else -column


def _absolute_column(_type: ColumnType, column: pl.Series) -> pl.Series | None:
    return None if _holds_lowest(column) else column.abs()


def _holds_lowest(*columns: pl.Series) -> bool:
    """Whether a column contains the lowest BIGINT, whose negation is not a BIGINT."""
    return any(column.dtype == pl.Int64() and column.min() == -(2**63) for column in columns)


# --------------------------------------------------------------------------------- without fail


def _with_room(*full: int) -> NeverFails:
    """Never fails for DOUBLE, nor for DECIMAL unless its precision is in `full`, at the cap."""

    def never_fails(type_: ColumnType, _arguments: Sequence[Any]) -> bool:
        return type_ == DOUBLE or (
            type_.family == "DECIMAL" and type_.precision_and_scale[0] not in full
        )

    return never_fails


def _divides_by_a_number(type_: ColumnType, arguments: Sequence[Any]) -> bool:
    """Never fails if the divisor is a constant other than 0, and for BIGINT other than -1.

    The lowest BIGINT divided by -1 is not a BIGINT.
    """
    divisor = arguments[1]
    whole = type_ == BIGINT and divisor not in (..., None, 0, -1)
    return whole or (_with_room(MOST_DIGITS)(type_, ()) and divisor not in (..., None, 0))


# ---------------------------------------------------------------------------------- the entries


def _binary(
    name: str,
    type_of: Callable[[SqlType, SqlType], SqlType],
    of_decimals: Callable[[Decimal, Decimal], Decimal],
    of_others: Callable[[Any, Any], Any],
    bound: Callable[[int, int], int],
    never_fails: NeverFails,
) -> Function:
    return Function(
        name,
        _arithmetic(name, type_of),
        _exactly(of_decimals, of_others),
        infix(name),
        _columns(of_others, bound, scaled=type_of is sum_type),
        never_fails=never_fails,
    )


NUMBERS: Iterable[Function] = (
    _binary("+", sum_type, EXACT.add, operator.add, operator.add, _with_room(MOST_DIGITS)),
    _binary("-", sum_type, EXACT.subtract, operator.sub, operator.add, _with_room(MOST_DIGITS)),
    _binary(
        "*",
        product_type,
        EXACT.multiply,
        operator.mul,
        operator.mul,
        _with_room(SHORT_DIGITS, MOST_DIGITS),
    ),
    Function("/", _quotient, _divided, infix("/"), _divided_columns, never_fails=always),
    Function(
        "%",
        _remainder,
        _remainder_of,
        infix("%"),
        _remainder_columns,
        never_fails=_divides_by_a_number,
    ),
    Function("negate", _same("-"), _negated, call("-"), _negated_column, never_fails=_with_room()),
    Function(
        "abs", _same("ABS"), _absolute, call("abs"), _absolute_column, never_fails=_with_room()
    ),
    Function(
        "floor",
        _to_whole("FLOOR"),
        _rounded(ROUND_FLOOR),
        call("floor"),
        _rounded_column(ROUND_FLOOR),
        never_fails=always,
    ),
    Function(
        "ceil",
        _to_whole("CEIL"),
        _rounded(ROUND_CEILING),
        call("ceil"),
        _rounded_column(ROUND_CEILING),
        never_fails=always,
    ),
    Function(
        "integer",
        _same("INTEGER"),
        _integer,
        lambda _, texts: f"{texts[0]}::INTEGER::BIGINT",
        lambda _, column: column if largest(column) < 2**31 else None,
    ),
)
