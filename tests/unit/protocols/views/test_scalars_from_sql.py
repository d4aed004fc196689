"""Values and conditions in the text of a view: refusals, and results for awkward rows."""

import datetime
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest
import sqlglot
from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.delta import COUNT
from protocols.algebra.expressions_polars import value_to_polars
from protocols.algebra.expressions_reference import value_of
from protocols.algebra.frame import Frame
from protocols.algebra.steps import RowSubset
from protocols.algebra.types import BIGINT, BOOLEAN, DOUBLE, ColumnType, SqlType, column_type
from protocols.errors import NoValue, ViewRefused, WrongUse
from protocols.exchange.questions import Query
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.scalars import ScalarReader
from protocols.views.view import View
from sources.simulated.database import SourceDatabase
from sources.simulated.lookup import lookup
from sources.transaction import RowChange, Transaction
from tests.harness.innerjoins import parsed

COLUMNS = {
    "b": "BIGINT",
    "d": "DOUBLE",
    "p": "DECIMAL(8,2)",
    "big": "DECIMAL(38,0)",
    "fine": "DECIMAL(38,30)",
    "s": "VARCHAR",
    "t": "BOOLEAN",
    "y": "DATE",
    "m": "TIMESTAMP",
}
CATALOG: Catalog = catalog_from_json({"a": {"relations": {"r": {"columns": COLUMNS}}}})


def _where(condition: str) -> View:
    return parsed(f"SELECT b FROM a.r WHERE\n{condition}", CATALOG)


# -------------------------------------------------------------------------------------- refusals

