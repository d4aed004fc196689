"""Functions that claim a value for every argument, tested with awkward values.

A function that claims never to fail is computed also for rows that do not need it, so a single
argument without a result would stop a view. A function without the claim only costs a mask; but
then it must have a reason.
"""

import datetime
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl
import pytest

from protocols.algebra import expressions as ex
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.functions import FUNCTIONS
from protocols.views.dialects import Dialect
from tests.property.test_scalars import (
    EXAMPLES,
    FAILED,
    PAIRS,
    TYPES,
    Row,
    by_polars,
    by_reference,
    read,
)

#: Texts that only a dialect can compute.
DIALECTS: dict[str, Dialect] = {
    "b / c": "postgres",
    "p / r": "postgres",
    "p / b": "postgres",
    "round(d)": "postgres",
    "round(d, 2)": "duckdb",
}
#: Besides the texts for every function: cases that depend on a constant, or on spare digits.
TEXTS = [
    *DIALECTS,
    *EXAMPLES,
    *(f"{x} % {n}" for x in "bpq" for n in ("1", "-1", "7", "-10")),
    *("b % 0", "p % 0", "q * r", "q - q", "r * r", "CAST(b AS DECIMAL(38,0)) + b"),
    *(f"CAST({x} AS DECIMAL(6,1)) * CAST({y} AS DECIMAL(6,1))" for x, y in ("bb", "pp")),
    *(f"{x} {op} INTERVAL '1' {unit}" for x in "ym" for op in "+-" for unit in ("DAY", "YEAR")),
    *("y - 1", "y + 1"),
]


def _extremes() -> Iterator[Row]:
    """Rows with the first and the last date and time."""
    for day, time in ((datetime.date.min, datetime.time.min), (datetime.date.max, None)):
        moment = datetime.datetime.combine(day, datetime.time.max if time is None else time)
        for row in PAIRS[:20]:
            yield {**row, "y": day, "m": moment}
            yield {**row, "y": day, "z": day, "m": moment, "n": moment}


ROWS = [*PAIRS, *_extremes()]


def _calls(what: ex.Expression | ex.Condition) -> Iterator[ex.Call]:
    if isinstance(what, ex.Call):
        yield what
    for part in ex.parts_of(what):
        yield from _calls(part)


def _said_never_to_fail(call: ex.Call) -> bool:
    known = [each.value if isinstance(each, ex.Literal) else ... for each in call.arguments]
    return FUNCTIONS[call.function].never_fails(call.type, known)


@cache
def _failures(text: str) -> tuple[tuple[ex.Call, list[Row]], ...]:
    """Each call of a text with the rows for which it fails though its arguments do not."""
    expression = read(text, DIALECTS.get(text))
    assert expression is not None
    return tuple((call, list(_failing(call))) for call in _calls(expression))


def _failing(call: ex.Call) -> Iterator[Row]:
    given = [by_reference(argument, ROWS) for argument in call.arguments]
    for number, found in enumerate(by_reference(call, ROWS)):
        if found is FAILED and all(values[number] is not FAILED for values in given):
            yield ROWS[number]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_said_never_to_fail_does_not(text: str) -> None:
    for call, failing in _failures(text):
        if _said_never_to_fail(call):
            assert failing == []
            if all(isinstance(part, ex.Column | ex.Literal) for part in call.arguments):
                assert FAILED not in by_polars(call, ROWS)


def test_of_every_function_that_may_fail_a_failure_is_known() -> None:
    """Otherwise it would cost a mask without need."""
    calls = [each for text in TEXTS for each in _failures(text)]
    may_fail = {call.function for call, _ in calls if not _said_never_to_fail(call)}
    fails = {call.function for call, failing in calls if failing}
    dates = {"add months", "add microseconds", "add days"}
    numbers = {"+", "-", "*", "%", "negate", "abs", "integer", "cast"}
    numbers |= {"quotient", "exact quotient"}
    assert may_fail == fails == dates | numbers
    assert {call.function for call, _ in calls} == set(FUNCTIONS)


def test_whole_types_are_said_never_to_fail_where_they_do_not() -> None:
    said = {
        (call.function, call.type.family)
        for text in TEXTS
        for call, _ in _failures(text)
        if _said_never_to_fail(call)
    }
    kinds = {*((op, "DOUBLE") for op in "+-*/"), *((op, "DECIMAL") for op in "+-*%")}
    kinds |= {(name, type_) for name in ("negate", "abs") for type_ in ("DOUBLE", "DECIMAL")}
    kinds |= {("%", "BIGINT"), ("cast", "DOUBLE"), ("cast", "VARCHAR"), ("upper", "VARCHAR")}
    assert said >= kinds


@pytest.mark.parametrize("name", ["+", "%", "negate", "add months", "cast", "integer"])
def test_control_a_function_that_is_wrongly_said_never_to_fail_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    wrong = replace(FUNCTIONS[name], never_fails=lambda _type, _arguments: True)
    monkeypatch.setitem(FUNCTIONS, name, wrong)
    found = [
        call
        for text in TEXTS
        for call, failing in _failures(text)
        if failing and _said_never_to_fail(call)
    ]
    assert {call.function for call in found} == {name}


def test_no_function_fails_for_null() -> None:
    """So NULL replaces the arguments of rows that do not need it."""
    nulls = [{**row, **dict.fromkeys(TYPES)} for row in PAIRS[:3]]
    for text in TEXTS:
        for call, _ in _failures(text):
            if ex.columns_of(call):
                assert FAILED not in by_reference(call, nulls), text
                assert FAILED not in by_polars(call, nulls), text


def test_nothing_is_worked_out_over_no_rows() -> None:
    """Not even a constant that fails."""
    nothing: list[Any] = []
    frame = pl.DataFrame(nothing, schema={name: type_.dtype for name, type_ in TYPES.items()})
    for text in ("b = 2147483647 + 1", "2147483647 + 1 > b", "b + 1 > 5"):
        condition = read(text)
        assert isinstance(condition, ex.Truth)
        assert frame.filter(to_polars(condition.condition)).height == 0
