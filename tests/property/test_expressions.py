"""Conditions: the reference, Polars and DuckDB give one truth value, unknown included.

The source evaluates a condition for answers, and we evaluate it for changes. If the two differ, an
error term stays, or too much is removed. So all three truth values must agree, not only the rows
that pass: NOT turns false into true and keeps unknown.
"""

from typing import Any

import duckdb
import orjson
import polars as pl
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from protocols.algebra import expressions as ex
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.expressions_reference import holds
from protocols.algebra.expressions_wire import from_json, to_json
from protocols.algebra.types import ColumnType
from tests.cases.values import TYPES, few

#: Two columns of every type: "BIGINT 0", "BIGINT 1", …
COLUMNS: dict[str, ColumnType] = {f"{name} {i}": TYPES[name] for name in TYPES for i in (0, 1)}
ROWS = st.lists(st.tuples(*(few(type_) for type_ in COLUMNS.values())), min_size=1, max_size=4)


def _comparisons(type_: ColumnType) -> st.SearchStrategy[ex.Condition]:
    columns = st.sampled_from([ex.Column(f"{type_.name} {i}") for i in (0, 1)])
    literals = few(type_).map(lambda value: ex.Literal(value, type_))
    some = st.lists(st.none() | few(type_), min_size=1, max_size=4).map(tuple)
    ops = st.sampled_from(list(ex.COMPARISONS))
    return (
        st.builds(ex.Comparison, columns, ops, columns | literals)
        | st.builds(ex.Comparison, literals, ops, columns)
        | st.builds(ex.IsNull, columns)
        | st.builds(ex.In, columns, some, st.just(type_))
    )


LEAVES = st.sampled_from(list(TYPES.values())).flatmap(_comparisons)
CONDITIONS: st.SearchStrategy[ex.Condition] = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(ex.Not, inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: ex.And(tuple(parts)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: ex.Or(tuple(parts)))
    ),
    max_leaves=6,
)


@given(CONDITIONS, ROWS)
@settings(max_examples=150, deadline=None)
def test_the_reference_and_polars_agree(
    condition: ex.Condition, rows: list[tuple[Any, ...]]
) -> None:
    assert _by_polars(condition, rows) == _by_reference(condition, rows)


@given(st.lists(CONDITIONS, min_size=4, max_size=8), ROWS)
@settings(max_examples=40, deadline=None)
def test_the_reference_and_duckdb_agree(
    conditions: list[ex.Condition], rows: list[tuple[Any, ...]]
) -> None:
    for condition, truths in zip(conditions, _by_duckdb(conditions, rows), strict=True):
        assert truths == _by_reference(condition, rows), condition


@given(CONDITIONS)
@settings(max_examples=100, deadline=None)
def test_a_condition_survives_the_wire(condition: ex.Condition) -> None:
    assert from_json(orjson.loads(orjson.dumps(to_json(condition)))) == condition


@given(CONDITIONS, ROWS)
@settings(max_examples=100, deadline=None)
def test_the_conjuncts_hold_if_and_only_if_the_condition_does(
    condition: ex.Condition, rows: list[tuple[Any, ...]]
) -> None:
    again = ex.conjunction(tuple(ex.conjuncts(condition)))
    assert again is not None
    assert _by_reference(again, rows) == _by_reference(condition, rows)


@given(CONDITIONS, ROWS)
@settings(max_examples=100, deadline=None)
def test_renaming_moves_a_condition_to_other_columns_and_changes_nothing_else(
    condition: ex.Condition, rows: list[tuple[Any, ...]]
) -> None:
    renamed = ex.renamed(condition, lambda name: f"r.{name}")
    assert ex.columns_of(renamed) == {f"r.{name}" for name in ex.columns_of(condition)}
    qualified = [{f"r.{name}": v for name, v in zip(COLUMNS, row, strict=True)} for row in rows]
    assert [holds(renamed, row) for row in qualified] == _by_reference(condition, rows)


