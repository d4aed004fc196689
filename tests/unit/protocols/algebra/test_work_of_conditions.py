"""Conditions of many members with functions: the cost grows with the members, no faster.

Work is counted, not timed: the steps made for Polars, how often each is requested while columns go
through them, and how often a function is applied, by Polars and by the reference.
"""

from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import orjson
import polars as pl
import pytest

from protocols.algebra import expressions as ex
from protocols.algebra import expressions_polars, steps
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.expressions_reference import holds
from protocols.algebra.expressions_wire import from_json, to_json
from protocols.algebra.function import Function
from protocols.checking.rewriting import view_text
from protocols.errors import ViewRefused
from protocols.explaining.explanation import explain
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView
from protocols.views.view import View
from sources.simulated.conditions import condition_to_sql

COLUMNS = {"id": "BIGINT", "b": "BIGINT", "p": "DECIMAL(8,2)", "s": "VARCHAR"}
CATALOG = catalog_from_json({"a": {"relations": {"r": {"columns": COLUMNS, "key": ["id"]}}}})
ROWS = [
    (1, 1, Decimal("1.00"), "ab"),
    (2, 7, Decimal("-2.50"), "BA12"),
    (3, None, None, None),
    (4, 499, Decimal("499.00"), "x77y"),
    (5, 2**63 - 3, Decimal("0.00"), ""),
]


def _many(member: str, word: str, count: int) -> str:
    """The member `count` times, with its number for # and the next number for ##."""
    each = (member.replace("##", str(n + 1)).replace("#", str(n)) for n in range(count))
    return word.join(each)


def _shape(text: str, member: str, word: str) -> Callable[[int], str]:
    """A text with many members in place of …"""
    return lambda count: text.replace("…", _many(member, word, count))


def _nested(count: int) -> str:
    """AND, OR and CASE in turn, in eight levels of growing width."""
    text, width = "b + 1 > 0", count // 8
    for level in range(8):
        members = [f"b + {level + n} = {n}" for n in range(width)]
        if level % 3 == 2:
            text = f"CASE WHEN {text} THEN {members[0]} ELSE {' OR '.join(members)} END"
        else:
            text = f"({(' AND ', ' OR ')[level % 3].join(['NOT ' + m for m in members])} OR {text})"
    return f"b < 1000000 AND ({text})"


#: Conditions with a given number of members.
SHAPES: dict[str, Callable[[int], str]] = {
    "IN": _shape("SUBSTRING(s, 1, 3) IN (…)", "'x#'", ", "),
    "NOT IN with NULL": _shape("b % 10 NOT IN (NULL, …)", "#", ", "),
    "IN what may fail": _shape("b < 99999 AND b + 1 IN (…)", "b - #", ", "),
    "OR of LIKE": _shape("…", "s LIKE '%#_'", " OR "),
    "AND of NOT LIKE": _shape("…", "s NOT LIKE '%#_'", " AND "),
    "OR of equalities": _shape("…", "UPPER(s) = 'X#Y'", " OR "),
    "OR of what may fail": _shape("b > 1000000 OR …", "b + # = 501", " OR "),
    "AND of what may fail": _shape("b < 1000000 AND …", "b + # <> 333", " AND "),
    "CASE of conditions": _shape("CASE … ELSE b END > 5", "WHEN b < # + 1 THEN b + #", " "),
    "CASE of a value": _shape("CASE b % 500 … END LIKE '%1'", "WHEN # THEN UPPER(s) || '#'", " "),
    "CASE of what may fail": _shape(
        "CASE WHEN b > 1000000 THEN 0 … END > 3", "WHEN b * ## = 7 THEN b + #", " "
    ),
    "COALESCE": _shape("COALESCE(…, 0) = 0", "NULLIF(b % 1##, 1)", ", "),
    "constants": _shape("…", "b = 1200 - # * 2", " OR "),
    "a constant that fails": _shape(
        "b > -1 OR b < 0 OR b IS NULL OR …", "b = 2147483647 + ##", " OR "
    ),
    "nested": _nested,
}
COUNTS = (50, 100, 200, 500)


def _condition(shape: str, count: int) -> ex.Condition:
    return _of_atom(parse_view("v", f"SELECT id FROM a.r WHERE {SHAPES[shape](count)}", CATALOG))


def _of_atom(view: AnyView) -> ex.Condition:
    assert isinstance(view, View)
    condition = view.atoms[0].condition
    assert condition is not None
    return condition


