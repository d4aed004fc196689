"""No operator counts rows below zero: such a row is named; the control continues anyway.

The leaves have given rows here. Their changes include deletions of rows that do not exist, as a
faulty source publishes them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import empty_frame
from protocols.errors import SourceViolation
from protocols.maintenance.registry import PROTOCOLS
from protocols.operators.build import build
from protocols.operators.keys import ALL, Asked, agreeing
from protocols.operators.operator import Operator, Span, Task
from protocols.simulation import source
from protocols.simulation.scenario import Contents
from protocols.views.catalog import Relation, catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView
from protocols.views.view import View
from tests.harness.watching import update, watched

_RELATION = {"columns": {"k": "BIGINT", "v": "BIGINT"}}
CATALOG = catalog_from_json({"s": {"relations": {"l": _RELATION, "r": _RELATION}}})
L, R = CATALOG
Row = tuple[int | None, int | None]
#: (row, position, change of its count).
Change = tuple[Row, int, int]
_BATCH = Span(8, 11)


class Given:
    """A leaf of the tree with given rows before the batch, and given changes."""

    def __init__(self, view: View, rows: Sequence[Row], changes: Sequence[Change]) -> None:
        self.nothing = empty_frame(view.schema).data
        self._names = {o.name: o.column.rpartition(".")[2] for o in view.outputs}
        self.rows = self._frame([(*row, 1) for row in rows], COUNT)
        self._changes = self._frame([(*row, *at) for row, *at in changes], POSITION, COUNT)

    def change(self, _span: Span) -> Task:
        return self._changes
        yield []

    def before(self, _span: Span, keys: Asked) -> Task:
        return agreeing(self.rows, keys)
        yield []

    def settle(self) -> None:
        """It keeps nothing."""

    def _frame(self, rows: Sequence[Any], *numbers: str) -> pl.DataFrame:
        schema = dict.fromkeys(("k", "v", *numbers), pl.Int64)
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        return frame.select(*(pl.col(c).alias(n) for n, c in self._names.items()), *numbers)


def at_work(
    sql: str,
    rows: Mapping[str, Sequence[Row]],
    changes: Mapping[str, Sequence[Change]],
    allows_too_few: bool = False,
) -> Operator:
    view = parse_view("view", sql, CATALOG)
    assert isinstance(view, TreeView)

    def leaf(core: View) -> Given:
        name = core.atoms[0].relation.name
        return Given(core, rows.get(name, ()), changes.get(name, ()))

    return build(view.root, leaf, allows_too_few=allows_too_few)


def done(task: Task) -> pl.DataFrame:
    try:
        next(task)
    except StopIteration as stop:
        rows: pl.DataFrame = stop.value
        return rows
    raise AssertionError("given rows ask nobody")


EXISTS = "SELECT l.k FROM s.l WHERE {}EXISTS (SELECT 1 FROM s.r WHERE r.k = l.k{})"
VIEWS = {
    "distinct": "SELECT DISTINCT k FROM s.l",
    "exists": EXISTS.format("", ""),
    "group": "SELECT k, count(*) AS n FROM s.r GROUP BY k",
}
#: Name of the falling count → (view, rows before, changes, text of the message).
CASES: dict[str, tuple[str, dict[str, list[Row]], dict[str, list[Change]], str]] = {
    "distinct": (
        "SELECT DISTINCT k, v FROM s.l",
        {"l": [(1, 2)]},
        {"l": [((1, 3), 9, -1)]},
        r"distinct k, v over s\.l: from position 9 on .* -1 rows for \(k = 1, v = 3\)",
    ),
    "distinct, for a moment only": (
        "SELECT DISTINCT k, v FROM s.l",
        {},
        {"l": [((1, None), 9, -1), ((1, None), 10, 1), ((1, 4), 11, -1)]},
        r"position 9 on .* -1 rows for \(k = 1, v = NULL\)",
    ),
    "exists": (
        EXISTS.format("", ""),
        {"l": [(1, 1)], "r": [(1, 1)]},
        {"r": [((1, 1), 8, -1), ((1, 1), 10, -1)]},
        r"exists over s\.r: from position 10 on .* -1 rows for \(.*k = 1\)",
    ),
    "not exists": (
        EXISTS.format("NOT ", ""),
        {"l": [(1, 1)]},
        {"r": [((1, 1), 9, -1)]},
        r"not exists over s\.r: from position 9 on",
    ),
    "exists, tested by pairs": (
        EXISTS.format("", " AND r.v > l.v"),
        {"l": [(1, 1)]},
        {"r": [((1, 5), 9, -1)]},
        r"exists over s\.r: from position 9 on",
    ),
    "left join": (
        "SELECT l.k, r.v FROM s.l LEFT JOIN s.r ON l.k = r.k",
        {"l": [(1, 1)]},
        {"r": [((1, 1), 9, -1)]},
        r"left join over s\.r: from position 9 on",
    ),
    "full join": (
        "SELECT l.k, r.v FROM s.l FULL JOIN s.r ON l.k = r.k",
        {"r": [(1, 1)]},
        {"l": [((1, 1), 9, -1)]},
        r"full join over s\.l: from position 9 on",
    ),
    "full join, tested by pairs": (
        "SELECT l.k, r.v FROM s.l FULL JOIN s.r ON l.k = r.k AND l.v < r.v",
        {"r": [(1, 2)]},
        {"l": [((1, 1), 9, -1)]},
        r"full join over s\.l: from position 9 on",
    ),
    "group": (
        "SELECT k, count(*) AS n FROM s.l GROUP BY k",
        {"l": [(1, 2)]},
        {"l": [((1, 2), 9, -2)]},
        r"group by l.k over s\.l: from position 9 on .* -1 rows for \(l.k = 1\)",
    ),
    "group of everything": (
        "SELECT count(*) AS n FROM s.l",
        {},
        {"l": [((1, 2), 9, -1)]},
        r"one group of all rows over s\.l: from position 9 on",
    ),
    "values of a group": (
        "SELECT k, sum(v) AS n FROM s.l GROUP BY k",
        {"l": [(1, None), (1, None)]},
        {"l": [((1, 2), 9, -1)]},
        r"group by l.k over s\.l: from position 9 on",
    ),
    "different values of a group": (
        "SELECT k, count(DISTINCT v) AS n FROM s.l GROUP BY k",
        {"l": [(1, 2), (1, 2)]},
        {"l": [((1, 3), 9, -1)]},
        r"distinct l.k, l.v over s\.l: from position 9 on .* \(l.k = 1, l.v = 3\)",
    ),
    "the greatest of a group that is read": (
        "SELECT k, max(v) AS most FROM s.l GROUP BY k",
        {"l": [(1, 2), (1, 2)]},
        {"l": [((1, 3), 9, -1)]},
        r"group by l.k over s\.l: from position 9 on .* \(l.k = 1, max = 3\)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_row_deleted_that_was_not_there_is_named(case: str) -> None:
    sql, rows, changes, said = CASES[case]
    with pytest.raises(SourceViolation, match=said):
        done(at_work(sql, rows, changes).change(_BATCH))


@pytest.mark.parametrize("case", CASES)
def test_a_control_goes_on(case: str) -> None:
    sql, rows, changes, _ = CASES[case]
    done(at_work(sql, rows, changes, allows_too_few=True).change(_BATCH))


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_said_of_rows_that_were_there(case: str) -> None:
    sql, rows, changes, _ = CASES[case]
    gone = {
        name: [*rows.get(name, ()), *(row for row, _, count in each if count < 0 for _ in range(2))]
        for name, each in changes.items()
    }
    done(at_work(sql, {**rows, **gone}, changes).change(_BATCH))


def test_values_of_a_group_whose_greatest_is_remembered_are_not_counted() -> None:
    """An existing value is deleted; nothing else is known of it."""
    sql = "SELECT k, max(v) AS most FROM s.l GROUP BY k"
    root = at_work(sql, {"l": [(1, 2), (1, 3)]}, {"l": [((1, 2), 9, -1)]})
    done(root.before(Span(8, 7), ALL))
    root.settle()
    assert done(root.change(_BATCH)).is_empty()


def test_too_few_rows_before_a_batch_are_named_as_of_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_few(given: Given, *_: object) -> Task:
        return given.rows.with_columns(-pl.col(COUNT))
        yield []

    monkeypatch.setattr(Given, "before", too_few)
    for sql in VIEWS.values():
        root = at_work(sql, {"l": [(4, 4)], "r": [(4, 5)]}, {})
        with pytest.raises(SourceViolation, match=r"from position 7 on .* -1 rows for \(.* = 4\)"):
            done(root.before(Span(8, 7), ALL))


# -- with sources and protocols --------------------------------------------------------------------


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes sources publish all given changes, and apply those that are possible."""

    def after(before: Contents, changes: Contents) -> Contents:
        return {r: before[r].plus(change).positive() for r, change in changes.items()}

    monkeypatch.setattr(source, "after", after)


def _deleted(relation: Relation) -> Any:
    return update(relation, (7, 7), None)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("protocol", ["batched-sweep", "sweep"])
@pytest.mark.usefixtures("careless")
def test_a_wrong_source_ends_the_run(name: str, protocol: str) -> None:
    held = {L: [(1, 1), (7, 1)], R: [(1, 1)]}
    if name == "distinct":
        held[L] = [(1, 1)]
    story = [update(R, None, (1, 2)), _deleted(L if name == "distinct" else R)]
    with pytest.raises(SourceViolation, match=rf"{name}.* over s\.[lr]: from position 2 on .* = 7"):
        watched(VIEWS[name], held, story, protocol, restarted=False)


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.usefixtures("careless")
def test_naive_goes_on_over_a_wrong_source(name: str) -> None:
    assert PROTOCOLS["naive"].control
    story = [_deleted(L if name == "distinct" else R)]
    watched(VIEWS[name], {L: [(1, 1)], R: [(1, 1)]}, story, "naive", restarted=False)
