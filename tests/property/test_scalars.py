"""Values and conditions of SQL texts: the reference, Polars, the source and DuckDB agree.

A text is drawn, read by `Scalars` and evaluated over rows that are likely to break it: by the
reference, by Polars, by DuckDB from what was read (as a source does it), and by DuckDB from the
text, which knows nothing of ours. A row for which DuckDB raises an error must be one for the others
as well, and only such a row.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import duckdb
import polars as pl
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.types import ColumnType, column_type
from protocols.errors import NoValue
from protocols.views.scalars import Scalars
from sources.conditions import value_to_sql

COLUMNS = {
    "b": "BIGINT",
    "c": "BIGINT",
    "d": "DOUBLE",
    "e": "DOUBLE",
    "p": "DECIMAL(8,2)",
    "q": "DECIMAL(38,10)",
    "r": "DECIMAL(18,4)",
    "s": "VARCHAR",
    "u": "VARCHAR",
    "t": "BOOLEAN",
    "w": "BOOLEAN",
    "y": "DATE",
    "z": "DATE",
    "m": "TIMESTAMP",
    "n": "TIMESTAMP",
}
TYPES: dict[str, ColumnType] = {name: column_type(type_) for name, type_ in COLUMNS.items()}
#: JSON forms of values: the usual, the empty and the extreme ones.
VALUES: dict[str, list[Any]] = {
    "BIGINT": [0, 1, -1, 2, 7, -7, 1000, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)],
    "DOUBLE": [0.0, -0.0, 1.0, 1.5, -2.5, 0.1, 1e18, 1e308, 5e-324, "NaN", "Infinity", "-Infinity"],
    "DECIMAL(8,2)": ["0.00", "1.00", "1.50", "-2.55", "0.05", "-0.05", "999999.99", "-999999.99"],
    "DECIMAL(38,10)": [
        "0",
        "1.5",
        "-0.0000000001",
        "9" * 28 + ".9999999999",
        "123456789.123456789",
    ],
    "DECIMAL(18,4)": ["0", "2.5", "-2.5", "0.00005"[:6], "99999999999999.9999", "-1.2345"],
    "VARCHAR": ["", "a", "ab", "A%b", " a ", "äÖß", "x\u00a0", "𝄞e\u0301", "a\nb", "0", "ba_b"],
    "BOOLEAN": [True, False],
    "DATE": ["0100-01-01", "1969-12-31", "2024-01-31", "2024-02-29", "2023-12-31", "9900-12-31"],
    "TIMESTAMP": [
        "0100-01-01 00:00:00",
        "1969-12-31 23:59:59.999999",
        "2024-02-29 10:00:00",
        "2024-01-31 00:00:00.12",
        "2026-11-18 12:34:56.789012",
        "9900-12-31 23:59:59.999999",
    ],
}
Row = dict[str, Any]
Text = st.SearchStrategy[str]


# ----------------------------------------------------------------------------------------- texts


def _fits(template: str, **parts: Text) -> Text:
    """The template with a drawn text in the place of each name."""
    return st.fixed_dictionaries(parts).map(lambda drawn: template.format(**drawn))


def _one_of(*texts: str) -> Text:
    return st.sampled_from(texts)


def _texts(depth: int) -> dict[str, Text]:
    """Texts of each kind of value, with so many levels below."""
    leaves = {
        "whole": _one_of("b", "c", "0", "1", "2", "3", "-7", "100", "3000000000"),
        "exact": _one_of("p", "q", "r", "1.5", "0.05", "-2.50", "100.0"),
        "double": _one_of("d", "e", "1e0", "2.5e-1"),
        "text": _one_of("s", "u", "'a'", "''", "'äß'", "'b a'"),
        "truth": _one_of("t", "w", "TRUE", "FALSE"),
        "day": _one_of("y", "z", "DATE '2024-02-29'"),
        "moment": _one_of("m", "n", "TIMESTAMP '2024-02-29 01:02:03.5'"),
    }
    if depth == 0:
        return leaves
    below = _texts(depth - 1)
    number = below["whole"] | below["exact"] | below["double"]
    whole, exact, double = below["whole"], below["exact"], below["double"]
    text, truth, day, moment = below["text"], below["truth"], below["day"], below["moment"]
    time = day | moment

    def chosen(kind: Text) -> Text:
        """What gives one of several values, of any kind."""
        return (
            _fits("CASE WHEN {c} THEN {x} ELSE {y} END", c=truth, x=kind, y=kind)
            | _fits(
                "CASE WHEN {c} THEN {x} WHEN {d} THEN {y} END", c=truth, d=truth, x=kind, y=kind
            )
            | _fits("CASE {a} WHEN {b} THEN {x} ELSE {y} END", a=kind, b=kind, x=kind, y=kind)
            | _fits("COALESCE({x}, {y})", x=kind, y=kind)
            | _fits("COALESCE({x}, NULL, {y})", x=kind, y=kind)
            | _fits("NULLIF({x}, {y})", x=kind, y=kind)
            | _fits("{f}({x}, {y}, {z})", f=_one_of("GREATEST", "LEAST"), x=kind, y=kind, z=kind)
        )

    def compared(kind: Text) -> Text:
        ops = _one_of("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        return (
            _fits("({x} {op} {y})", x=kind, op=ops, y=kind)
            | _fits("({x} {n} BETWEEN {y} AND {z})", n=_one_of("", "NOT"), x=kind, y=kind, z=kind)
            | _fits("({x} {n} IN ({y}, {z}))", n=_one_of("", "NOT"), x=kind, y=kind, z=kind)
            | _fits("({x} IS {n} NULL)", n=_one_of("", "NOT"), x=kind)
        )

    made = {
        "whole": chosen(whole)
        | _fits("({x} {op} {y})", x=whole, op=_one_of("+", "-", "*", "%"), y=whole)
        | _fits("(- {x})", x=whole)
        | _fits("ABS({x})", x=whole)
        | _fits("CAST({x} AS BIGINT)", x=number)
        | _fits("CAST({x} AS INTEGER)", x=number)
        | _fits("LENGTH({x})", x=text)
        | _fits("STRPOS({x}, {y})", x=text, y=text)
        | _fits(
            "EXTRACT({part} FROM {x})",
            part=_one_of("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOW", "ISODOW", "DOY"),
            x=time,
        )
        | _fits("EXTRACT({part} FROM {x})", part=_one_of("HOUR", "MINUTE"), x=moment)
        | _fits("({x} - {y})", x=day, y=day),
        "exact": chosen(exact | whole)
        | _fits("({x} {op} {y})", x=exact, op=_one_of("+", "-", "*", "%"), y=exact | whole)
        | _fits("({x} {op} {y})", x=whole, op=_one_of("+", "-", "*", "%"), y=exact)
        | _fits("(- {x})", x=exact)
        | _fits("{f}({x})", f=_one_of("ABS", "FLOOR", "CEIL", "ROUND"), x=exact)
        | _fits("ROUND({x}, {n})", x=exact, n=_one_of("0", "1", "3"))
        | _fits(
            "CAST({x} AS DECIMAL({n}))", x=exact | whole, n=_one_of("8,2", "10,1", "38,4", "18,0")
        ),
        "double": chosen(double | number)
        | _fits("({x} {op} {y})", x=double, op=_one_of("+", "-", "*", "/"), y=number)
        | _fits("({x} {op} {y})", x=number, op=_one_of("+", "-", "*", "/"), y=double)
        | _fits("(- {x})", x=double)
        | _fits("{f}({x})", f=_one_of("ABS", "FLOOR", "CEIL"), x=double)
        | _fits("CAST({x} AS DOUBLE)", x=number),
        "text": chosen(text)
        | _fits("({x} || {y})", x=text, y=text | whole | exact | time | truth)
        | _fits("CONCAT({x}, NULL, {y})", x=text, y=text | whole)
        | _fits("{f}({x})", f=_one_of("UPPER", "LOWER", "TRIM", "LTRIM", "RTRIM"), x=text)
        | _fits("TRIM({w} 'ab' FROM {x})", w=_one_of("BOTH", "LEADING", "TRAILING"), x=text)
        | _fits(
            "SUBSTRING({x} FROM {a} FOR {b})", x=text, a=_one_of("0", "1", "2"), b=_one_of("0", "2")
        )
        | _fits("SUBSTRING({x}, {a})", x=text, a=_one_of("0", "1", "2", "9"))
        | _fits(
            "{f}({x}, {n})",
            f=_one_of("LEFT", "RIGHT"),
            x=text,
            n=_one_of("0", "1", "-1", "-9", "9"),
        )
        | _fits("REPLACE({x}, {y}, {z})", x=text, y=text, z=text)
        | _fits("CAST({x} AS VARCHAR)", x=text | whole | exact | time | truth),
        "truth": chosen(truth)
        | _fits("({x} {op} {y})", x=truth, op=_one_of("AND", "OR"), y=truth)
        | _fits("(NOT {x})", x=truth)
        | _fits(
            "({x} IS {n} {v})", x=truth, n=_one_of("", "NOT"), v=_one_of("TRUE", "FALSE", "NULL")
        )
        | compared(number)
        | compared(text)
        | compared(time)
        | compared(truth)
        | _fits("STARTS_WITH({x}, {y})", x=text, y=text)
        | _fits(
            "({x} {n} LIKE {pattern})",
            x=text,
            n=_one_of("", "NOT"),
            pattern=_one_of("'a%'", "'%b'", "'_'", "'%a_b%'", "'A!%b' ESCAPE '!'", "''", "'%ß'"),
        ),
        "day": chosen(day)
        | _fits("({x} {op} {n})", x=day, op=_one_of("+", "-"), n=_one_of("1", "31", "-400"))
        | _fits("CAST({x} AS DATE)", x=time),
        "moment": chosen(time)
        | _fits(
            "({x} {op} INTERVAL '{n}' {unit})",
            x=time,
            op=_one_of("+", "-"),
            n=_one_of("1", "13", "-2"),
            unit=_one_of("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"),
        )
        | _fits(
            "DATE_TRUNC('{unit}', {x})",
            unit=_one_of("year", "quarter", "month", "week", "day", "hour", "minute", "second"),
            x=moment,
        )
        | _fits("CAST({x} AS TIMESTAMP)", x=time),
    }
    return {kind: made[kind] | leaves[kind] for kind in leaves}


TEXTS = st.one_of(list(_texts(2).values()))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            name: st.sampled_from([None, *map(type_.decode, VALUES[type_.name])])
            for name, type_ in TYPES.items()
        }
    ),
    min_size=1,
    max_size=6,
)


# -------------------------------------------------------------------------------------- reading


class Refused(Exception):
    """What a text is refused with."""


def _refuse(_node: exp.Expr, reason: str) -> NoReturn:
    raise Refused(reason)


SCALARS = Scalars(lambda node: (node.name, TYPES[node.name]), _refuse, lambda _node: None)


def read(text: str) -> tuple[ex.Expression, ColumnType]:
    return SCALARS.typed(sqlglot.parse_one(f"SELECT {text}", read="duckdb").selects[0])


# ----------------------------------------------------------------------------------- evaluating

FAILED = "failed"


def by_reference(expression: ex.Expression, rows: list[Row]) -> list[Any]:
    return [_or_failed(lambda row=row: ex.value(expression, row)) for row in rows]


def by_polars(expression: ex.Expression, rows: list[Row]) -> list[Any]:
    """All rows at once; one by one if that fails."""

    def evaluated(some: list[Row]) -> list[Any]:
        column = ex.value_to_polars(expression).alias("_")
        return _frame(some).with_columns(column)["_"].to_list()

    return _all_or_each(evaluated, rows)


_DATABASE = duckdb.connect(":memory:", config={"threads": 1})


def by_duckdb(text: str, parameters: list[Any], rows: list[Row]) -> list[Any]:
    def evaluated(some: list[Row]) -> list[Any]:
        _DATABASE.register("rows", _frame(some).with_row_index("nr").to_arrow())
        found = _DATABASE.execute(f"SELECT {text} FROM rows ORDER BY nr", parameters).fetchall()
        return [value for (value,) in found]

    return _all_or_each(evaluated, rows)


def _frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={name: type_.dtype for name, type_ in TYPES.items()})


def _all_or_each(evaluated: Callable[[list[Row]], list[Any]], rows: list[Row]) -> list[Any]:
    whole = _or_failed(lambda: evaluated(rows))
    if whole is not FAILED:
        return list(whole)
    return [_first(_or_failed(lambda row=row: evaluated([row]))) for row in rows]


def _first(values: Any) -> Any:
    return values if values is FAILED else values[0]


def _or_failed(evaluate: Callable[[], Any]) -> Any:
    try:
        return evaluate()
    except (NoValue, duckdb.OutOfRangeException, duckdb.ConversionException):
        return FAILED
    except duckdb.InvalidInputException as error:
        assert "Division by zero" in str(error), error
        return FAILED


def same(one: list[Any], other: list[Any]) -> bool:
    return list(map(_shown, one)) == list(map(_shown, other))


def _shown(value: Any) -> tuple[type, str]:
    return type(value), str(value)


# ----------------------------------------------------------------------------------------- tests


@given(TEXTS, ROWS)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_evaluations_agree(text: str, rows: list[Row]) -> None:
    try:
        expression, type_ = read(text)
    except Refused:
        return
    expected = by_duckdb(text, [], rows)
    assert same(by_reference(expression, rows), expected), (expression, expected)
    assert same(by_polars(expression, rows), expected), (expression, expected)
    parameters: list[Any] = []
    sql = value_to_sql(expression, lambda name: f'"{name}"', parameters)
    assert same(by_duckdb(sql, parameters, rows), expected), (sql, expected)
