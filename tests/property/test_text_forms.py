"""The grammar of values: Python's and Arrow's parsers read every text that it accepts alike.

Caught are texts that Arrow casts to another value than `ColumnType.decode` reads, or that it casts
and `decode` refuses.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.algebra.types import ColumnType, column_type
from sources.envelope import images
from sources.envelope.images import UnusualError, arrow_type


def _in_columns(type_: ColumnType, text: str) -> Any:
    """The value that columns read; UnusualError if they decline."""
    texts = pa.array([text], pa.string())
    images._need_text_form(texts, type_)
    try:
        return texts.cast(arrow_type(type_)).to_pylist()[0]
    except pa.ArrowInvalid:
        raise UnusualError from None


def _compare(type_: ColumnType, text: str) -> str:
    try:
        cell = _in_columns(type_, text)
    except UnusualError:
        return "declined"
    assert type_.decode(text) == cell, text
    return "alike"


def _words(alphabet: str, most: int) -> Iterable[str]:
    for length in range(most + 1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


@pytest.mark.parametrize("name", ["DECIMAL(3,2)", "DECIMAL(3,0)", "DECIMAL(2,2)", "DECIMAL(38,37)"])
def test_every_short_decimal_is_read_alike_or_declined(name: str) -> None:
    type_ = column_type(name)
    outcomes = Counter(_compare(type_, text) for text in _words("-+.019e_", 4))
    assert outcomes["alike"] > 50
    assert outcomes["declined"] > 1000


_LONG = st.text("00019", max_size=80)


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(["DECIMAL(9,2)", "DECIMAL(38,10)", "DECIMAL(38,38)", "DECIMAL(38,0)"]),
    st.tuples(
        st.sampled_from(["", "-", "+"]),
        _LONG,
        st.sampled_from(["", "."]),
        _LONG,
        st.sampled_from(["", "e1", "E-9", "e-77", "e99"]),
    ),
)
def test_every_long_decimal_is_read_alike_or_declined(name: str, parts: tuple[str, ...]) -> None:
    _compare(column_type(name), "".join(parts))


_PIECES = st.sampled_from(["0000", "0001", "2023", "2024", "9999", "02", "12", "13", "00", "29"])
_ODD = st.sampled_from(["-", ":", ".", " ", "T", "Z", "+01:00", "123456", "1234567", "1", ""])


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(["DATE", "TIMESTAMP"]),
    st.lists(_PIECES, min_size=3, max_size=3),
    st.lists(st.tuples(_ODD, _PIECES | _ODD), max_size=5),
)
def test_every_moment_is_read_alike_or_declined(
    name: str, day: list[str], rest: list[tuple[str, str]]
) -> None:
    text = "-".join(day) + "".join(itertools.chain.from_iterable(rest))
    _compare(column_type(name), text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("DECIMAL(9,2)", "-7.5", Decimal("-7.50")),
        ("DECIMAL(9,2)", "007.500", Decimal("7.50")),
        ("DECIMAL(38,10)", "9" * 28 + "." + "9" * 10, Decimal("9" * 28 + "." + "9" * 10)),
        ("DATE", "0001-01-01", date(1, 1, 1)),
        ("DATE", "9999-12-31", date(9999, 12, 31)),
        ("TIMESTAMP", "2024-02-29", datetime(2024, 2, 29)),
        ("TIMESTAMP", "2024-02-29T23:59", datetime(2024, 2, 29, 23, 59)),
        ("TIMESTAMP", "2024-02-29 23:59:59.125", datetime(2024, 2, 29, 23, 59, 59, 125000)),
    ],
)
def test_ordinary_texts_are_not_declined(name: str, text: str, value: Any) -> None:
    assert _in_columns(column_type(name), text) == value == column_type(name).decode(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DECIMAL(9,2)", "1e-77"),
        ("DECIMAL(9,2)", "1e-999999999"),
        ("DECIMAL(9,2)", "1_0"),
        ("DECIMAL(9,2)", " 1"),
        ("DECIMAL(9,2)", "\u0661"),
        ("DECIMAL(38,10)", "1000000011990990009900199000090000119"),
        ("DATE", "0000-01-01"),
        ("DATE", "20240102"),
        ("DATE", "2024-W01-1"),
        ("TIMESTAMP", "0000-01-01 00:00:00"),
        ("TIMESTAMP", "2024-01-02 00:00:00.1234567"),
        ("TIMESTAMP", "2024-01-31+01:00"),
        ("TIMESTAMP", "2024-01-02 10:00:00Z"),
    ],
)
def test_what_is_no_value_is_refused_by_both(name: str, text: str) -> None:
    with pytest.raises(UnusualError):
        _in_columns(column_type(name), text)
    with pytest.raises(ValueError, match="is no"):
        column_type(name).decode(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DECIMAL(9,2)", "1e-77"),
        ("DATE", "0000-01-01"),
        ("DECIMAL(38,10)", "1000000011990990009900199000090000119"),
    ],
)
def test_control_the_cast_alone_takes_what_is_no_value(name: str, text: str) -> None:
    type_ = column_type(name)
    cast = pa.array([text], pa.string()).cast(arrow_type(type_))
    assert cast.null_count == 0
    with pytest.raises(ValueError, match="is no"):
        type_.decode(text)


def test_a_text_without_any_character_is_declined() -> None:
    for name in ("DECIMAL(9,2)", "DATE", "TIMESTAMP"):
        assert _compare(column_type(name), "") == "declined"


def test_a_misfit_is_shown_by_its_beginning() -> None:
    deep: list[Any] = []
    for _ in range(1020):
        deep = [deep]
    for value in ("9" * 100_000, deep):
        with pytest.raises(ValueError, match="is not a DATE") as caught:
            column_type("DATE").decode(value)
        assert len(str(caught.value)) < 100