def _frame() -> pl.DataFrame:
    schema = {"id": pl.Int64(), "b": pl.Int64(), "p": pl.Decimal(8, 2), "s": pl.String()}
    return pl.DataFrame(ROWS, schema=schema, orient="row")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the work from here on."""
    counted: Counter[str] = Counter()

    def counting(owner: Any, method: str) -> None:
        done = getattr(owner, method)

        def counted_too(*given: Any, **named: Any) -> Any:
            counted[method] += 1
            return done(*given, **named)

        monkeypatch.setattr(owner, method, counted_too)

    counting(expressions_polars._Steps, "of")
    counting(steps.StepsRun, "of")
    counting(Function, "of_columns")
    counting(Function, "of")
    return counted


@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_members_and_no_faster(shape: str, work: Counter[str]) -> None:
    per_member = []
    for count in COUNTS:
        condition = _condition(shape, count)
        work.clear()
        _frame().filter(to_polars(condition))
        of_polars = work.total()
        for row in _frame().to_dicts():
            holds(condition, row)
        per_member.append((of_polars / count, (work.total() - of_polars) / count))
    for first, last in zip(per_member[0], per_member[-1], strict=True):
        assert last <= first * 1.2, per_member
    # A few steps for each member, not one for each member before it.
    assert per_member[-1][0] < 40, per_member


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [8, 500])
def test_the_reference_polars_the_source_and_duckdb_keep_the_same_rows(
    shape: str, count: int
) -> None:
    condition, rows = _condition(shape, count), _frame()
    if shape == "a constant that fails":
        # DuckDB computes constants before it reads any row.
        assert [holds(condition, row) for row in rows.to_dicts()] == [True] * len(ROWS)
        assert rows.filter(to_polars(condition)).equals(rows)
        return
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("r", rows.to_arrow())
        expected = [
            truth
            for (truth,) in database.execute(f"SELECT {SHAPES[shape](count)} FROM r").fetchall()
        ]
        parameters: list[Any] = []
        text = condition_to_sql(condition, lambda name: f'"{name}"', parameters)
        asked = database.execute(f"SELECT {text} FROM r", parameters).fetchall()
    assert [truth for (truth,) in asked] == expected
    assert [holds(condition, row) for row in rows.to_dicts()] == expected
    assert rows.select(to_polars(condition).alias("_"))["_"].to_list() == expected
    assert from_json(orjson.loads(orjson.dumps(to_json(condition)))) == condition


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "a constant that fails"])
def test_the_checker_and_explain_take_500_members(shape: str) -> None:
    sql = f"SELECT id FROM a.r WHERE {SHAPES[shape](500)}"
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("r", _frame().to_arrow())
        text = view_text(sql, CATALOG)
        again = database.execute(text.over(lambda _: "r")).fetchall()
        assert sorted(again) == sorted(database.execute(sql.replace("a.r", "r")).fetchall())
        tagged = text.tagged(lambda _: "(SELECT *, 1 AS _count FROM r)", ["_count"], ["_count_0"])
        assert sorted(database.execute(tagged).fetchall()) == sorted((*row, 1) for row in again)
    assert explain("v", sql, CATALOG).to_json()


@pytest.mark.parametrize(
    "text",
    [
        "b" + " + 1" * 500 + " > 5",
        "s" + " || 'a'" * 500 + " > 'b'",
        "NOT " * 500 + "b > 1",
        "CASE WHEN b > 1 THEN 1 ELSE " * 500 + "b" + " END" * 500 + " = 1",
        "(" * 500 + "b > 1" + ")" * 500,
    ],
)
def test_what_is_nested_too_deeply_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(ViewRefused, match="nested too deeply; write it in steps, as queries in"):
        parse_view("v", f"SELECT id FROM a.r WHERE {text}", CATALOG)


@pytest.mark.parametrize(
    "text",
    [
        "b" + " + 1" * 100 + " > 5",
        "s" + " || 'a'" * 100 + " > 'b'",
        "CASE WHEN b > 1 THEN 1 ELSE " * 40 + "b" + " END" * 40 + " = 1",
    ],
)
def test_what_is_nested_less_deeply_reaches_the_source(text: str) -> None:
    view = parse_view("v", f"SELECT id FROM a.r WHERE {text}", CATALOG)
    form = {"conditions": [{"condition": to_json(_of_atom(view))}]}
    condition = from_json(orjson.loads(orjson.dumps(form))["conditions"][0]["condition"])
    parameters: list[Any] = []
    text = condition_to_sql(condition, lambda name: f'"{name}"', parameters)
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("r", _frame()[:4].to_arrow())
        asked = database.execute(f"SELECT {text} FROM r", parameters).fetchall()
    found = _frame()[:4].select(to_polars(condition).alias("_"))["_"].to_list()
    assert found == [truth for (truth,) in asked]


def test_what_repeats_its_arguments_too_often_is_refused() -> None:
    """COALESCE names each argument twice, so 30 nested ones are 2^30."""
    text = "COALESCE(" * 30 + "b" + ", 1)" * 30 + " = 1"
    with pytest.raises(ViewRefused, match="more than 20000 parts once COALESCE"):
        parse_view("v", f"SELECT id FROM a.r WHERE {text}", CATALOG)


def test_a_value_that_is_compared_often_is_worked_out_once(work: Counter[str]) -> None:
    for text in (
        "CASE EXTRACT(MONTH FROM day) WHEN 1 THEN 'a' WHEN 2 THEN 'b' WHEN 3 THEN 'c' END = 'b'",
        "EXTRACT(MONTH FROM day) IN (1, 2, 3)",
        "EXTRACT(MONTH FROM day) = 1 OR EXTRACT(MONTH FROM day) = 2",
        "EXTRACT(MONTH FROM day) BETWEEN 2 AND 5",
        "NULLIF(EXTRACT(MONTH FROM day), 3) = 2",
    ):
        catalog = catalog_from_json({"a": {"relations": {"r": {"columns": {"day": "DATE"}}}}})
        view = parse_view("v", f"SELECT day FROM a.r WHERE {text}", catalog)
        work.clear()
        days = pl.DataFrame({"day": [date(2024, 2, 3), date(2024, 7, 1)]})
        assert days.filter(to_polars(_of_atom(view))).height == 1, text
        assert work["of_columns"] == 1, text
