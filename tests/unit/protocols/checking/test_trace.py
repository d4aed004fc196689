"""Reading and writing traces: each fault of a line is named with its number."""

import datetime
import decimal
import math
from typing import Any

import orjson
import pytest

from protocols.checking import tracewriting as t
from protocols.checking.trace import DeliverLine
from protocols.checking.tracereading import read_trace
from protocols.errors import WrongUse
from protocols.views.catalog import catalog_from_json

TYPES = {"n": "BIGINT", "d": "DOUBLE", "p": "DECIMAL(5,2)", "t": "TIMESTAMP", "e": "DATE"}
CATALOG = catalog_from_json({"a": {"relations": {"r": {"columns": TYPES}}}})
ROW = (
    1,
    math.inf,
    decimal.Decimal("1.50"),
    datetime.datetime(2026, 1, 2, 3, 4, 5),
    datetime.date(2026, 1, 2),
)
RUN = t.run_line("sweep", "SELECT n FROM a.r", CATALOG, {("a", "r"): [ROW]}, seed=7)
COMMIT = t.commit_line("a", 1, [("r", ROW, 1)])
DELIVER = t.deliver_line("a", 1, 1)


def line(**form: Any) -> bytes:
    return orjson.dumps(form)


def test_a_trace_is_written_as_it_was_read() -> None:
    lines = [RUN, t.state_line(0, {"a": 0}, [((1,), 1)]), COMMIT, DELIVER]
    lines += [t.query_line(1, 1, "a", "r", 3, 90), t.answer_line(1, 1, 2, 60)]
    lines += [t.state_line(1, {"a": 1}, [((1,), 1)]), t.end_line({"a": 1})]
    trace = read_trace(lines)
    assert list(t.write_trace(trace.lines)) == lines
    assert trace.run.initial["a", "r"] == (ROW,)
    assert not trace.remarks


def test_unknown_keys_and_empty_lines_are_left_alone() -> None:
    extra = {**orjson.loads(DELIVER), "at": 1.5}
    trace = read_trace([RUN.decode(), "\n", COMMIT, orjson.dumps(extra)])
    assert trace.delivers == (DeliverLine("a", 1, 1),)
    assert "no end line" in trace.remarks[0]


def test_a_trace_says_of_relations_what_their_rows_are_read_by() -> None:
    """Other declarations may refer to relations that are not in the trace."""
    form = {"columns": TYPES, "keys": [["n"]], "foreign_keys": [{"columns": ["n"]}]}
    form["foreign_keys"][0]["references"] = "b.s"  # type: ignore[index]
    declared = catalog_from_json({"a": {"relations": {"r": form}}}, whole=False)
    initial = {("a", "r"): [ROW]}
    assert t.run_line("sweep", "SELECT n FROM a.r", declared, initial, seed=7) == RUN


STATE: dict[str, Any] = {"type": "state", "position": 0, "vector": {}, "changes": []}
CHANGE = {"relation": "r", "row": [1, 1, "1", None, None], "count": 1}


def commit(**change: Any) -> bytes:
    return line(type="commit", source="a", version=1, changes=[{**CHANGE, **change}])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "empty"),
        ([b"\x00\xff\xfe"], "line 1: not JSON"),
        ([RUN, b'{"type":"comm'], "line 2: not JSON"),
        ([b"[1]"], "line 1: not a JSON object"),
        ([line(type="guess")], "line 1: unknown type 'guess'"),
        ([line(type=["run"])], "line 1: unknown type"),
        ([COMMIT], "line 1: a commit line before the run line"),
        ([line(**STATE)], "line 1: a state line before the run line"),
        ([RUN, RUN], "line 2: a second run line"),
        ([line(type="run", protocol="x", view="y", sources=[])], '"sources"'),
        ([line(type="run", protocol="x", view="y", sources={"a": 1})], "source a"),
        ([line(type="run", protocol="x", view="y", sources={"a": {"relations": {"r": 1}}})], "a.r"),
        ([line(type="run", protocol="x", view=3, sources={"a": {"relations": {}}})], '"view"'),
        ([RUN, COMMIT, COMMIT], "line 3: a commits version 1 after version 1"),
        ([RUN, DELIVER], "line 2: version 1 of a is delivered, but was never committed"),
        ([RUN, COMMIT, DELIVER, DELIVER], "line 4: version 1 of a is delivered after version 1"),
        ([RUN, COMMIT, t.deliver_line("a", 1, 2)], "line 3: position 2 after position 0"),
        ([RUN, t.commit_line("b", 1, [])], "line 2: unknown source 'b'"),
        ([RUN, t.query_line(1, 1, "a", "s")], "line 2: unknown relation 's' at source a"),
        ([RUN, t.answer_line(1, 1)], "line 2: an answer to query 1, which was never asked"),
        ([RUN, commit(row=[1])], "line 2: a.r: the row .* has 1 values"),
        ([RUN, commit(row=["x", 1, "1", None, None])], "line 2: a.r: 'x' is not a BIGINT"),
        ([RUN, commit(row=[1, 1, "1.234", None, None])], "is not a DECIMAL"),
        ([RUN, commit(row={})], "a row is a list"),
        ([RUN, commit(count=1.5)], '"count" has to be a whole number'),
        ([RUN, line(**{**STATE, "position": -1})], '"position" has to be a number from 0'),
        ([RUN, line(**{**STATE, "vector": {"z": 1}})], "unknown source 'z'"),
        ([RUN, line(**{**STATE, "changes": [[1]]})], "a change of a state"),
        ([RUN, t.end_line({}), COMMIT], "line 3: a commit line after the end line"),
        ([RUN, line(type="deliver", source="a", position=1)], '"version" is missing'),
    ],
)
def test_a_broken_line_is_named(lines: list[bytes], says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        read_trace(lines)


def test_positions_do_not_go_backwards_and_are_not_shared() -> None:
    two = [RUN, COMMIT, DELIVER, t.commit_line("a", 2, [])]
    with pytest.raises(WrongUse, match="goes backwards"):
        read_trace([*two, t.deliver_line("a", 2, 0)])
    with pytest.raises(WrongUse, match="given twice"):
        read_trace([*two, t.deliver_line("a", 2, 1)])


def test_a_run_says_in_which_dialect_its_view_is() -> None:
    told = t.run_line(
        "sweep", "SELECT n FROM a.r", CATALOG, {("a", "r"): [ROW]}, dialect="postgres"
    )
    assert b'"dialect":"postgres"' in told
    assert b"dialect" not in RUN
