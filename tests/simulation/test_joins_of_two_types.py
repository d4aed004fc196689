"""Joins on columns of two types, and on values: kept as DuckDB computes them, by single questions.

`l` has the key k as a DECIMAL and day as a DATE, `r` as a BIGINT and a TIMESTAMP.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from protocols.algebra.expressions import Call, Column
from protocols.algebra.expressions_polars import value_to_polars
from protocols.algebra.expressions_reference import value_of
from protocols.algebra.types import BIGINT, ColumnType, column_type
from protocols.analysis.outerjoins import BlockAnalysis
from protocols.explaining.explanation import explain
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation import campaign, setting
from protocols.simulation.campaign import Campaign
from protocols.simulation.drawn import Shaped
from protocols.simulation.scenario import scenario_from_json
from protocols.views.normal import links
from protocols.views.normal.links import exactly
from tests.harness.campaigns import assert_right

Row = list[Any]

LEFT: list[Row] = [
    ["1.00", 1, "2024-02-29"],
    ["1.50", 2, "2024-03-01"],
    ["-2.00", 3, None],
    ["9999.99", 4, "2024-02-29"],
    [None, 5, "2024-03-02"],
]
RIGHT: list[Row] = [
    [1, 1, "2024-02-29 00:00:00"],
    [2, 2, "2024-02-29 12:00:00"],
    [-2, 3, None],
    [10_000, 4, "2024-03-01 00:00:00"],
    [10**18, 5, None],
    [None, 6, "2024-03-02 00:00:00"],
]


def _changed(relation: str, *changes: tuple[int, Row]) -> dict[str, Any]:
    forms = [{"relation": relation, "row": row, "count": count} for count, row in changes]
    return {"source": "a" if relation == "l" else "b", "changes": forms}


def _story(view: str) -> dict[str, Any]:
    left = {"k": "DECIMAL(6,2)", "v": "BIGINT", "day": "DATE"}
    right = {"k": "BIGINT", "v": "BIGINT", "day": "TIMESTAMP"}
    return {
        "view": view,
        "sources": {
            "a": {"relations": {"l": {"columns": left, "rows": LEFT}}},
            "b": {"relations": {"r": {"columns": right, "rows": RIGHT}}},
        },
        "updates": [
            _changed("r", (-1, RIGHT[0]), (1, [1, 7, "2024-03-01 00:00:01"])),
            _changed("l", (1, ["10.00", 6, "2024-03-01"]), (1, ["1.00", 7, None])),
            _changed("r", (1, [10, 8, "2024-02-29 00:00:00"]), (-1, RIGHT[2])),
            _changed("l", (-1, LEFT[0]), (-1, LEFT[3])),
            _changed("r", (1, [-2, 3, "2024-03-02 00:00:00"])),
        ],
    }


def _view(join: str) -> str:
    return f"SELECT l.k, l.v, r.k AS rk, r.v AS w FROM a.l l {join}"


ON_COLUMNS = {
    "inner": _view("JOIN b.r r ON l.k = r.k"),
    "left": _view("LEFT JOIN b.r r ON r.k = l.k AND r.v > 1"),
    "right": _view("RIGHT JOIN b.r r ON r.k = l.k"),
    "full": _view("FULL JOIN b.r r ON l.k = r.k"),
    "dates": _view("FULL JOIN b.r r ON l.day = r.day"),
    "in WHERE": "SELECT l.v, r.v AS w FROM a.l l, b.r r WHERE l.k = r.k AND l.v < 5",
    "with the cast written": _view(
        "LEFT JOIN b.r r ON CAST(l.k AS DECIMAL(21,2)) = CAST(r.k AS DECIMAL(21,2))"
    ),
    "below a group": "SELECT l.k, COUNT(r.v) AS n FROM a.l l LEFT JOIN b.r r ON l.k = r.k"
    " GROUP BY l.k",
    "beside another link": _view("JOIN b.r q ON q.v = l.v LEFT JOIN b.r r ON l.k = r.k"),
}
ON_VALUES = {
    "a rounded value": _view("LEFT JOIN b.r r ON CAST(l.k AS BIGINT) = r.k"),
    "a sum": _view("FULL JOIN b.r r ON l.v + 1 = r.v"),
    "two sums": "SELECT l.v, r.v AS w FROM a.l l JOIN b.r r ON l.v + 1 = r.v * 2",
}
VIEWS = ON_COLUMNS | ON_VALUES


@pytest.mark.parametrize("protocol", ["sweep", "batched-sweep"])
@pytest.mark.parametrize("name", VIEWS)
def test_it_is_kept_as_duckdb_computes_it(name: str, protocol: str) -> None:
    shaped = Shaped("types", _story(VIEWS[name]))
    assert_right(Campaign(PROTOCOLS[protocol], shaped).over(range(6)))


@pytest.fixture
def _nothing_known_from_before() -> Iterator[None]:
    """Clears the caches: views parsed with and without a defect must not mix."""
    caches = (campaign._contents, setting.setting_of, setting.parsed)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("_nothing_known_from_before")
def test_a_value_that_is_only_rounded_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: 1.50 is not 2, although it is cast to 2."""

    def rounded(left: Any, right: Any) -> list[tuple[Any, Any]]:
        return [(Call("cast", (left.column[0],), BIGINT), right.column[0])]

    monkeypatch.setattr(links, "_pairs", rounded)
    shaped = Shaped("rounded", _story(VIEWS["inner"]))
    assert Campaign(PROTOCOLS["sweep"], shaped).over(range(6)).troubles


