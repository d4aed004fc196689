"""Templates, and how values are written: the same everywhere on the page, and always escaped."""

import datetime
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from page import charts
from protocols.algebra.types import ColumnType

_HERE = Path(__file__).parent
#: Longer texts are cut in a table's cell; the whole text is under the pointer.
_LONGEST = 120


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _size(value: float) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} GB"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 0.9995:
        return f"{value * 1000:,.0f} ms"
    if value < 100:
        return f"{value:,.1f} s"
    if value < 6000:
        return f"{value / 60:,.0f} min"
    return f"{value / 3600:,.1f} h" if value < 200_000 else f"{value / 86400:,.0f} days"


def _ago(moment: float | None) -> str:
    return "-" if moment is None else f"{_seconds(max(0.0, time.time() - moment))} ago"


def _moment(value: datetime.datetime | float | None) -> str:
    if value is None:
        return "-"
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.fromtimestamp(value, datetime.UTC)
    return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _value(value: Any) -> Markup:
    """A value of a row, as exactly as a reader needs it."""
    if value is None:
        return Markup('<span class="null">NULL</span>')
    text = value.isoformat(sep=" ") if isinstance(value, datetime.datetime) else str(value)
    text = str(value).lower() if isinstance(value, bool) else text
    if text == "":
        return Markup('<span class="null">empty text</span>')
    if len(text) <= _LONGEST:
        return escape(text)
    return Markup('<span title="{}">{}…</span>').format(text[:5000], text[:_LONGEST])


def _is_number(type_: ColumnType) -> bool:
    return type_.family in ("BIGINT", "DOUBLE", "DECIMAL")


def row_in_url(row: dict[str, Any], schema: dict[str, ColumnType]) -> str:
    """A row as a part of an address."""
    return quote(orjson.dumps([schema[n].encode(row[n]) for n in schema]).decode())


def _query(**parts: Any) -> str:
    return urlencode({name: value for name, value in parts.items() if value not in (None, "")})


ENVIRONMENT = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters.update(
    number=_number,
    decimal=_decimal,
    size=_size,
    seconds=_seconds,
    ago=_ago,
    moment=_moment,
    value=_value,
    in_url=lambda text: quote(text, safe=""),
)
ENVIRONMENT.tests["a_number"] = _is_number
ENVIRONMENT.globals.update(
    line_chart=charts.line_chart, histogram=charts.histogram, row_in_url=row_in_url, query=_query
)


def rendered(template: str, **known: Any) -> str:
    """A page, or a part of one."""
    return ENVIRONMENT.get_template(template).render(known)
