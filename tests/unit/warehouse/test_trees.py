"""The tables of views beyond inner joins: sums of 38 digits, averages, NULL groups, no rows at all.

The risk here is types: a MERGE that compares or adds them differently from Polars would make
`current` differ from `changes`, or fail.
"""

import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from protocols.algebra.delta import COUNT, POSITION
from protocols.exchange.deliveries import Deliveries
from protocols.views.catalog import Catalog, relation_from_json
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView
from warehouse.definition import stored_view
from warehouse.standing import Standing
from warehouse.tables import ViewTables

R = relation_from_json(
    "a",
    "r",
    {"columns": {"g": "VARCHAR", "n": "BIGINT", "m": "DECIMAL(14,2)", "f": "DOUBLE"}},
)
SQL = (
    "SELECT g, SUM(n) AS s, SUM(m) AS t, AVG(n) AS a, COUNT(*) AS c, MAX(f) AS f, MIN(m) > 0 AS p"
    " FROM a.r GROUP BY g"
)
Row = tuple[Any, ...]
LARGE, LARGER = (Decimal(10**37 + more) for more in (0, 1))
OLD = [
    ("p", LARGE, Decimal("0.10"), 0.1, 3, math.nan, True),
    (None, Decimal(-1), None, 1 / 3, 1, None, None),
    ("q", None, None, None, 2, -math.inf, False),
]
NEW = [
    ("p", LARGER, Decimal("0.11"), 0.1, 4, math.nan, True),
    ("q", Decimal(0), Decimal("-99999999999999.99"), 0.0, 2, 0.0, False),
    ("", Decimal(7), Decimal("7.00"), 7.0, 1, 1e300, True),
]


def kept(directory: Path) -> ViewTables:
    view = parse_view("v", SQL, Catalog((R,)))
    assert isinstance(view, TreeView)
    tables = ViewTables(directory, view)
    tables.define()
    tables.begin(rows(tables, (OLD, 1)), Standing(0, {"a": 1}, {"a": (7, 1)}))
    tables.follow()
    return tables


def rows(tables: ViewTables, *parts: tuple[list[Row], int]) -> pl.DataFrame:
    schema = {name: type_.dtype for name, type_ in tables.view.schema.items()}
    signed = [(*row, count) for given, count in parts for row in given]
    return pl.DataFrame(signed, schema={**schema, COUNT: pl.Int64}, orient="row")


def install(tables: ViewTables, position: int, *parts: tuple[list[Row], int]) -> None:
    placed = rows(tables, *parts).with_columns(pl.lit(position, pl.Int64).alias(POSITION))
    version = 1 + position
    order = Deliveries(("a",), *(np.array([each], np.int64) for each in (position, 0, version)))
    tables.install(placed, Standing(position, {"a": version}, {"a": (7, version)}), order)


def counted(frame: pl.DataFrame) -> Counter[str]:
    """Rows counted by their texts, since NaN does not equal itself."""
    return Counter({repr(row): count for *row, count in frame.iter_rows()})


def held(given: list[Row]) -> Counter[str]:
    return Counter({repr(list(row)): 1 for row in given})


def test_the_types_of_sums_and_averages_are_those_of_the_tables(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    names = [type_.name for type_ in tables.view.schema.values()]
    assert names[1:4] == ["DECIMAL(38,0)", "DECIMAL(38,2)", "DOUBLE"]
    fresh = ViewTables(tmp_path, tables.view).at(0)
    assert fresh.drop(COUNT).schema == rows(tables).drop(COUNT).schema
    assert counted(fresh) == held(OLD)


def test_current_follows_rows_that_are_replaced_by_others(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    install(tables, 1, (OLD, -1), (NEW, 1))
    tables.follow()
    current = pl.read_delta(str(tables.directory / "current"))
    assert counted(current) == counted(tables.at(1)) == held(NEW)


@pytest.mark.parametrize("row", OLD, ids=str)
def test_current_follows_the_return_of_each_row(tmp_path: Path, row: Row) -> None:
    tables = kept(tmp_path)
    for position, count in enumerate((-1, 1, -1), 1):
        install(tables, position, ([row], count))
        tables.follow()
    current = pl.read_delta(str(tables.directory / "current"))
    assert counted(current) == held([other for other in OLD if other is not row])


def test_a_stored_tree_is_read_back(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    again = stored_view(tables.directory)
    assert isinstance(again, TreeView)
    assert (again.schema, again.sql, again.sources) == (tables.view.schema, SQL, ("a",))
