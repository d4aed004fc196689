"""The column types of viewsweep, and one JSON form of each value.

Every external format (scenario, envelope, trace, wire) names a type by its SQL name and writes a
value in the same JSON form: decimals, dates and timestamps as strings, and doubles that JSON has no
number for as "NaN", "Infinity", "-Infinity". Inside, a value is a plain Python object or a Polars
cell of `dtype`.

`text_form` is the grammar of the strings. Every reader checks a string, or a column of them,
against it before parsing: Python's and Arrow's parsers each accept more than this grammar, and
different things.
"""

import datetime
import decimal
import math
import re
import reprlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_PLAIN: dict[str, pl.DataType] = {
    "BIGINT": pl.Int64(),
    "DOUBLE": pl.Float64(),
    "VARCHAR": pl.String(),
    "BOOLEAN": pl.Boolean(),
    "DATE": pl.Date(),
    "TIMESTAMP": pl.Datetime("us"),
}
_SYNONYMS = {
    "INT8": "BIGINT",
    "FLOAT8": "DOUBLE",
    "DOUBLE PRECISION": "DOUBLE",
    "TEXT": "VARCHAR",
    "BOOL": "BOOLEAN",
}
#: Types that a column may be declared with; its values are kept in a wider one.
_WIDER = {
    **dict.fromkeys(("INTEGER", "INT", "INT4", "SMALLINT", "INT2", "TINYINT"), "BIGINT"),
    **dict.fromkeys(("REAL", "FLOAT4"), "DOUBLE"),
    **dict.fromkeys(("CHARACTER VARYING", "STRING"), "VARCHAR"),
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
}
_SHORT_TEXT = re.compile(r"(VARCHAR|CHARACTER VARYING) ?\( ?[0-9]+ ?\)")
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TEXT_FORMS = {
    "DECIMAL": re.compile(
        r"[+-]?(?:[0-9]{1,38}(?:\.[0-9]{0,38})?|\.[0-9]{1,38})(?:[eE][+-]?[0-9]{1,2})?"
    ),
    "DATE": re.compile(_DAY),
    "TIMESTAMP": re.compile(
        _DAY + r"(?:[ T][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?)?"
    ),
}
#: Messages show only the beginning of a value that does not fit: it may be long, or deeply nested.
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxlong = _SHOWN.maxother = 60
_ODD_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
TYPES = "BIGINT, DOUBLE, DECIMAL(p,s), VARCHAR, BOOLEAN, DATE, TIMESTAMP"


@dataclass(frozen=True)
class SqlType:
    """The SQL type of a value; `views/operands.py` decides in which type it is stored."""

    name: str

    @cached_property
    def family(self) -> str:
        """The name without parameters: values of one family compare with each other."""
        return self.name.partition("(")[0]

    @cached_property
    def precision_and_scale(self) -> tuple[int, int]:
        """The two numbers of a DECIMAL."""
        precision, scale = self.name[len("DECIMAL(") : -1].split(",")
        return int(precision), int(scale)


@dataclass(frozen=True)
class ColumnType(SqlType):
    """A type that values are stored in; types are equal if their names are."""

    @property
    def dtype(self) -> pl.DataType:
        """The dtype of a Polars column of this type."""
        if self.family == "DECIMAL":
            return pl.Decimal(*self.precision_and_scale)
        return _PLAIN[self.name]

    @property
    def text_form(self) -> re.Pattern[str] | None:
        """The form of a value that is written as text; it treats all digits alike."""
        return _TEXT_FORMS.get(self.family)

    def decode(self, value: Any) -> Any:
        """The Python value of a JSON value; raises ValueError if it is not of this type."""
        if value is None:
            return None
        try:
            return _DECODERS[self.family](self, value)
        except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
            raise ValueError(f"{_SHOWN.repr(value)} is not a {self.name}") from None

    def encode(self, value: Any) -> Any:
        """The JSON value of a Python value of this type."""
        if value is None or self.family in ("BIGINT", "VARCHAR", "BOOLEAN"):
            return value
        if self.family == "DOUBLE":
            return value if math.isfinite(value) else _odd_double(value)
        if self.family == "DECIMAL":
            return format(value, "f")
        return value.isoformat(sep=" ") if self.family == "TIMESTAMP" else value.isoformat()


BIGINT, DOUBLE, VARCHAR = ColumnType("BIGINT"), ColumnType("DOUBLE"), ColumnType("VARCHAR")
BOOLEAN, DATE, TIMESTAMP = ColumnType("BOOLEAN"), ColumnType("DATE"), ColumnType("TIMESTAMP")


def decimal_type(precision: int, scale: int) -> ColumnType:
    """The DECIMAL with `precision` digits, `scale` of them after the point."""
    return ColumnType(f"DECIMAL({precision},{scale})")


def column_type(name: str) -> ColumnType:
    """The type with this SQL name; raises ValueError, with the known types, if there is none."""
    upper = " ".join(name.upper().split())
    upper = _SYNONYMS.get(upper, upper)
    if upper in _PLAIN:
        return ColumnType(upper)
    match = _DECIMAL.fullmatch(upper)
    if match:
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return ColumnType(f"DECIMAL({precision},{scale})")
    raise ValueError(f"unknown type {name!r}; there are {TYPES}")


def declared_type(name: str) -> ColumnType:
    """The type that keeps the values of a column declared so: INTEGER as BIGINT, REAL as DOUBLE.

    In a view these names would mean more: CAST(x AS SMALLINT) fails for large numbers.
    """
    upper = " ".join(name.upper().split())
    upper = _SHORT_TEXT.sub("VARCHAR", upper)
    try:
        return column_type(_WIDER.get(upper, upper))
    except ValueError:
        more = "INTEGER and SMALLINT are kept as BIGINT, REAL as DOUBLE, VARCHAR(n) as VARCHAR"
        raise ValueError(f"unknown type {name!r}; there are {TYPES}; {more}") from None


def _odd_double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _bigint(_type: ColumnType, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def _double(_type: ColumnType, value: Any) -> float:
    if isinstance(value, str):
        # All NaNs are one object: rows are dictionary keys in the reference algebra.
        if value not in _ODD_DOUBLES:
            raise ValueError
        return _ODD_DOUBLES[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    return math.nan if math.isnan(value) else float(value)


def _decimal(type_: ColumnType, value: Any) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | decimal.Decimal):
        raise ValueError
    if isinstance(value, str):
        _need_form(type_, value)
    precision, scale = type_.precision_and_scale
    with decimal.localcontext(prec=precision):
        number = decimal.Decimal(value)
        fitted = number.quantize(decimal.Decimal(1).scaleb(-scale))
    if fitted != number:
        raise ValueError
    return fitted


def _varchar(_type: ColumnType, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _boolean(_type: ColumnType, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _date(type_: ColumnType, value: Any) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    _need_form(type_, value)
    return datetime.date.fromisoformat(value)


def _timestamp(type_: ColumnType, value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        _need_form(type_, value)
        return datetime.datetime.fromisoformat(value)
    if value.tzinfo is not None:
        raise ValueError
    return value


def _need_form(type_: ColumnType, text: Any) -> None:
    if not _TEXT_FORMS[type_.family].fullmatch(text):
        raise ValueError


_DECODERS = {
    "BIGINT": _bigint,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "VARCHAR": _varchar,
    "BOOLEAN": _boolean,
    "DATE": _date,
    "TIMESTAMP": _timestamp,
}
