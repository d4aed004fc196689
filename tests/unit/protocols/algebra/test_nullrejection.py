"""Null-rejecting conditions: the verdict holds for every row."""

from itertools import product
from typing import Any, NoReturn

import pytest
import sqlglot
from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.expressions_reference import holds
from protocols.algebra.nullrejection import is_null, never_null_where, rejects_null
from protocols.algebra.types import ColumnType, column_type
from protocols.analysis.wording import condition_text
from protocols.views.scalars import ScalarReader

BIGINT, BOOLEAN = column_type("BIGINT"), column_type("BOOLEAN")


def _condition(text: str) -> ex.Condition:
    def column(node: exp.Column) -> tuple[str, ColumnType]:
        return node.name, BOOLEAN if node.name == "b" else BIGINT

    def refuse(node: exp.Expr, reason: str) -> NoReturn:
        raise AssertionError(f"{node.sql()}: {reason}")

    scalars = ScalarReader(column, refuse, lambda _: None)
    return scalars.condition(
        sqlglot.parse_one(f"SELECT 1 WHERE {text}", read="duckdb").args["where"].this
    )


CONDITIONS = [
    # (condition, columns, whether it rejects NULL in all of them)
    ("x = 1", "x", True),
    ("x = y", "x", True),
    ("x + y > 2", "y", True),
    ("x IS NULL", "x", False),
    ("x IS NOT NULL", "x", True),
    ("NOT x = 1", "x", True),
    ("x IN (1, 2)", "x", True),
    ("x NOT IN (1, 2)", "x", True),
    ("x NOT BETWEEN 1 AND 2", "x", True),
    ("x = 1 OR y = 1", "x", False),
    ("x = 1 OR y = 1", "x y", True),
    ("x = 1 AND y IS NULL", "x", True),
    ("NOT (x = 1 AND y = 1)", "x", False),
    ("NOT (x = 1 AND y = 1)", "x y", True),
    ("COALESCE(x, 0) = 0", "x", False),
    ("COALESCE(x, y) = 0", "x", False),
    ("COALESCE(x, y) = 0", "x y", True),
    ("CASE WHEN x = 1 THEN y ELSE z END = 1", "x", False),
    ("CASE WHEN x = 1 THEN y ELSE z END = 1", "z", False),
    ("CASE WHEN x = 1 THEN y ELSE z END = 1", "x z", True),
    ("x IS DISTINCT FROM y", "x", False),
    ("b", "b", True),
    ("NOT b", "b", True),
    ("x = NULL", "y", True),
]


@pytest.mark.parametrize(("text", "columns", "rejects"), CONDITIONS)
def test_whether_a_condition_rejects_null(text: str, columns: str, rejects: bool) -> None:
    assert rejects_null(_condition(text), columns.split()) is rejects


@pytest.mark.parametrize(("text", "columns", "rejects"), CONDITIONS)
def test_the_reference_agrees_with_the_verdict_on_every_small_row(
    text: str, columns: str, rejects: bool
) -> None:
    """The columns NULL, the others anything: true for no row if it rejects, otherwise for some."""
    condition = _condition(text)
    truths = {holds(condition, row) for row in _rows(set(columns.split()))}
    assert (True not in truths) is rejects


def _rows(nulls: set[str]) -> list[dict[str, Any]]:
    values: dict[str, Any] = dict.fromkeys("xyz", (None, 0, 1, 2))
    values["b"] = (None, True, False)
    given = [(None,) if name in nulls else values[name] for name in values]
    return [dict(zip(values, row, strict=True)) for row in product(*given)]


def test_the_columns_that_a_condition_keeps_from_being_null() -> None:
    condition = _condition("x = 1 AND (y > 2 OR z > 2) AND COALESCE(z, x) > 0")
    assert never_null_where(condition, ("x", "y", "z")) == {"x"}


def test_a_function_that_sees_null_is_not_taken_for_one_that_does_not() -> None:
    """GREATEST ignores NULL, as long as there is anything else."""
    one, null = ex.Literal(1, BIGINT), ex.Column("x")
    assert is_null(ex.Call("+", (one, null), BIGINT), {"x"})
    assert not is_null(ex.Call("greatest", (one, null), BIGINT), {"x"})
    assert is_null(ex.Call("greatest", (null, null), BIGINT), {"x"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x NOT IN (1, 2)", "x NOT IN (1, 2)"),
        ("COALESCE(x, y) = 0", "COALESCE(x, y) = 0"),
        ("x IS NOT NULL AND (y < 2 OR z = x + 1)", "x IS NOT NULL AND (y < 2 OR z = (x + 1))"),
        ("NOT b", "NOT (b = TRUE)"),
        ("x = -1", "x = -1"),
    ],
)
def test_conditions_are_written_as_sql(text: str, words: str) -> None:
    assert condition_text(_condition(text)) == words