REFUSED = [
    # Where DuckDB and PostgreSQL differ.
    ("b / 2 > 1", 1, "cast one side to DOUBLE"),
    ("p / 2 > 1", 1, r"DECIMAL\(8,2\) / INTEGER is a DOUBLE in DuckDB"),
    ("d % 2 > 1", 1, "PostgreSQL has no % for DOUBLE"),
    ("b // 2 > 1", 1, "b // 2 is not supported"),
    ("b = 1 OR ROUND(d, 2) = 1", 10, "a DOUBLE is rounded half up by DuckDB"),
    ("ROUND(p, b) = 1", 1, "have to be a constant and not negative"),
    ("ROUND(p, -1) = 1", 1, "have to be a constant and not negative"),
    ("FLOOR(b) = 1", 7, "a whole number already"),
    ("CAST(s AS BIGINT) = 1", 6, "VARCHAR cannot be cast to BIGINT: the databases read texts"),
    ("CAST(d AS DECIMAL(8,2)) = 1", 6, "keep different digits"),
    ("CAST(d AS VARCHAR) = '1'", 6, "one database writes 1.0"),
    ("CAST(t AS BIGINT) = 1", 6, "write CASE WHEN"),
    ("CAST(y AS BIGINT) = 1", 6, "the databases do not agree"),
    ("CAST(p AS DECIMAL) = 1", 6, "a DECIMAL is another type in each database"),
    ("TRY_CAST(p AS BIGINT) = 1", 10, "PostgreSQL has no TRY_CAST"),
    ("s || d = 'x'", 6, "one database writes 1.0"),
    ("b || b = 'x'", 1, r"\|\| joins texts"),
    (r"s LIKE 'a\%'", 8, "LIKE … ESCAPE"),
    ("s LIKE s", 8, "LIKE takes a constant here"),
    ("s LIKE 'a!' ESCAPE '!'", 8, "ends with its escape letter"),
    ("s LIKE 'a!' ESCAPE '!!'", 20, "ESCAPE takes one letter"),
    ("s ILIKE 'a%'", 1, "ILIKE 'a%' is not supported"),
    ("SUBSTRING(s, -1) = 'x'", 15, "a constant and not negative"),
    ("SUBSTRING(s, 1, b) = 'x'", 17, "a constant and not negative"),
    ("LEFT(s, b) = 'x'", 9, "a number of letters in LEFT has to be a constant"),
    ("EXTRACT(SECOND FROM m) = 1", 21, "the databases agree about YEAR"),
    ("EXTRACT(HOUR FROM y) = 1", 19, "takes a TIMESTAMP, not a DATE"),
    ("DATE_TRUNC('month', y) = m", 1, "cast to TIMESTAMP first"),
    ("DATE_TRUNC('century', m) = m", 1, "does not know the unit"),
    ("y + INTERVAL '1 month 1 day' > m", 14, "a whole number of one unit"),
    ("y + b > y", 1, r"CAST\(b AS INTEGER\)"),
    ("m - m > m", 1, "an interval, and no column has that type"),
    ("b BETWEEN 1 AND d", 1, "BIGINT and DOUBLE meet here"),
    ("d IN (b, 1)", 1, "BIGINT and DOUBLE meet here"),
    ("p * 1e3 > 1", 5, "1e3 is a DOUBLE in DuckDB and none in PostgreSQL"),
    ("fine * fine > 1", 1, "60 digits after the point"),
    ("COALESCE(big, p) > 1", 1, "more than 38 digits"),
    # Values that change by themselves, and expressions that are not scalars.
    ("RANDOM() < 0.5", 1, "returns a different value each time"),
    ("m < NOW()", 5, r"NOW\(\) returns a different value each time"),
    ("y = CURRENT_DATE", 5, "CURRENT_DATE returns a different value"),
    ("SUM(b) > 1", 1, r"SUM\(b\) is an aggregate, which cannot stand here"),
    ("mine(b) = 1", 1, r"mine\(b\) is not supported"),
    ("ROW_NUMBER() OVER () = 1", 1, "in a subquery in FROM first"),
    # Types that do not fit.
    ("b", 1, "b is a BIGINT, not a condition"),
    ("b AND t", 1, "b is a BIGINT, not a condition"),
    ("NOT s", 5, "s is a VARCHAR, not a condition"),
    ("b + 1", 1, "a BIGINT, not a condition"),
    ("s + 1 > 1", 1, r"\+ takes numbers, not VARCHAR"),
    ("-s = 'x'", 2, "- takes numbers, not VARCHAR"),
    ("ABS(t)", 1, "ABS takes numbers, not BOOLEAN"),
    ("UPPER(b) = 'x'", 1, "UPPER takes a VARCHAR here, not a BIGINT"),
    ("s = b", 1, "VARCHAR and BIGINT"),
    ("UPPER(s) = b + 1", 1, "VARCHAR and BIGINT"),
    ("UPPER(s) = 5", 1, "VARCHAR and BIGINT"),
    ("p > '1.555'", 5, r"'1\.555' is not a DECIMAL\(8,2\), which the column is"),
    ("CASE WHEN t THEN b ELSE s END = 1", 11, "values of two types|columns of two types"),
    ("COALESCE(NULL, NULL) = b", 1, "has no type"),
    ("NULL + NULL = b", 1, "has no type"),
    ("y = DATE '2023-02-29'", 10, "'2023-02-29' is not a DATE"),
    ("b = 123456789012345678901", 5, "more digits than a BIGINT or a DECIMAL; write CAST"),
    ("b + 9223372036854775808 = 1", 5, "more digits than a BIGINT"),
]


@pytest.mark.parametrize(("condition", "column", "reason"), REFUSED)
def test_refused_with_place_and_reason(condition: str, column: int, reason: str) -> None:
    with pytest.raises(ViewRefused, match=reason) as refused:
        _where(condition)
    assert (refused.value.line, refused.value.column) == (2, column), refused.value


# ---------------------------------------------------------------------- read without surroundings


def _scalars(special: Callable[[exp.Expr], Any] = lambda _node: None) -> ScalarReader:
    types = {name: column_type(type_) for name, type_ in COLUMNS.items()}

    def refuse(node: exp.Expr, reason: str) -> Any:
        raise AssertionError((node.sql(), reason))

    return ScalarReader(lambda node: (node.name, types[node.name]), refuse, special)


