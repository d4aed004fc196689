"""The types of numbers, and the type that DuckDB gives to the result of two of them.

No column has the SQL type `INTEGER`: DuckDB gives it to whole numbers in the text. It matters
because a DECIMAL combined with it has fewer digits than one combined with a BIGINT.
"""

from protocols.algebra.function import Unfit
from protocols.algebra.types import BIGINT, DOUBLE, SqlType, decimal_type

INTEGER = SqlType("INTEGER")
MOST_DIGITS = 38
#: Up to so many digits DuckDB keeps a DECIMAL in 64 bits, and a product in as many as its factors.
SHORT_DIGITS = 18
_WHOLE_DIGITS = {"INTEGER": 10, "BIGINT": 19}


def is_number(type_: SqlType) -> bool:
    return type_.family in ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL")


def as_decimal(type_: SqlType) -> SqlType:
    """The DECIMAL that holds the numbers of an exact type."""
    return decimal_type(_WHOLE_DIGITS[type_.name], 0) if type_.name in _WHOLE_DIGITS else type_


def common_number(left: SqlType, right: SqlType) -> SqlType:
    """The type in which DuckDB compares two numbers; capped at 38 digits, it keeps the scale."""
    if left == right:
        return left
    if DOUBLE in (left, right):
        return DOUBLE
    if "DECIMAL" not in (left.family, right.family):
        return BIGINT
    (p, s), (q, t) = as_decimal(left).precision_and_scale, as_decimal(right).precision_and_scale
    return decimal_type(min(max(p - s, q - t) + max(s, t), MOST_DIGITS), max(s, t))


def sum_type(left: SqlType, right: SqlType) -> SqlType:
    """The type of a sum: one digit more than either side needs."""
    (p, s), (q, t) = left.precision_and_scale, right.precision_and_scale
    digits = max(p - s, q - t) + max(s, t) + 1
    return decimal_type(min(digits, MOST_DIGITS), max(s, t))


def product_type(left: SqlType, right: SqlType) -> SqlType:
    """The type of a product: all digits of both, within 64 bits if both factors are."""
    (p, s), (q, t) = left.precision_and_scale, right.precision_and_scale
    if s + t > MOST_DIGITS:
        raise Unfit(
            f"the product of {left.name} and {right.name} has {s + t} digits after the"
            f" point, more than {MOST_DIGITS}; cast one of them to fewer"
        )
    short = p <= SHORT_DIGITS and q <= SHORT_DIGITS and s + t < SHORT_DIGITS
    return decimal_type(min(p + q, SHORT_DIGITS if short else MOST_DIGITS), s + t)