@pytest.mark.parametrize(
    "form", [None, [], ["="], ["and"], ["~", {}, {}], ["not"], {"column": "x"}]
)
def test_what_is_no_condition_is_refused(form: Any) -> None:
    with pytest.raises(ValueError, match="not a condition"):
        from_json(form)


@pytest.mark.parametrize(
    "operand", [{}, {"column": 1}, {"value": 1}, {"value": "x", "type": "BIGINT"}, "x"]
)
def test_what_is_no_operand_is_refused(operand: Any) -> None:
    with pytest.raises(ValueError, match=r"neither a column nor|is not a BIGINT"):
        from_json(["=", operand, {"column": "x"}])


def test_the_generated_conditions_tell_two_valued_logic_apart() -> None:
    """The control: rows and conditions for which unknown as false gives another answer."""

    def two_valued(condition: ex.Condition, row: dict[str, Any]) -> bool:
        match condition:
            case ex.Not(inner):
                return not two_valued(inner, row)
            case ex.And(parts):
                return all(two_valued(part, row) for part in parts)
            case ex.Or(parts):
                return any(two_valued(part, row) for part in parts)
        return bool(holds(condition, row))

    def differs(case: tuple[ex.Condition, list[tuple[Any, ...]]]) -> bool:
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in case[1]]
        return any(two_valued(case[0], row) != bool(holds(case[0], row)) for row in rows)

    find(
        st.tuples(CONDITIONS, ROWS),
        differs,
        settings=settings(deadline=None, max_examples=3000, phases=[Phase.generate]),
    )


def _by_reference(condition: ex.Condition, rows: list[tuple[Any, ...]]) -> list[bool | None]:
    return [holds(condition, dict(zip(COLUMNS, row, strict=True))) for row in rows]


def _by_polars(condition: ex.Condition, rows: list[tuple[Any, ...]]) -> list[bool | None]:
    schema = {name: type_.dtype for name, type_ in COLUMNS.items()}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    # A condition on constants alone would be a single value; here each has a column.
    return frame.select(to_polars(condition).alias("truth"))["truth"].to_list()


_DATABASE = duckdb.connect(":memory:", config={"threads": 1})


def _by_duckdb(
    conditions: list[ex.Condition], rows: list[tuple[Any, ...]]
) -> list[list[bool | None]]:
    columns = ", ".join(f'"{name}" {type_.name}' for name, type_ in COLUMNS.items())
    _DATABASE.execute(f"CREATE OR REPLACE TABLE t (nr BIGINT, {columns})")
    places = "(" + ", ".join("?" * (1 + len(COLUMNS))) + ")"
    values = [value for nr, row in enumerate(rows) for value in (nr, *row)]
    _DATABASE.execute(f"INSERT INTO t VALUES {', '.join([places] * len(rows))}", values)
    truths = ", ".join(_sql(condition) for condition in conditions)
    found = _DATABASE.execute(f"SELECT {truths} FROM t ORDER BY nr").fetchall()
    return [list(column) for column in zip(*found, strict=True)]


def _sql(condition: ex.Condition) -> str:
    match condition:
        case ex.Comparison(left, op, right):
            return f"({_operand(left)} {op} {_operand(right)})"
        case ex.In(operand, values, type_):
            among = ", ".join(_operand(ex.Literal(each, type_)) for each in values)
            return f"({_operand(operand)} IN ({among}))"
        case ex.IsNull(operand):
            return f"({_operand(operand)} IS NULL)"
        case ex.Not(inner):
            return f"(NOT {_sql(inner)})"
        case ex.And(parts):
            return "(" + " AND ".join(map(_sql, parts)) + ")"
        case ex.Or(parts):
            return "(" + " OR ".join(map(_sql, parts)) + ")"
        case ex.IsTrue():
            raise AssertionError("no condition here is drawn with an expression")


def _operand(operand: ex.Expression) -> str:
    if isinstance(operand, ex.Column):
        return f'"{operand.name}"'
    assert isinstance(operand, ex.Literal)
    encoded = operand.type.encode(operand.value)
    return f"CAST({'NULL' if encoded is None else repr(str(encoded))} AS {operand.type.name})"
