"""Answers that do not fit their question, and the messages.

Other tests show that honest answers pass: test_lookup.py, test_joining.py.
"""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import Call, Column, Comparison, Literal
from protocols.algebra.frame import Frame
from protocols.algebra.types import BIGINT
from protocols.exchange.questions import Joint, Page, Query
from protocols.views.catalog import catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.view import View
from sources.wire.answers import fault, most_rows, schema_fault

CATALOG = catalog_from_json(
    {
        "a": {
            "relations": {
                "keyed": {
                    "columns": {"k": "BIGINT", "l": "VARCHAR", "x": "BIGINT"},
                    "key": ["k", "l"],
                },
                "bag": {"columns": {"x": "BIGINT", "y": "VARCHAR"}},
                "times": {"columns": {"d": "DATE", "m": "TIMESTAMP", "p": "DECIMAL(10,2)"}},
            }
        }
    }
)
KEYED, BAG, TIMES = CATALOG.relations
POSITIVE = Comparison(Column("x"), ">", Literal(0, BIGINT))


def frame(names: str, *rows: Sequence[Any]) -> Frame:
    """Rows with a count each; columns of one letter."""
    types = {**dict(KEYED.columns), **dict(BAG.columns)}
    schema = {**{name: types[name].dtype for name in names}, COUNT: pl.Int64()}
    return Frame(pl.DataFrame(rows, schema=schema, orient="row"))


def keyed_page(*keys: Sequence[Any], after: Any = None, limit: int = 9) -> str | None:
    question: Query[Frame] = Query(KEYED, ("k", "l"), None, None, Page(after, limit))
    return fault(question, frame("kl", *((*key, 1) for key in keys)))


def test_an_honest_answer_has_no_fault() -> None:
    wanted = (frame("x", (5, 1), (6, 1)),)
    rows = frame("klx", (1, "p", 5, 1), (1, "q", 6, 1), (2, "p", 5, 1))
    assert fault(Query(KEYED, ("k", "l", "x"), POSITIVE, wanted), rows) is None
    twice = frame("xy", (5, "p", 2), (5, "p", 1), (5, None, 1))
    assert fault(Query(BAG, ("x", "y"), POSITIVE, wanted), twice) is None
    # Rows with different keys that are not requested.
    assert fault(Query(KEYED, ("x",), None, wanted), frame("x", (5, 2), (5, 1))) is None


@pytest.mark.parametrize("count", [-1, 0, None])
def test_a_count_below_one_is_a_fault(count: int | None) -> None:
    said = fault(Query(BAG, ("x", "y")), frame("xy", (1, "p", 1), (5, "q", count)))
    assert said is not None
    assert "x = 5, y = q" in said
    assert "count" in said


@pytest.mark.parametrize("count", [-1, 0, 2, 2**62, None])
def test_a_row_of_a_key_is_there_once(count: int | None) -> None:
    said = fault(Query(KEYED, ("k", "l")), frame("kl", (1, "p", 1), (5, "q", count)))
    assert said is not None
    assert "k = 5, l = q" in said


def test_null_in_a_key_column_is_a_fault_also_where_the_rest_of_the_key_is_not_asked_for() -> None:
    said = fault(Query(KEYED, ("k", "x")), frame("kx", (1, 1, 1), (None, 5, 1)))
    assert said == "has a row with NULL in key column k: k = NULL, x = 5"


def test_a_row_of_a_key_twice_is_a_fault() -> None:
    rows = frame("klx", (1, "p", 5, 1), (1, "q", 5, 1), (1, "p", 6, 1))
    said = fault(Query(KEYED, ("k", "l", "x")), rows)
    assert said == "has two rows with the same key: k = 1, l = p, x = 5"


def test_read_row_by_row_a_key_may_come_in_two_states_but_no_row_twice() -> None:
    question: Query[Frame] = Query(KEYED, ("k", "l", "x"))
    states = frame("klx", (1, "p", 5, 1), (1, "p", 6, 1))
    assert fault(question, states, once=False) is None
    again = fault(question, frame("klx", (1, "p", 5, 1), (1, "p", 5, 1)), once=False)
    assert again == "has two rows with the same key: k = 1, l = p, x = 5"


