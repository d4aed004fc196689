"""Values and conditions of SQL texts: the reference, Polars, the source and DuckDB agree.

A text is drawn, read by `Scalars` and evaluated over rows that are likely to break it: by the
reference, by Polars, by DuckDB from the expression read (as a source does), and by DuckDB from the
text, independently of our code. The others must fail for exactly the rows for which DuckDB fails,
except with AND, OR and their equivalents, where a database may choose the order of evaluation.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NoReturn

import duckdb
import orjson
import polars as pl
import pytest
import sqlglot
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.expressions_polars import value_to_polars
from protocols.algebra.expressions_reference import value_of
from protocols.algebra.expressions_types import type_of
from protocols.algebra.expressions_wire import value_from_json, value_to_json
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.functions_dialects import DIALECTS
from protocols.algebra.types import ColumnType, column_type
from protocols.errors import NoValue
from protocols.views.dialects import Dialect
from protocols.views.operands import kept
from protocols.views.scalars import ScalarReader
from sources.simulated.conditions import NO_VALUE, value_to_sql

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
#: JSON forms of values: usual, empty and extreme ones.
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
    """The template with a drawn text for each name."""
    return st.fixed_dictionaries(parts).map(lambda drawn: template.format(**drawn))


def _any(*kinds: Text) -> Text:
    """One of these kinds, which together are drawn as often as a single alternative."""
    return st.tuples(st.one_of(*kinds)).map(lambda drawn: drawn[0])


def _one_of(*texts: str) -> Text:
    return st.sampled_from(texts)


_LEAVES = {
    "whole": _one_of("b", "c", "0", "1", "2", "3", "-7", "100", "3000000000"),
    "exact": _one_of("p", "q", "r", "1.5", "0.05", "-2.50", "100.0"),
    "double": _one_of("d", "e", "CAST(2.5e-1 AS DOUBLE)"),
    "text": _one_of("s", "u", "'a'", "''", "'äß'", "'b a'"),
    "truth": _one_of("t", "w", "TRUE", "FALSE"),
    "day": _one_of("y", "z", "DATE '2024-02-29'"),
    "moment": _one_of("m", "n", "TIMESTAMP '2024-02-29 01:02:03.5'"),
}


def _extremes(kind: Text) -> Text:
    return _fits("{f}({x}, {y}, {z})", f=_one_of("GREATEST", "LEAST"), x=kind, y=kind, z=kind)


def _chosen(kind: Text, truth: Text) -> Text:
    """An expression that chooses one of several values of any kind."""
    return _any(
        _fits("CASE WHEN {c} THEN {x} ELSE {y} END", c=truth, x=kind, y=kind),
        _fits("CASE WHEN {c} THEN {x} WHEN {d} THEN {y} END", c=truth, d=truth, x=kind, y=kind),
        _fits("CASE {a} WHEN {b} THEN {x} ELSE {y} END", a=kind, b=kind, x=kind, y=kind),
        _fits("COALESCE({x}, {y})", x=kind, y=kind),
        _fits("COALESCE({x}, NULL, {y})", x=kind, y=kind),
        _fits("NULLIF({x}, {y})", x=kind, y=kind),
        _extremes(kind),
    )


def _compared(kind: Text) -> Text:
    ops = _one_of("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
    return _any(
        _fits("({x} {op} {y})", x=kind, op=ops, y=kind),
        _fits("({x} {n} BETWEEN {y} AND {z})", n=_one_of("", "NOT"), x=kind, y=kind, z=kind),
        _fits("({x} {n} IN ({y}, {z}))", n=_one_of("", "NOT"), x=kind, y=kind, z=kind),
        _fits("({x} IS {n} NULL)", n=_one_of("", "NOT"), x=kind),
    )


def _texts(depth: int) -> dict[str, Text]:
    """Texts of each kind of value, nested up to this depth."""
    if depth == 0:
        return _LEAVES
    below = _texts(depth - 1)
    whole, exact, double = below["whole"], below["exact"], below["double"]
    text, truth, day, moment = below["text"], below["truth"], below["day"], below["moment"]
    number, time = whole | exact | double, day | moment
    made = {
        "whole": _chosen(whole, truth)
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
        "exact": _chosen(exact | whole, truth)
        | _fits("({x} {op} {y})", x=exact, op=_one_of("+", "-", "*", "%"), y=exact | whole)
        | _fits("({x} {op} {y})", x=whole, op=_one_of("+", "-", "*", "%"), y=exact)
        | _fits("(- {x})", x=exact)
        | _fits("{f}({x})", f=_one_of("ABS", "FLOOR", "CEIL", "ROUND"), x=exact)
        | _fits("ROUND({x}, {n})", x=exact, n=_one_of("0", "1", "3"))
        | _fits(
            "CAST({x} AS DECIMAL({n}))", x=exact | whole, n=_one_of("8,2", "10,1", "38,4", "18,0")
        ),
        "double": _chosen(double | number, truth)
        | _fits("({x} {op} {y})", x=double, op=_one_of("+", "-", "*", "/"), y=number)
        | _fits("({x} {op} {y})", x=number, op=_one_of("+", "-", "*", "/"), y=double)
        | _fits("(- {x})", x=double)
        | _fits("{f}({x})", f=_one_of("ABS", "FLOOR", "CEIL"), x=double)
        | _fits("CAST({x} AS DOUBLE)", x=number),
        "text": _chosen(text, truth)
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
        "truth": _chosen(truth, truth)
        | _fits("({x} {op} {y})", x=truth, op=_one_of("AND", "OR"), y=truth)
        | _fits("(NOT {x})", x=truth)
        | _fits(
            "({x} IS {n} {v})", x=truth, n=_one_of("", "NOT"), v=_one_of("TRUE", "FALSE", "NULL")
        )
        | _compared(number)
        | _compared(text)
        | _compared(time)
        | _compared(truth)
        | _fits("STARTS_WITH({x}, {y})", x=text, y=text)
        | _fits(
            "({x} {n} LIKE {pattern})",
            x=text,
            n=_one_of("", "NOT"),
            pattern=_one_of("'a%'", "'%b'", "'_'", "'%a_b%'", "'A!%b' ESCAPE '!'", "''", "'%ß'"),
        ),
        "day": _chosen(day, truth)
        | _fits("({x} {op} {n})", x=day, op=_one_of("+", "-"), n=_one_of("1", "31", "-400"))
        | _fits("CAST({x} AS DATE)", x=time),
        "moment": _chosen(time, truth)
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
    return {kind: made[kind] | _LEAVES[kind] for kind in _LEAVES}


TEXTS = st.one_of([*_texts(1).values(), *_texts(2).values()])
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
    """The text is refused."""


def _refuse(_node: exp.Expr, reason: str) -> NoReturn:
    raise Refused(reason)


def _scalars(dialect: Dialect | None = None) -> ScalarReader:
    return ScalarReader(
        lambda node: (node.name, TYPES[node.name]), _refuse, lambda _node: None, dialect
    )


SCALARS = _scalars()


def selected(text: str) -> exp.Expr:
    """The node of an expression."""
    select = sqlglot.parse_one(f"SELECT {text}", read="duckdb")
    assert isinstance(select, exp.Select)
    return select.selects[0]


def read(text: str, dialect: Dialect | None = None) -> ex.Expression | None:
    """The expression of a text; None if it is refused."""
    node = selected(text)
    try:
        expression, type_ = _scalars(dialect).typed(node)
    except Refused:
        return None
    assert type_of(expression, TYPES) == kept(type_)
    return expression


# ----------------------------------------------------------------------------------- evaluating

FAILED = "failed"


def by_reference(expression: ex.Expression, rows: list[Row]) -> list[Any]:
    return [_or_failed(partial(value_of, expression, row)) for row in rows]


def by_polars(expression: ex.Expression, rows: list[Row]) -> list[Any]:
    """Evaluates all rows at once; one by one if that fails."""

    def evaluated(some: list[Row]) -> list[Any]:
        column = value_to_polars(expression).alias("_")
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
    return [_first(_or_failed(partial(evaluated, [row]))) for row in rows]


def _first(values: Any) -> Any:
    return values if values is FAILED else values[0]


def _or_failed(evaluate: Callable[[], Any]) -> Any:
    try:
        return evaluate()
    except (NoValue, *NO_VALUE):
        return FAILED


def agree(text: str, one: list[Any], other: list[Any]) -> bool:
    """Whether the values and their types are the same: 1 is not 1.0, and 0.0 is not -0.0."""
    in_any_order = any(word in text for word in (" AND ", " OR ", " IN ", " DISTINCT "))
    return all(
        _shown(a) == _shown(b) or (in_any_order and FAILED in (a, b))
        for a, b in zip(one, other, strict=True)
    )


def _shown(value: Any) -> tuple[type, str]:
    return type(value), str(value)


# ----------------------------------------------------------------------------------------- tests


@given(TEXTS, ROWS)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_evaluations_agree(text: str, rows: list[Row]) -> None:
    expression = read(text)
    if expression is None:
        return
    expected = by_duckdb(text, [], rows)
    assert agree(text, by_reference(expression, rows), expected), (expression, expected)
    assert agree(text, by_polars(expression, rows), expected), (expression, expected)
    parameters: list[Any] = []
    sql = value_to_sql(expression, lambda name: f'"{name}"', parameters)
    assert agree(text, by_duckdb(sql, parameters, rows), expected), (sql, expected)


@given(TEXTS)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_types_are_those_of_duckdb_and_fit_each_other(text: str) -> None:
    expression = read(text)
    if expression is None or not ex.columns_of(expression):
        return
    columns = ", ".join(f"NULL::{type_} AS {name}" for name, type_ in COLUMNS.items())
    found = _DATABASE.execute(f"SELECT typeof({text}) FROM (SELECT {columns})").fetchall()
    name = "BIGINT" if found == [("INTEGER",)] else found[0][0]
    assert type_of(expression, TYPES) == column_type(name)


@given(TEXTS)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_value_survives_the_wire_and_renaming(text: str) -> None:
    expression = read(text)
    if expression is None:
        return
    form = orjson.loads(orjson.dumps(value_to_json(expression)))
    assert value_from_json(form) == expression
    renamed = ex.renamed_value(expression, lambda name: f"r.{name}")
    assert ex.columns_of(renamed) == {f"r.{name}" for name in ex.columns_of(expression)}
    assert ex.renamed_value(renamed, lambda name: name.removeprefix("r.")) == expression


#: Each function of the catalogue, with the types that it takes.
EXAMPLES = [
    *(f"{x} {op} {y}" for op in "+-*" for x, y in ("bc", "pr", "qp", "bp", "de", "db", "pd")),
    *(f"{x} % {y}" for x, y in ("bc", "pr", "bp", "rb")),
    *(f"{x} / {y}" for x, y in ("de", "db", "pd", "qe")),
    *(f"{f}({x})" for f in ("-", "ABS") for x in "bdpqr"),
    *(f"{f}({x})" for f in ("FLOOR", "CEIL") for x in "dpqr"),
    *(f"{f}({x}, {y})" for f in ("GREATEST", "LEAST") for x, y in ("bc", "de", "su", "tw", "yn")),
    *(f"CAST({x} AS {type_})" for x in "bpqrd" for type_ in ("BIGINT", "INTEGER", "DOUBLE")),
    *(f"CAST({x} AS {t})" for x in "bpqr" for t in ("DECIMAL(6,1)", "DECIMAL(38,12)", "VARCHAR")),
    *(f"CAST({x} AS VARCHAR)" for x in "stym"),
    *(f"CAST({x} AS {type_})" for x in "ym" for type_ in ("DATE", "TIMESTAMP")),
    *(f"CAST(FLOOR({x}) AS DOUBLE)" for x in "pqr"),
    "s || u",
    *(f"{f}(s)" for f in ("UPPER", "LOWER", "LENGTH", "TRIM", "LTRIM", "RTRIM")),
    *(f"{f}(s, 'a b')" for f in ("TRIM", "LTRIM", "RTRIM")),
    *(f"SUBSTRING(s FROM {start} FOR {length})" for start in (0, 1, 2, 9) for length in (0, 2, 9)),
    *(f"{f}(s, {n})" for f in ("SUBSTRING", "LEFT", "RIGHT") for n in (0, 1, 2, 9)),
    *(f"{f}(s, -{n})" for f in ("LEFT", "RIGHT") for n in (1, 2, 9)),
    "REPLACE(s, u, 'x')",
    "STARTS_WITH(s, u)",
    "STRPOS(s, u)",
    *(f"s LIKE '{pattern}'" for pattern in ("", "%", "_", "a%", "%b", "%_%b", "äÖ_", "%.%", "_b")),
    "s LIKE 'A!%_' ESCAPE '!'",
    *(f"EXTRACT({part} FROM {x})" for part in ("YEAR", "QUARTER", "MONTH", "WEEK") for x in "ym"),
    *(f"EXTRACT({part} FROM {x})" for part in ("DAY", "DOW", "ISODOW", "DOY") for x in "ym"),
    *(f"EXTRACT({part} FROM m)" for part in ("HOUR", "MINUTE")),
    *(f"DATE_TRUNC('{unit}', m)" for unit in ("year", "quarter", "month", "week", "day")),
    *(f"DATE_TRUNC('{unit}', m)" for unit in ("hour", "minute", "second")),
    *(f"{x} + INTERVAL '{n}' MONTH" for x in "ym" for n in (1, -1, 13, -25)),
    *(f"{x} - INTERVAL '{n}' {unit}" for x in "ym" for n in (1, -40) for unit in ("DAY", "SECOND")),
    "y + 31",
    "y - 400",
    "y - z",
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_each_function_agrees_on_all_pairs_of_the_values_at_hand(text: str) -> None:
    """All pairs with a value at once, and a few of the failing pairs one by one."""
    expression = read(text)
    assert expression is not None
    found = by_reference(expression, PAIRS)
    there = [number for number, value in enumerate(found) if value is not FAILED]
    rows, values = [PAIRS[number] for number in there], [found[number] for number in there]
    assert agree(text, by_duckdb(text, [], rows), values)
    assert agree(text, by_polars(expression, rows), values)
    failing = [row for row, value in zip(PAIRS, found, strict=True) if value is FAILED]
    for row in failing[:: len(failing) // 5 + 1]:
        assert by_duckdb(text, [], [row]) == by_polars(expression, [row]) == [FAILED]


def _pairs() -> Iterator[Row]:
    """Rows that pair each value of a type with each other one in the next column of that type."""
    pools = {name: [None, *map(t.decode, VALUES[t.name])] for name, t in TYPES.items()}
    most = max(map(len, pools.values()))
    second = {"c", "e", "u", "w", "z", "n"}
    for i, j in product(range(most), repeat=2):
        places = {name: (j if name in second else i) for name in COLUMNS}
        # DECIMAL columns have two types, so these are paired by different steps.
        places |= {"p": i + j, "r": i}
        yield {name: pool[places[name] % len(pool)] for name, pool in pools.items()}


PAIRS = list(_pairs())


def test_the_examples_are_about_every_function() -> None:
    found = {name for text in EXAMPLES for name in _functions(read(text))}
    assert found == set(FUNCTIONS) - {each.name for each in DIALECTS}


@given(st.lists(TEXTS, min_size=100, max_size=100))
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_most_of_what_is_drawn_is_kept(texts: list[str]) -> None:
    """Otherwise the laws above would cover less than they seem to."""
    assert sum(read(text) is not None for text in texts) > 60


def _functions(what: ex.Expression | ex.Condition | None) -> Iterator[str]:
    if what is None:
        return
    if isinstance(what, ex.Call):
        yield what.function
    for part in ex.parts_of(what):
        yield from _functions(part)


_TWO_TEXTS = _fits("({x} || {y})", x=_LEAVES["text"], y=_LEAVES["text"])
_TWO_NUMBERS = _fits("({x} % {y})", x=_LEAVES["whole"], y=_LEAVES["whole"])


@pytest.mark.parametrize(
    ("name", "wrong", "texts"),
    [
        ("greatest", {"null_in_null_out": True}, _extremes(_LEAVES["whole"])),
        (
            "||",
            {"null_in_null_out": False, "value": lambda _, *x: "".join(filter(None, x))},
            _TWO_TEXTS,
        ),
        ("%", {"value": lambda _, dividend, divisor: dividend % (divisor or 1)}, _TWO_NUMBERS),
    ],
)
def test_control_a_wrong_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: dict[str, Any], texts: Text
) -> None:
    """NULL taken as a value and a value as NULL, another sign, an error ignored."""
    monkeypatch.setitem(FUNCTIONS, name, replace(FUNCTIONS[name], **wrong))

    def differs(case: tuple[str, list[Row]]) -> bool:
        text, rows = case
        expression = read(text)
        if expression is None:
            return False
        return not agree(text, by_reference(expression, rows), by_duckdb(text, [], rows))

    find(
        st.tuples(texts, ROWS),
        differs,
        settings=settings(
            deadline=None,
            max_examples=3000,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
