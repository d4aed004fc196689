"""A view in the dialect of DuckDB computes as DuckDB does, on awkward values and drawn ones."""

from random import Random
from typing import Any, NoReturn

import duckdb
import polars as pl
import pytest
from sqlglot import exp, parse_one

from protocols.algebra.expressions_polars import value_to_polars
from protocols.algebra.expressions_reference import value_of
from protocols.algebra.types import column_type
from protocols.views.operands import kept
from protocols.views.scalars import ScalarReader
from sources.simulated.conditions import value_to_sql

_TYPES = {"b": "BIGINT", "d": "DOUBLE", "p": "DECIMAL(8,2)", "q": "DECIMAL(30,4)"}
_AWKWARD: dict[str, list[Any]] = {
    "BIGINT": [0, 1, -1, 7, -7, 2**53 + 1, 2**63 - 1, -(2**63), None],
    "DOUBLE": [0.0, -0.001, 0.5, 2.5, -2.5, 1.005, 2.345, 0.285, 1e17, 1e300, 0.49999999999999994],
    "DECIMAL(8,2)": ["0.00", "0.01", "-2.55", "999999.99", None],
    "DECIMAL(30,4)": ["0.0000", "12345678901234567890.1234", "-0.0007", "3.0000"],
}
_TEXTS = [
    "b / 2",
    "b / p",
    "p / b",
    "p / q",
    "q / 7.0",
    "100 * p / q",
    "b / d",
    "1e3 * d",
    "round(d)",
    "round(d, 1)",
    "round(d, 2)",
    "round(d, 5)",
    "round(p / 3, 2)",
    "d IN (b, p)",
    "b BETWEEN d AND p",
]


def _refuse(_node: exp.Expr, reason: str) -> NoReturn:
    raise AssertionError(reason)


def _rows() -> list[dict[str, Any]]:
    rng = Random(7)
    rows = []
    for _ in range(400):
        row = {
            name: column_type(type_).decode(rng.choice(_AWKWARD[type_]))
            for name, type_ in _TYPES.items()
        }
        if rng.random() < 0.6:
            row["d"] = round(rng.uniform(-1000, 1000), 3)
        rows.append(row)
    return rows


@pytest.mark.parametrize("text", _TEXTS)
def test_it_computes_as_duckdb(text: str) -> None:
    types = {name: column_type(type_) for name, type_ in _TYPES.items()}
    reader = ScalarReader(
        lambda node: (node.name, types[node.name]), _refuse, lambda _: None, "duckdb"
    )
    expression, sql_type = reader.typed(parse_one(text, read="duckdb"))
    type_, rows = kept(sql_type), _rows()
    frame = pl.DataFrame(
        rows, schema={name: each.dtype for name, each in types.items()}, orient="row"
    )
    parameters: list[Any] = []
    at_source = value_to_sql(expression, lambda name: name, parameters)
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("rows", frame)
        theirs = [v for (v,) in database.execute(f"SELECT {text} FROM rows").fetchall()]
        found = database.execute(f"SELECT {at_source} FROM rows", parameters)
        source = [v for (v,) in found.fetchall()]
        (name,) = database.sql(f"SELECT DISTINCT typeof({text}) FROM rows").fetchall()[0]
    reference = [value_of(expression, row) for row in rows]
    columns = frame.select(value_to_polars(expression).alias("v")).to_series().to_list()
    assert name == type_.name
    for each in (reference, columns, source):
        assert list(map(repr, each)) == list(map(repr, theirs))
    assert len(set(map(repr, theirs))) > 1