def test_a_row_has_to_match_one_of_the_key_sets() -> None:
    question: Query[Frame] = Query(
        BAG, ("x", "y"), None, (frame("x", (5, 1)), frame("y", ("p", 1)))
    )
    assert fault(question, frame("xy", (5, "q", 1), (6, "p", 1), (5, None, 1))) is None
    for row in ((6, "q", 1), (None, "q", 1), (None, None, 1)):
        said = fault(question, frame("xy", (5, "q", 1), row))
        assert said is not None
        assert said.startswith("has a row that matches no requested key: x = ")
    assert fault(replace(question, keys=()), frame("xy", (5, "p", 1))) is not None
    assert fault(replace(question, keys=(frame("x"),)), frame("xy", (5, "p", 1))) is not None


def test_keys_over_columns_that_were_not_asked_for_are_not_tested() -> None:
    assert fault(Query(BAG, ("y",), POSITIVE, (frame("x", (5, 1)),)), frame("y", ("q", 1))) is None


@pytest.mark.parametrize("x", [0, -3, None])
def test_the_condition_has_to_be_true(x: int | None) -> None:
    said = fault(Query(BAG, ("x", "y"), POSITIVE), frame("xy", (1, "p", 1), (x, "q", 1)))
    assert said is not None
    assert "a row that fails the condition: x = " in said


def test_a_row_of_which_the_condition_has_no_value_is_a_fault() -> None:
    remainder = Call("%", (Literal(1, BIGINT), Column("x")), BIGINT)
    condition = Comparison(remainder, "=", Literal(1, BIGINT))
    said = fault(Query(BAG, ("x", "y"), condition), frame("xy", (2, "p", 1), (0, "q", 1)))
    assert said is not None
    assert "cannot be evaluated: 1 % 0 divides by zero" in said


def test_a_page_is_in_the_order_of_the_key_and_behind_the_one_before() -> None:
    assert keyed_page((1, "p"), (1, "q"), (2, "a")) is None
    assert keyed_page((1, "p"), (1, "q"), after=(1, "o")) is None
    assert "not in key order (k, l)" in (keyed_page((1, "q"), (1, "p")) or "")
    assert "two rows with the same key" in (keyed_page((1, "p"), (1, "p")) or "")
    for after in ((1, "p"), (1, "q"), (2, "a")):
        assert "begins with k = 1, l = p" in (keyed_page((1, "p"), after=after) or "")


@pytest.mark.parametrize(("column", "value"), [("d", 2_932_897), ("d", -719_163), ("m", -(2**62))])
def test_a_date_that_no_calendar_has_is_a_fault(column: str, value: int) -> None:
    good = {"d": datetime.date.max, "m": datetime.datetime.min}
    data = pl.DataFrame(
        {"d": [None, good["d"]], "m": [good["m"], None]},
        schema={name: TIMES.type_of(name).dtype for name in good},
    ).with_columns(pl.lit(1, pl.Int64).alias(COUNT))
    question: Query[Frame] = Query(TIMES, ("d", "m"))
    assert fault(question, Frame(data)) is None
    number = pl.Int32 if column == "d" else pl.Int64
    bad = pl.Series(column, [value, None], number).cast(data.schema[column])
    said = fault(question, Frame(data.with_columns(bad)))
    assert said is not None
    assert f"column {column} outside the years" in said


# -------------------------------------------------------------------------------- schema and size


def schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


def test_a_schema_may_differ_in_what_means_the_same() -> None:
    question: Query[Frame] = Query(BAG, ("x", "y"))
    for text in (pa.string(), pa.large_string(), pa.string_view()):
        assert schema_fault(question, schema(x=pa.int64(), y=text)) is None
        assert schema_fault(question, schema(y=text, _count=pa.int64(), x=pa.int64())) is None
    assert schema_fault(Query(BAG, ()), schema(_count=pa.int64())) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (schema(x=pa.int64()), "has the columns x instead of x, y"),
        (schema(x=pa.int64(), y=pa.string(), z=pa.int64()), "has the columns x, y, z instead of"),
        (schema(x=pa.int32(), y=pa.string()), "column x as int32, which is not a BIGINT"),
        (schema(x=pa.int64(), y=pa.dictionary(pa.int8(), pa.string())), "column y as dictionary"),
        (schema(x=pa.int64(), y=pa.null()), "column y as null, which is not a VARCHAR"),
        (schema(x=pa.int64(), y=pa.string(), _count=pa.uint64()), "column _count as uint64"),
        (
            pa.schema([("x", pa.int64()), ("y", pa.string())] * 2),
            "two columns with the same name: x, y",
        ),
        (schema(), "has the columns  instead of x, y"),
    ],
)
def test_another_schema_is_a_fault(found: pa.Schema, said: str) -> None:
    assert said in (schema_fault(Query(BAG, ("x", "y")), found) or "")