def _node(text: str) -> exp.Expr:
    select = sqlglot.parse_one(f"SELECT {text}", read="duckdb")
    assert isinstance(select, exp.Select)
    found: exp.Expr = select.selects[0]
    return found


def _read(text: str) -> tuple[ex.Expression, SqlType]:
    return _scalars().typed(_node(text))


def test_what_only_the_caller_understands_is_asked_about_once_and_may_stand_anywhere() -> None:
    asked: Counter[int] = Counter()

    def special(node: exp.Expr) -> tuple[ex.Expression, ColumnType] | None:
        asked[id(node)] += 1
        if isinstance(node, exp.Sum):
            return ex.Column("total"), BIGINT
        return (ex.Column("there"), BOOLEAN) if isinstance(node, exp.Exists) else None

    text = (
        "(SUM(b) + 1 > 5 AND NOT EXISTS (SELECT 1)) OR s LIKE 'a' OR COALESCE(SUM(b), 0) IN (1, b)"
    )
    condition = _scalars(special).condition(_node(text))
    assert ex.columns_of(condition) == {"total", "there", "s", "b"}
    assert set(asked.values()) == {1}


def test_numbers_take_the_type_of_a_column_and_otherwise_have_their_own() -> None:
    assert _read("p > 1")[0] == ex.Truth(
        ex.Comparison(ex.Column("p"), ">", ex.Literal(Decimal("1.00"), column_type("DECIMAL(8,2)")))
    )
    assert _read("1.50")[1] == column_type("DECIMAL(3,2)")
    assert _read("p * 1.5")[1] == column_type("DECIMAL(10,3)")
    assert _read("p * 2")[1] == column_type("DECIMAL(18,2)")
    assert _read("p * b")[1] == column_type("DECIMAL(27,2)")


@pytest.mark.parametrize(
    "text",
    [
        "1 = 1",
        "'b' < 'a'",
        "1 < 1.5",
        "NULL = 1",
        "NOT 2 = 2.0",
        "2 BETWEEN 1 AND 3",
        "1 IN (2, 3)",
        "CASE 1 WHEN 2 THEN t END",
        "DATE '2024-02-29' > DATE '2024-02-28'",
        "TRUE <> FALSE",
    ],
)
def test_constants_are_compared_as_in_duckdb(text: str) -> None:
    expression, _ = _read(text)
    [(expected,)] = duckdb.execute(f"SELECT {text} FROM (SELECT true AS t)").fetchall()
    assert value_of(expression, {"t": True}) == expected
    found = _frame([{"t": True}, {"t": True}]).with_columns(value_to_polars(expression).alias("_"))
    assert found["_"].to_list() == [expected, expected]


# --------------------------------------------------------------------------- rows without a value

