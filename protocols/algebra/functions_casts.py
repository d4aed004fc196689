"""CAST between the types, as far as DuckDB and PostgreSQL return the same value.

Both round fractions of a DECIMAL half away from zero and those of a DOUBLE half to even. Each reads
texts in its own way ('1.5' as a BIGINT, 'yes' as a BOOLEAN), so texts are not cast at all. They
write a DOUBLE differently ('1.0' and '1'), and turn it into a DECIMAL with different digits.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import polars as pl

from protocols.algebra.function import Function, Signature, Unfit
from protocols.algebra.functions_numbers import (
    EXACT,
    coarser,
    fitting,
    largest,
    of_units,
    units,
)
from protocols.algebra.numbertypes import SHORT_DIGITS
from protocols.algebra.types import BIGINT, DOUBLE, ColumnType, SqlType
from protocols.errors import NoValue

_WHY_NOT = {
    ("DOUBLE", "DECIMAL"): "the databases keep different digits of it; write"
    " CAST(x * 100 AS BIGINT) for hundredths",
    ("DOUBLE", "VARCHAR"): "one database writes 1.0, the other 1",
    ("VARCHAR", "BIGINT"): "the databases read texts differently ('1.5', '1e3')",
    ("BOOLEAN", "BIGINT"): "PostgreSQL does not; write CASE WHEN … THEN 1 ELSE 0 END",
    ("BIGINT", "BOOLEAN"): "PostgreSQL does not; write … <> 0",
}


def cast_refusal(source: ColumnType, target: ColumnType) -> str | None:
    """The reason why such a cast is refused; None if it is accepted."""
    if by_way_of(source, target) != target:
        return f"a {source.name} is cast to {target.name} by way of {BIGINT.name}"
    if source == target or (source.family, target.family) in _VALUES:
        return None
    reason = _WHY_NOT.get((source.family, target.family), "the databases do not agree on that")
    return f"a {source.name} cannot be cast to {target.name}: {reason}"


def by_way_of(source: ColumnType, target: ColumnType) -> ColumnType:
    """The type to cast to first: BIGINT on the way from a whole DECIMAL of 64 bits to a DOUBLE.

    DuckDB rounds a DECIMAL of 128 bits twice, and a value does not show which of the two it was.
    """
    short = source.family == "DECIMAL" and source.precision_and_scale[0] <= SHORT_DIGITS
    if short and source.precision_and_scale[1] == 0 and target == DOUBLE:
        return BIGINT
    return target


# ------------------------------------------------------------------------------------- one value


def _cast(type_: ColumnType, value: Any) -> Any:
    source = _FAMILY_OF[type(value)]
    cast = _VALUES.get((source, type_.family))
    return value if cast is None else cast(type_, value)


#: Python class of a value → family of its type.
_FAMILY_OF = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DECIMAL",
    str: "VARCHAR",
    date: "DATE",
    datetime: "TIMESTAMP",
}


def _whole_to_decimal(type_: ColumnType, value: int) -> Decimal:
    return _fitting(type_, Decimal(value))  # type: ignore[no-any-return]


def _decimal_to_decimal(type_: ColumnType, value: Decimal) -> Any:
    scale = type_.precision_and_scale[1]
    return _fitting(type_, value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT))


def _decimal_to_whole(type_: ColumnType, value: Decimal) -> Any:
    return _fitting(type_, int(value.quantize(Decimal(1), ROUND_HALF_UP, EXACT)))


def _double_to_whole(type_: ColumnType, value: float) -> Any:
    try:
        return _fitting(type_, round(value))
    except (ValueError, OverflowError):
        raise NoValue(f"{value} is not a BIGINT") from None


def _decimal_to_double(_type: ColumnType, value: Decimal) -> float:
    if value.as_tuple().exponent != 0:
        return float(value)
    # Like DuckDB, which rounds each half of its 128 bits and adds the two.
    upper, lower = divmod(int(value), 2**64)
    if upper == -1:
        return -float(2**64 - 1 - lower) - 1
    return float(lower) + float(upper) * 2.0**64


def _fitting(type_: ColumnType, number: Any) -> Any:
    try:
        return fitting(type_, number)
    except NoValue:
        raise NoValue(f"{number} cannot be cast to {type_.name}: it has too many digits") from None


def _timestamp_text(_type: ColumnType, value: datetime) -> str:
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if value.microsecond else text


_VALUES: dict[tuple[str, str], Callable[[ColumnType, Any], Any]] = {
    ("BIGINT", "DOUBLE"): lambda _, value: float(value),
    ("BIGINT", "DECIMAL"): _whole_to_decimal,
    ("BIGINT", "VARCHAR"): lambda _, value: str(value),
    ("DECIMAL", "BIGINT"): _decimal_to_whole,
    ("DECIMAL", "DECIMAL"): _decimal_to_decimal,
    ("DECIMAL", "DOUBLE"): _decimal_to_double,
    ("DECIMAL", "VARCHAR"): lambda _, value: format(value, "f"),
    ("DOUBLE", "BIGINT"): _double_to_whole,
    ("BOOLEAN", "VARCHAR"): lambda _, value: "true" if value else "false",
    ("DATE", "TIMESTAMP"): lambda _, value: datetime(value.year, value.month, value.day),
    ("DATE", "VARCHAR"): lambda _, value: value.isoformat(),
    ("TIMESTAMP", "DATE"): lambda _, value: value.date(),
    ("TIMESTAMP", "VARCHAR"): _timestamp_text,
}


# --------------------------------------------------------------------------------- whole columns


def _cast_column(type_: ColumnType, column: pl.Series) -> pl.Series | None:
    if column.dtype == type_.dtype:
        return column
    if isinstance(column.dtype, pl.Decimal):
        return _decimals(type_, column)
    if type_.family == "DECIMAL":
        # From BIGINT; None if it has too many digits.
        return of_units(units(column.cast(pl.Decimal(19, 0)), type_.precision_and_scale[1]), type_)
    if column.dtype == pl.Float64() and type_.family == "BIGINT":
        within = ((column < 2.0**63) & (column >= -(2.0**63))).all()
        return column.round(0, mode="half_to_even").cast(pl.Int64) if within else None
    if (column.dtype, type_.family) in _AS_POLARS_DOES:
        return column.cast(type_.dtype)
    return None


def _decimals(type_: ColumnType, column: pl.Series) -> pl.Series | None:
    assert isinstance(column.dtype, pl.Decimal)
    scale = type_.precision_and_scale[1] if type_.family == "DECIMAL" else 0
    match type_.family:
        case "DECIMAL" if scale < column.dtype.scale:
            return of_units(coarser(column, scale), type_)
        case "DECIMAL":
            return of_units(units(column, scale), type_)
        case "BIGINT":
            whole = coarser(column, 0)
            return None if whole is None or largest(whole) >= 2**63 else whole.cast(pl.Int64)
        case "DOUBLE" if column.dtype.scale > 0:
            return column.cast(pl.Float64)
        case "VARCHAR":
            return column.cast(pl.String)
    return None


#: A cast to one of these types never fails, from any type that may be cast to it.
_TAKES_ALL = {"DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP"}

_AS_POLARS_DOES = {
    (pl.Int64(), "DOUBLE"),
    (pl.Int64(), "VARCHAR"),
    (pl.Date(), "TIMESTAMP"),
    (pl.Datetime("us"), "DATE"),
}


def _only_by_name(_types: Sequence[SqlType]) -> Signature:
    raise Unfit("the text of the view gives the type that CAST returns")


CAST = Function(
    "cast",
    _only_by_name,
    _cast,
    lambda type_, texts: f"CAST({texts[0]} AS {type_.name})",
    _cast_column,
    never_fails=lambda type_, _: type_.family in _TAKES_ALL,
)
