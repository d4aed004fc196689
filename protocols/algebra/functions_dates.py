"""Functions of DATE and TIMESTAMP, from year 1 to year 9999: the range of Python and Parquet.

An interval is not a value of its own here: a number of months is added, which ends on the last day
of a shorter month, or a number of microseconds.
"""

import calendar
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any

import polars as pl

from protocols.algebra.function import Function, Signature, Unfit, always, infix
from protocols.algebra.types import BIGINT, DATE, TIMESTAMP, ColumnType, SqlType
from protocols.errors import NoValue


def _takes(
    name: str, *wanted: Sequence[SqlType], gives: ColumnType
) -> Callable[[Sequence[SqlType]], Signature]:
    """The signature with these allowed types for each argument; it refuses any other type."""

    def signature(types: Sequence[SqlType]) -> Signature:
        if len(types) != len(wanted):
            raise Unfit(f"{name} takes {len(wanted)} arguments, not {len(types)}")
        for given, allowed in zip(types, wanted, strict=True):
            if given not in allowed:
                names = " or ".join(type_.name for type_ in allowed)
                raise Unfit(f"{name} takes a {names}, not a {given.name}")
        return Signature(tuple(types), gives)

    return signature


# ----------------------------------------------------------------------------------------- parts

#: Part → its value, the same for a column, and whether a DATE has it.
_PARTS: dict[str, tuple[Callable[[Any], int], Callable[[pl.Series], pl.Series], bool]] = {
    "year": (lambda day: day.year, lambda days: days.dt.year(), True),
    "quarter": (lambda day: (day.month + 2) // 3, lambda days: days.dt.quarter(), True),
    "month": (lambda day: day.month, lambda days: days.dt.month(), True),
    "week": (lambda day: day.isocalendar()[1], lambda days: days.dt.week(), True),
    "day": (lambda day: day.day, lambda days: days.dt.day(), True),
    "dow": (lambda day: day.isoweekday() % 7, lambda days: days.dt.weekday() % 7, True),
    "isodow": (lambda day: day.isoweekday(), lambda days: days.dt.weekday(), True),
    "doy": (lambda day: day.timetuple().tm_yday, lambda days: days.dt.ordinal_day(), True),
    "hour": (lambda moment: moment.hour, lambda moments: moments.dt.hour(), False),
    "minute": (lambda moment: moment.minute, lambda moments: moments.dt.minute(), False),
}


def _part(
    name: str,
    of_value: Callable[[Any], int],
    of_column: Callable[[pl.Series], pl.Series],
    days: bool,
) -> Function:
    return Function(
        name,
        _takes(
            f"EXTRACT({name.upper()})", (DATE, TIMESTAMP) if days else (TIMESTAMP,), gives=BIGINT
        ),
        lambda _, value: of_value(value),
        lambda _, texts: f"extract({name} FROM {texts[0]})",
        lambda _, column: of_column(column).cast(pl.Int64),
        never_fails=always,
    )


# ----------------------------------------------------------------------------------- truncation


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time())


