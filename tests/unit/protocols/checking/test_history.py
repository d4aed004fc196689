"""The one join and the lattice search against brute force, on small random histories."""

import itertools
from collections import Counter
from dataclasses import astuple
from functools import cache
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.checking import tracewriting as t
from protocols.checking.history import VersionHistory
from protocols.checking.lattice import Budget, Lattice
from protocols.checking.order import order_of
from protocols.checking.rewriting import ViewText
from protocols.checking.trace import StateLine, Trace
from protocols.checking.tracereading import read_trace
from protocols.views.catalog import catalog_from_json

VIEWS = (
    "SELECT p.x, q.y FROM a.r p JOIN b.s q ON p.y = q.x",
    "SELECT * FROM a.r, b.s WHERE r.x < s.y",
    "SELECT p.x, q.x AS z, s.y FROM a.r p, a.r q, b.s WHERE p.y = q.x AND q.y = s.x",
    "SELECT * FROM a.r JOIN b.s USING (x)",
    "SELECT a.r.x FROM a.r INNER JOIN b.s ON a.r.x IS NOT DISTINCT FROM b.s.x WHERE NOT a.r.y = 1",
    "SELECT r.*, 2 * s.x AS z FROM a.r CROSS JOIN b.s WHERE r.x = 0 OR s.y IS NULL",
    "SELECT x FROM a.r",
)
OTHERS = (
    "SELECT r.x, count(*) AS n, sum(s.y) AS total FROM a.r LEFT JOIN b.s ON r.x = s.x GROUP BY r.x",
    "SELECT DISTINCT p.y FROM a.r p FULL JOIN b.s ON p.x = s.x",
    "SELECT x FROM a.r WHERE NOT EXISTS (SELECT 1 FROM b.s WHERE s.x = r.x)",
    "WITH both_ AS (SELECT x FROM a.r UNION ALL SELECT x FROM b.s) SELECT x FROM both_",
    "SELECT count(*) AS n, sum(x) AS total FROM a.r",
    "SELECT x FROM a.r EXCEPT ALL SELECT y FROM b.s",
    "SELECT max(x) AS most FROM a.r UNION ALL SELECT y FROM b.s",
    "SELECT DISTINCT most FROM (SELECT max(x) AS most FROM a.r) AS t",
    "SELECT x FROM a.r WHERE y NOT IN (SELECT x FROM b.s)",
    "SELECT x, (SELECT max(y) FROM b.s WHERE s.x <= r.x) AS most FROM a.r",
    "WITH p AS (SELECT x, count(*) AS n FROM a.r GROUP BY x), q AS (SELECT x, sum(y) AS m FROM b.s"
    " GROUP BY x) SELECT x, coalesce(n, 0) - coalesce(m, 0) AS z FROM p FULL JOIN q USING (x)",
)
PLACES = {"a": "r", "b": "s"}
Row = tuple[Any, Any]
values = st.sampled_from([None, 0, 1])
rows = st.tuples(values, values)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Initial bags, then transactions that delete only existing rows: (source, [(row, count)])."""
    bags: dict[str, Counter[Row]] = {s: Counter(draw(st.lists(rows, max_size=3))) for s in PLACES}
    told: list[Any] = [{s: list(bag.elements()) for s, bag in bags.items()}]
    for source in draw(st.lists(st.sampled_from("ab"), max_size=6)):
        changes: list[tuple[Row, int]] = []
        for _ in range(draw(st.integers(0, 2))):
            present = sorted(bags[source].elements(), key=repr)
            if bool(present) and draw(st.booleans()):
                changes.append((draw(st.sampled_from(present)), -1))
            else:
                changes.append((draw(rows), 1))
            bags[source][changes[-1][0]] += changes[-1][1]
        told.append((source, changes))
    return told


def trace_of(view: str, told: list[Any]) -> Trace:
    columns = {"x": "BIGINT", "y": "BIGINT"}
    catalog = catalog_from_json(
        {s: {"relations": {r: {"columns": columns}}} for s, r in PLACES.items()}
    )
    initial = {(s, PLACES[s]): bag for s, bag in told[0].items()}
    lines = [t.run_line("sweep", view, catalog, initial)]
    versions = dict.fromkeys(PLACES, 0)
    for position, (source, changes) in enumerate(told[1:], 1):
        versions[source] += 1
        signed = [(PLACES[source], row, count) for row, count in changes]
        lines.append(t.commit_line(source, versions[source], signed))
        lines.append(t.deliver_line(source, versions[source], position))
    return read_trace(lines)


def brute_force(view: str, told: list[Any], vector: tuple[int, int]) -> Counter[Any]:
    """The view at a vector: real tables in DuckDB, and the SQL as written."""
    left = dict(zip(PLACES, vector, strict=True))
    bags = {s: Counter(bag) for s, bag in told[0].items()}
    for source, changes in told[1:]:
        if left[source] > 0:
            left[source] -= 1
            for row, count in changes:
                bags[source][row] += count
    db = tables()
    for source, relation in PLACES.items():
        db.execute(f"DELETE FROM {source}.{relation}")
        for row in bags[source].elements():
            db.execute(f"INSERT INTO {source}.{relation} VALUES (?, ?)", list(row))
    return Counter(db.execute(view).fetchall())


@cache
def tables() -> duckdb.DuckDBPyConnection:
    """One database for all vectors: opening one costs more than its queries."""
    db = duckdb.connect(":memory:", config={"threads": 1})
    for source, relation in PLACES.items():
        db.execute(f"CREATE SCHEMA {source}")
        db.execute(f"CREATE TABLE {source}.{relation} (x BIGINT, y BIGINT)")
    return db


def named(history: VersionHistory, counted: dict[int, int]) -> Counter[Any]:
    found = history.view.rows(counted)
    return Counter({found[id_]: count for id_, count in counted.items()})


@pytest.mark.parametrize("view", VIEWS + OTHERS)
@settings(max_examples=12, deadline=None)
@given(told=histories())
def test_the_history_along_the_delivery_order_equals_recomputation(
    view: str, told: list[Any]
) -> None:
    trace = trace_of(view, told)
    order = order_of(trace)
    with VersionHistory(trace, order) as history:
        assert history.text.is_spj == (view in VIEWS)
        expected = history.along(order.prefixes)
        for position, prefix in enumerate(order.prefixes):
            at = brute_force(view, told, (int(prefix[0]), int(prefix[1])))
            assert named(history, expected.until(position)) == at


def test_an_aggregate_over_nothing_below_a_union_would_be_lost_in_lateral() -> None:
    """The bug of DuckDB 2.0 because of which such views are evaluated vector by vector."""
    [view] = [view for view in OTHERS if "most FROM a.r UNION ALL" in view]
    trace = trace_of(view, [{"a": [], "b": [(1, 1)]}, ("b", [((0, 0), 1)])])
    order = order_of(trace)

    def first_state() -> Counter[Any]:
        with VersionHistory(trace, order) as history:
            return named(history, history.along(order.prefixes).until(0))

    assert first_state() == {(None,): 1, (1,): 1}
    with mock.patch.object(ViewText, "fits_lateral", True):
        assert first_state() == {(1,): 1}, "it is gone; so is the reason for fits_lateral"


@pytest.mark.parametrize("view", [OTHERS[0], OTHERS[-1]])
@pytest.mark.parametrize("rows", [0, 12])
@settings(max_examples=12, deadline=None)
@given(told=histories())
def test_a_history_evaluated_in_stretches_is_the_same(
    view: str, rows: int, told: list[Any]
) -> None:
    trace = trace_of(view, told)
    order = order_of(trace)
    with VersionHistory(trace, order) as history:
        whole = history.along(order.prefixes)
        with mock.patch("protocols.checking.evaluation._ROWS_AT_ONCE", rows):
            in_stretches = history.along(order.prefixes)
        assert [*map(list, astuple(in_stretches))] == [*map(list, astuple(whole))]


@pytest.mark.parametrize("view", [VIEWS[0], VIEWS[2], OTHERS[0]])
@settings(max_examples=8, deadline=None)
@given(told=histories(), data=st.data())
def test_the_lattice_search_equals_brute_force(
    view: str, told: list[Any], data: st.DataObject
) -> None:
    trace = trace_of(view, told)
    order = order_of(trace)
    top = order.prefixes[-1]
    vectors = list(itertools.product(*(range(int(v) + 1) for v in top)))
    values_ = {x: brute_force(view, told, (x[0], x[1])) for x in vectors}
    middle = data.draw(st.lists(st.sampled_from(vectors), max_size=4))
    shown_at = [vectors[0], *middle, vectors[-1]]
    states = [values_[x] for x in shown_at]
    with VersionHistory(trace, order) as history:
        before: Counter[Any] = Counter()
        lines = []
        for position, state in enumerate(states):
            changed = {row: state[row] - before[row] for row in {**state, **before}}
            pairs = tuple((row, n) for row, n in changed.items() if n)
            json_rows = tuple((tuple(map(_json, row)), n) for row, n in pairs)
            lines.append(StateLine(position, {}, json_rows))
            before = state
        shown = history.view.shown(lines)
        lattice = Lattice(history, order, shown, len(states), top, Budget())
        for i, state in enumerate(states):
            matching = {lattice.vector(flat) for flat in lattice.matches(i).tolist()}
            assert matching == {x for x in vectors if values_[x] == state}
        assert lattice.weak(len(states)).holds
        strong = lattice.strong(len(states))
        assert strong.holds == strong_by_force(states, values_, vectors)
        if strong.holds:
            assert [values_[x] for x in strong.vectors] == states
            assert (np.diff(np.array(strong.vectors), axis=0) >= 0).all()
        assert lattice.complete(len(states)).holds == complete_by_force(states, values_, vectors)


def _json(value: Any) -> Any:
    return value if value is None else int(value)


def strong_by_force(states: list[Any], values_: dict[Any, Any], vectors: list[Any]) -> bool:
    reached = [vectors[0]] if values_[vectors[0]] == states[0] else []
    for state in states[1:]:
        reached = [
            x
            for x in vectors
            if values_[x] == state
            and any(all(p <= q for p, q in zip(y, x, strict=True)) for y in reached)
        ]
    return vectors[-1] in reached


def complete_by_force(states: list[Any], values_: dict[Any, Any], vectors: list[Any]) -> bool:
    """Every path, as a set of orders in which the two sources' transactions interleave."""
    wanted = [state for state, _ in itertools.groupby(states)]
    top = vectors[-1]
    for firsts in itertools.combinations(range(sum(top)), top[0]):
        at = [0, 0]
        path = [values_[0, 0]]
        for step in range(sum(top)):
            at[0 if step in firsts else 1] += 1
            path.append(values_[tuple(at)])
        if [value for value, _ in itertools.groupby(path)] == wanted:
            return True
    return False