@pytest.mark.parametrize("name", ON_COLUMNS)
def test_no_relation_is_read_whole_for_it(name: str) -> None:
    found = explain("v", VIEWS[name], scenario_from_json(_story(VIEWS[name])).catalog)
    assert not [each for each in found.costs.asks if each.whole]
    assert not any("whole" in each for each in found.advice)


@pytest.mark.parametrize("name", ON_VALUES)
def test_for_a_value_relations_are_read_whole_and_explain_says_so(name: str) -> None:
    found = explain("v", VIEWS[name], scenario_from_json(_story(VIEWS[name])).catalog)
    assert any("a.l whole" in each for each in found.advice)


def test_explain_states_the_equality_as_it_was_written() -> None:
    view = VIEWS["full"]
    (block,) = explain("v", view, scenario_from_json(_story(view)).catalog).outer_joins
    assert isinstance(block, BlockAnalysis)
    assert list(map(str, block.form.terms)) == ["{l, r} where l.k = r.k", "{l}", "{r}"]


# -- the equal value of another type ---------------------------------------------------------------

TYPES = ["BIGINT", "DECIMAL(3,0)", "DECIMAL(4,2)", "DECIMAL(5,1)", "DECIMAL(22,2)", "DECIMAL(6,6)"]
NUMBERS = ["0", "1", "-1", "0.5", "0.05", "0.99", "9.95", "99.99", "99.9", "100", "999", "-999"]
NUMBERS += ["9999.9", "1e15", "9223372036854775807", "-9223372036854775808", "9223372036854775808"]
NUMBERS += ["0.999999", "0.000001", "-99.99", "99999999999999999999.99"]


def _fits(number: Decimal, type_: ColumnType) -> bool:
    """Whether the number fits the type, by definition."""
    if type_.name == "BIGINT":
        return number == number.to_integral_value() and -(2**63) <= number < 2**63
    precision, scale = type_.precision_and_scale
    units = number.scaleb(scale)
    return units == units.to_integral_value() and abs(units) < 10**precision


@pytest.mark.parametrize("wanted", TYPES)
@pytest.mark.parametrize("own", TYPES)
def test_a_number_of_one_type_is_exactly_one_of_another_or_none(own: str, wanted: str) -> None:
    ours, theirs = column_type(own), column_type(wanted)
    numbers = [n for n in map(Decimal, NUMBERS) if _fits(n, ours)]
    given = [int(n) if own == "BIGINT" else ours.decode(format(n, "f")) for n in numbers]
    expected = [n if _fits(n, theirs) else None for n in numbers]
    expression = exactly(Column("n"), ours, theirs)
    assert [value_of(expression, {"n": each}) for each in given] == expected
    frame = pl.DataFrame({"n": pl.Series(given, dtype=ours.dtype)})
    assert frame.select(value_to_polars(expression).alias("n"))["n"].to_list() == expected
