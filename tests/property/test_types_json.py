"""Column types: one JSON form per value, and the same value in Python, JSON and Polars.

Caught are values that change on their way through a scenario, an envelope, a trace or a wire, and
values that are accepted although their column cannot hold them.
values from here.
"""

import datetime
import math
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocols.algebra.types import ColumnType, column_type
from tests.cases.values import ANY, TYPES

typed_values = st.sampled_from(list(TYPES)).flatmap(
    lambda name: st.tuples(st.just(TYPES[name]), ANY[name] | st.none())
)


@given(typed_values)
@settings(max_examples=300, deadline=None)
def test_a_value_survives_its_json_form(typed: tuple[ColumnType, Any]) -> None:
    type_, value = typed
    through = type_.decode(orjson.loads(orjson.dumps(type_.encode(value))))
    assert _same(through, value)
    assert type(through) is type(value)


@given(typed_values)
@settings(max_examples=300, deadline=None)
def test_a_value_survives_a_polars_column(typed: tuple[ColumnType, Any]) -> None:
    type_, value = typed
    column = pl.Series([value], dtype=type_.dtype, strict=True)
    assert _same(column.item(), value)


@given(typed_values)
@settings(max_examples=200, deadline=None)
def test_decoding_a_decoded_value_changes_nothing(typed: tuple[ColumnType, Any]) -> None:
    type_, value = typed
    assert _same(type_.decode(value), value)


@given(
    st.sampled_from(list(TYPES.values())),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.lists(st.integers())
    | st.dictionaries(st.text(), st.integers()),
)
@example(TYPES["DOUBLE"], 10**400)
@example(TYPES["DECIMAL(8,2)"], "sNaN")
@example(TYPES["DECIMAL(8,2)"], "1e999999999")
@example(TYPES["TIMESTAMP"], "2024-02-29T00:00:00+01:00")
@settings(max_examples=400, deadline=None)
def test_what_is_not_refused_fits_its_column_and_what_is_refused_is_a_value_error(
    type_: ColumnType, form: Any
) -> None:
    try:
        value = type_.decode(form)
    except ValueError:
        return
    assert _same(pl.Series([value], dtype=type_.dtype, strict=True).item(), value)


@pytest.mark.parametrize(
    ("type_", "form"),
    [
        ("BIGINT", 2**63),
        ("BIGINT", True),
        ("BIGINT", 1.0),
        ("BIGINT", "1"),
        ("DOUBLE", "1.5"),
        ("DOUBLE", "nan"),
        ("DECIMAL(8,2)", "1.005"),
        ("DECIMAL(8,2)", "1000000.00"),
        ("DECIMAL(8,2)", 1.5),
        ("DECIMAL(8,2)", "NaN"),
        ("VARCHAR", 1),
        ("BOOLEAN", 0),
        ("DATE", "2023-02-29"),
        ("DATE", "2024-02-29 00:00:00"),
        ("TIMESTAMP", "2024-02-29 00:00:00+00:00"),
    ],
)
def test_values_of_other_types_are_refused(type_: str, form: Any) -> None:
    with pytest.raises(ValueError, match="is no"):
        TYPES[type_].decode(form)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("text", "VARCHAR"),
        ("double  precision", "DOUBLE"),
        ("int8", "BIGINT"),
        ("numeric(10)", "DECIMAL(10,0)"),
        (" decimal ( 10 , 3 ) ", "DECIMAL(10,3)"),
    ],
)
def test_synonyms_mean_one_type(written: str, name: str) -> None:
    assert column_type(written) == ColumnType(name)


@pytest.mark.parametrize("name", ["", "INTEGER", "DECIMAL", "DECIMAL(39,0)", "DECIMAL(2,3)"])
def test_other_types_are_refused_with_the_list_of_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match="there are BIGINT, DOUBLE"):
        column_type(name)


def test_equal_values_of_a_timestamp_are_not_told_by_their_day() -> None:
    """The control: a comparison that every value passes would prove nothing."""
    day = datetime.datetime(2024, 2, 29)
    assert not _same(day, datetime.date(2024, 2, 29))
    assert not _same(0.0, -0.0)
    assert not _same(math.nan, None)
    assert _same(math.nan, float("nan"))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    return type(one) is type(other) and one == other