FAILING: list[tuple[str, dict[str, Any], str]] = [
    ("b + 1", {"b": 2**63 - 1}, "9223372036854775808 is not a BIGINT"),
    ("b * b", {"b": 2**32}, "18446744073709551616 is not a BIGINT"),
    ("-b", {"b": -(2**63)}, "9223372036854775808 is not a BIGINT"),
    ("ABS(b)", {"b": -(2**63)}, "is not a BIGINT"),
    ("b % b", {"b": 0}, "0 % 0 divides by zero; write NULLIF"),
    ("p % p", {"p": Decimal("0.00")}, "divides by zero"),
    ("big + 1", {"big": Decimal(10**38 - 1)}, r"is not a DECIMAL\(38,0\)"),
    ("big * 1.5", {"big": Decimal(10**38 - 1)}, r"is not a DECIMAL\(38,1\)"),
    ("CAST(b AS DECIMAL(8,2))", {"b": 10**6}, "1000000 cannot be cast to DECIMAL"),
    ("CAST(p AS DECIMAL(4,2))", {"p": Decimal("99.995")}, "cannot be cast"),
    ("CAST(d AS BIGINT)", {"d": float("nan")}, "nan is not a BIGINT"),
    ("CAST(d AS BIGINT)", {"d": 1e19}, "cannot be cast to BIGINT"),
    ("CAST(b AS INTEGER)", {"b": 2**31}, "2147483648 is not an INTEGER"),
    ("CAST('2147483648' AS INTEGER)", {"b": 1}, "2147483648 is not an INTEGER"),
    ("2147483647 + 1", {"b": 1}, "2147483648 is not an INTEGER"),
    ("y + 1", {"y": datetime.date(9999, 12, 31)}, "is not a DATE of the years 1 to 9999"),
    ("y - 1", {"y": datetime.date(1, 1, 1)}, "is not a DATE of the years 1 to 9999"),
    ("y + INTERVAL '1' MONTH", {"y": datetime.date(9999, 12, 31)}, "is not a TIMESTAMP of"),
    ("y + INTERVAL '1' DAY", {"y": datetime.date(9999, 12, 31)}, "is not a TIMESTAMP of"),
]


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = {name: column_type(type_).dtype for name, type_ in COLUMNS.items()}
    full = [{name: row.get(name) for name in COLUMNS} for row in rows]
    return pl.DataFrame(full, schema=schema, orient="row")


@pytest.mark.parametrize(("text", "row", "reason"), FAILING)
def test_what_would_not_fit_is_an_error_and_no_other_value(
    text: str, row: dict[str, Any], reason: str
) -> None:
    expression, _ = _read(text)
    with pytest.raises(NoValue, match=reason):
        value_of(expression, row)
    rows = _frame([{}, row])
    with pytest.raises(NoValue, match=reason) as error:
        rows.with_columns(value_to_polars(expression).alias("_"))
    assert "\n" not in str(error.value)
    condition = ex.Not(ex.IsNull(expression))
    counted = rows.with_columns(pl.lit(1, pl.Int64).alias(COUNT))
    with pytest.raises(NoValue, match=reason):
        Frame(counted).where(condition)


@pytest.mark.parametrize(
    "text",
    [
        "CASE WHEN b > 5 THEN 0 ELSE b + 9223372036854775800 END",
        "CASE WHEN b > 5 THEN NULL WHEN b + 9223372036854775800 > 0 THEN 1 ELSE b END",
        "CASE b WHEN 100 THEN 0 ELSE 100 % (b - 100) END",
        "COALESCE(NULLIF(b, 1), b + 9223372036854775800)",
        "CASE WHEN b < 5 AND b + 9223372036854775800 > 0 THEN 1 ELSE 2 END",
        "CASE WHEN b >= 5 OR b + 9223372036854775800 > 0 THEN 1 ELSE 2 END",
        "CASE WHEN b > 5 THEN 1 ELSE CASE WHEN b < 3 THEN b + 9223372036854775800 ELSE 3 END END",
        "CASE WHEN b > 5 THEN 1 WHEN b > 50 THEN 2147483647 + 1 END",
        "b > 5 OR b + 9223372036854775800 > 0 OR TRUE",
        "b < 5 AND b + 9223372036854775800 > 0 AND FALSE",
    ],
)
def test_what_is_not_needed_for_a_row_does_not_fail(text: str) -> None:
    expression, _ = _read(text)
    rows = [{"b": 1}, {"b": 100}, {"b": 4}]
    expected = [value_of(expression, row) for row in rows]
    found = _frame(rows).with_columns(value_to_polars(expression).alias("_"))
    assert found["_"].to_list() == expected


def test_control_the_same_fails_where_it_is_needed() -> None:
    expression, _ = _read("CASE WHEN b > 500 THEN 0 ELSE b + 9223372036854775800 END")
    with pytest.raises(NoValue):
        _frame([{"b": 1}, {"b": 100}]).with_columns(value_to_polars(expression).alias("_"))