#: Unit → the moment at which it begins, and its name in Polars.
_UNITS: dict[str, tuple[Callable[[datetime], datetime], str]] = {
    "year": (lambda moment: datetime(moment.year, 1, 1), "1y"),
    "quarter": (lambda m: datetime(m.year, (m.month - 1) // 3 * 3 + 1, 1), "1q"),
    "month": (lambda moment: datetime(moment.year, moment.month, 1), "1mo"),
    "week": (lambda m: _midnight(m.date() - timedelta(days=m.weekday())), "1w"),
    "day": (lambda moment: _midnight(moment.date()), "1d"),
    "hour": (lambda m: m.replace(minute=0, second=0, microsecond=0), "1h"),
    "minute": (lambda moment: moment.replace(second=0, microsecond=0), "1m"),
    "second": (lambda moment: moment.replace(microsecond=0), "1s"),
}


def _date_trunc(types: Sequence[SqlType]) -> Signature:
    if list(types) == [DATE]:
        raise Unfit(
            "DATE_TRUNC of a DATE has a time zone in PostgreSQL and none in DuckDB;"
            " cast to TIMESTAMP first"
        )
    return _takes("DATE_TRUNC", (TIMESTAMP,), gives=TIMESTAMP)(types)


def _truncation(unit: str, begin: Callable[[datetime], datetime], polars_unit: str) -> Function:
    return Function(
        f"trunc {unit}",
        _date_trunc,
        lambda _, moment: begin(moment),
        lambda _, texts: f"date_trunc('{unit}', {texts[0]})",
        lambda _, moments: moments.dt.truncate(polars_unit),
        never_fails=always,
    )


# ------------------------------------------------------------------------------------ arithmetic


def _later(what: Callable[[Any, int], Any]) -> Callable[[ColumnType, Any, int], Any]:
    def applied(type_: ColumnType, start: Any, count: int) -> Any:
        try:
            return what(start, count)
        except (ValueError, OverflowError):
            raise NoValue(
                f"{start} plus the interval is not a {type_.name} of the years 1 to 9999"
            ) from None

    return applied


def _months_later(moment: datetime, months: int) -> datetime:
    years, month = divmod(moment.month - 1 + months, 12)
    year = moment.year + years
    if not 1 <= year <= 9999:
        raise ValueError
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def _microseconds_later(moment: datetime, count: int) -> datetime:
    return moment + timedelta(microseconds=count)


def _days_later(day: date, count: int) -> date:
    return day + timedelta(days=count)


def _later_column(
    what: Callable[[Any, int], Any], of_column: Callable[[pl.Series, int], pl.Series]
) -> Callable[[ColumnType, pl.Series, pl.Series], pl.Series | None]:
    """For a constant interval, if both ends of the column stay within the years 1 to 9999."""

    def applied(_type: ColumnType, starts: pl.Series, counts: pl.Series) -> pl.Series | None:
        ends = [end for end in (starts.min(), starts.max()) if end is not None]
        if len(counts) != 1 or counts[0] is None or not ends:
            return None
        try:
            for end in ends:
                what(end, counts[0])
        except (ValueError, OverflowError):
            return None
        return of_column(starts, counts[0])

    return applied


DATES: Iterable[Function] = (
    *(_part(name, *part) for name, part in _PARTS.items()),
    *(_truncation(unit, *begin) for unit, begin in _UNITS.items()),
    Function(
        "add months",
        _takes("+ INTERVAL", (TIMESTAMP,), (BIGINT,), gives=TIMESTAMP),
        _later(_months_later),
        lambda _, texts: f"({texts[0]} + to_months(({texts[1]})::INTEGER))",
        _later_column(_months_later, lambda moments, count: moments.dt.offset_by(f"{count}mo")),
    ),
    Function(
        "add microseconds",
        _takes("+ INTERVAL", (TIMESTAMP,), (BIGINT,), gives=TIMESTAMP),
        _later(_microseconds_later),
        lambda _, texts: f"({texts[0]} + to_microseconds({texts[1]}))",
        _later_column(_microseconds_later, lambda m, count: m + timedelta(microseconds=count)),
    ),
    Function(
        "add days",
        _takes("+", (DATE,), (BIGINT,), gives=DATE),
        _later(_days_later),
        lambda _, texts: f"({texts[0]} + ({texts[1]})::INTEGER)",
        _later_column(_days_later, lambda days, count: days.dt.offset_by(f"{count}d")),
    ),
    Function(
        "days between",
        _takes("-", (DATE,), (DATE,), gives=BIGINT),
        lambda _, later, earlier: (later - earlier).days,
        infix("-"),
        lambda _, later, earlier: (later - earlier).dt.total_days(),
        never_fails=always,
    ),
)