def test_a_decimal_has_its_digits_and_a_time_no_zone() -> None:
    question: Query[Frame] = Query(TIMES, ("m", "p"))
    good = {"m": pa.timestamp("us"), "p": pa.decimal128(10, 2)}
    assert schema_fault(question, schema(**good)) is None
    for name, bad in (
        ("p", pa.decimal128(10, 3)),
        ("p", pa.decimal256(10, 2)),
        ("m", pa.timestamp("us", "UTC")),
        ("m", pa.timestamp("ns")),
    ):
        said = schema_fault(question, schema(**{**good, name: bad}))
        assert said is not None
        assert f"has column {name} as" in said


def test_how_many_rows_there_can_be_follows_from_whole_keys_and_pages() -> None:
    whole, part = frame("kl", (1, "p", 1), (2, "p", 1)), frame("k", (1, 1))
    assert most_rows(Query(KEYED, ("x",), None, (whole, whole))) == 4
    assert most_rows(Query(KEYED, ("x",), None, (whole, part))) is None
    assert most_rows(Query(KEYED, ("x",))) is None
    assert most_rows(Query(KEYED, ("k", "l"), None, None, Page(None, 7))) == 7
    assert most_rows(Query(BAG, ("x",), None, (frame("xy", (1, "p", 1)),))) is None


# ----------------------------------------------------------------------------------- joint answers


def joint(*given: dict[int, Frame]) -> Joint[Frame]:
    sql = "SELECT k.k, k.l, k.x, b.y FROM a.keyed k JOIN a.bag b ON k.x = b.x WHERE k.k < 9"
    view = parse_view("v", sql, CATALOG)
    assert isinstance(view, View)
    return Joint(view, given)


def given(*rows: Sequence[Any]) -> Frame:
    """Rows for the atom b."""
    schema = {"b.x": pl.Int64, "b.y": pl.String, COUNT: pl.Int64}
    return Frame(pl.DataFrame(rows, schema=schema, orient="row"))


def test_a_joint_answer_has_signs_and_may_have_a_row_more_than_once() -> None:
    rows = frame("klxy", (1, "p", 5, None, -2), (1, "p", 5, None, 3))
    assert fault(joint({1: given((5, None, -1))}), rows) is None
    assert schema_fault(joint(), rows.data.to_arrow().schema) is None
    without_counts = rows.data.drop(COUNT).to_arrow().schema
    assert "instead of k, l, x, y, _count" in (schema_fault(joint(), without_counts) or "")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((1, "p", 5, "q", 0), "has a row with the count 0"),
        ((1, "p", 5, "q", None), "has a row with the count None"),
        ((None, "p", 5, "q", 1), "a row that fails the condition: k = NULL"),
        ((9, "p", 5, "q", 1), "a row that fails the condition: k = 9"),
        ((1, "p", 5, "z", 1), "that no row given in the question produces: k = 1"),
    ],
)
def test_what_a_joint_answer_cannot_have_is_a_fault(row: Sequence[Any], said: str) -> None:
    question = joint({1: given((5, "q", 1))}, {1: given((6, "r", 1), (5, None, 1))})
    rows = frame("klxy", (1, "p", 5, "q", 1), (1, "p", 5, None, -1), (2, "p", 6, "r", 1))
    assert fault(question, rows) is None
    assert said in (fault(question, Frame(rows.data.vstack(frame("klxy", row).data))) or "")


def test_where_a_term_gives_no_rows_any_row_may_come() -> None:
    rows = frame("klxy", (1, "p", 5, "z", 1))
    assert fault(joint({1: given((5, "q", 1))}, {}), rows) is None