def test_control_what_is_not_kept_from_rows_that_do_not_need_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expression, _ = _read("b >= 5 OR b + 9223372036854775800 > 0")
    rows = _frame([{"b": 1}, {"b": 100}])
    assert rows.select(value_to_polars(expression)).to_series().all()
    monkeypatch.setattr(RowSubset, "where", lambda self, _condition: self)
    with pytest.raises(NoValue):
        rows.select(value_to_polars(expression))


def test_no_rows_have_no_values_of_the_right_type() -> None:
    for text in ("b + 1", "p * 1.5", "UPPER(s)", "s LIKE 'a%'", "y + 1", "GREATEST(b, 1)"):
        expression, type_ = _read(text)
        found = _frame([]).with_columns(value_to_polars(expression).alias("_"))
        assert isinstance(type_, ColumnType)
        assert (found.height, found.schema["_"]) == (0, type_.dtype)


def test_a_double_divided_by_zero_is_no_error() -> None:
    expression, type_ = _read("d / 0")
    assert type_ == DOUBLE
    found = [value_of(expression, {"d": d}) for d in (1.0, -1.0, 0.0, None)]
    assert str(found) == "[inf, -inf, nan, None]"


# --------------------------------------------------------------------------------------- letters


def test_letters_change_case_as_in_duckdb() -> None:
    """For the first 12,000 code points, which include nearly all with a case, and some beyond."""
    numbers = [*range(1, 12000), *range(0x10400, 0x10450), 0x1F9F9]
    letters = pl.DataFrame({"s": [f"a{chr(n)}B" for n in numbers]})
    texts = (
        "UPPER(s)",
        "LOWER(s)",
        "LENGTH(s)",
        "TRIM(s)",
        "TRIM(SUBSTRING(s, 2, 1))",
        "LEFT(s, 2)",
    )
    with duckdb.connect(":memory:", config={"threads": 1}) as database:
        database.register("letters", letters.to_arrow())
        for text in texts:
            expression, _ = _read(text)
            expected = [v for (v,) in database.execute(f"SELECT {text} FROM letters").fetchall()]
            found = letters.with_columns(value_to_polars(expression).alias("_"))["_"].to_list()
            assert found == expected
            assert [value_of(expression, {"s": s}) for s in letters["s"]] == expected


# ---------------------------------------------------------------------------------- at the source


def test_a_source_evaluates_conditions_with_calls_and_says_what_it_cannot(tmp_path: Any) -> None:
    relation = next(iter(CATALOG))
    view = _where("UPPER(s) LIKE 'A%' AND CASE WHEN b > 2 THEN p * 2 ELSE p END = 3")
    condition = view.atoms[0].condition
    rows = [
        (b, None, Decimal(p), None, None, s, None, None, None)
        for b, p, s in [(1, "3.00", "ab"), (3, "1.50", "Ax"), (3, "3.00", "a"), (1, "3.00", "b")]
    ]
    with SourceDatabase.create(tmp_path / "a.db", "a", CATALOG, {}) as database:
        database.commit(Transaction(tuple(RowChange("r", row, 1) for row in rows)))
        table, _ = lookup(database, Query(relation, ("b", "s"), condition))
        assert sorted(zip(*table.to_pydict().values(), strict=True)) == [(1, "ab"), (3, "Ax")]
        failing = _where("b % (b - 3) = 0").atoms[0].condition
        with pytest.raises(WrongUse, match=r"relation a\.r: .*Division by zero"):
            lookup(database, Query(relation, ("b",), failing))
        odd = ex.IsTrue(ex.Call("upper", (ex.Column("b"),), BOOLEAN))
        with pytest.raises(WrongUse, match="the condition UPPER takes a VARCHAR"):
            lookup(database, Query(relation, ("b",), odd))
