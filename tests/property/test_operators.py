"""Every operator against DuckDB, at every position of two batches.

No sources and no concurrency here: the leaves of the tree get the rows before a batch and its
changes. So only the arithmetic of positions is tested: the result of an operator for many changes
at once must equal, at each of their positions, DuckDB's result for the rows there. The second batch
uses the memories that the first one left.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import duckdb
import polars as pl
import pytest

from protocols.algebra import frame
from protocols.algebra.bag import Row
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.frame import empty_frame
from protocols.checking.plans import judging
from protocols.operators import aggregates, exactsums, frames, memory, order, outer, placed, windows
from protocols.operators.build import build
from protocols.operators.keys import ALL, Asked, agreeing
from protocols.operators.operator import Span, Task
from protocols.operators.placed import added_up
from protocols.simulation.algebras import one_nan
from protocols.views.catalog import Catalog, catalog_from_json
from protocols.views.sql import parse_view
from protocols.views.tree import TreeView
from protocols.views.view import View
from tests.harness.campaigns import planted

#: The positions of the two batches, and the largest number of changes of each position.
BATCHES, CHANGES = (Span(1, 4), Span(5, 8)), 3
VALUES: dict[str, tuple[Any, ...]] = {
    "BIGINT": (0, 1, 2, -(2**52) - 1, 2**62, None),
    "DOUBLE": (float("nan"), 0.0, -0.0, 1.5, float("inf"), None),
    "DECIMAL(18,4)": ("0.0001", "3.3333", "-12345678901234.5678", "7.0000", None),
    "VARCHAR": ("", "a", "ä", None),
    "DATE": ("2024-02-29", "1969-12-31", None),
}
#: (type of k, type of v).
TYPES = [
    ("BIGINT", "BIGINT"),
    ("DOUBLE", "DOUBLE"),
    ("VARCHAR", "DECIMAL(18,4)"),
    ("DATE", "VARCHAR"),
]

Rows = Counter[Row]


class History:
    """The rows of a relation at each position."""

    def __init__(self, rng: Random, types: tuple[str, str]) -> None:
        domains = [VALUES[type_] for type_ in types]
        held = [tuple(rng.choice(domain) for domain in domains) for _ in range(rng.randint(0, 5))]
        self.at = [list(held)]
        for _ in range(BATCHES[-1].last):
            for _ in range(rng.randint(0, CHANGES)):
                if held and rng.random() < 0.5:
                    held.pop(rng.randrange(len(held)))
                else:
                    held.append(tuple(rng.choice(domain) for domain in domains))
            self.at.append(list(held))


class Given:
    """A leaf of the tree with given rows."""

    def __init__(self, view: View, history: History) -> None:
        self.nothing = empty_frame(view.schema).data
        self._view = view
        self._at = [self._rows(rows) for rows in history.at]

    def change(self, span: Span) -> Task:
        steps = []
        for position in range(span.first, span.last + 1):
            old, new = self._at[position - 1], self._at[position]
            step = pl.concat([new, old.with_columns(-pl.col(COUNT))])
            steps.append(added_up(step).with_columns(pl.lit(position, pl.Int64).alias(POSITION)))
        return pl.concat(steps).select(*self._view.schema, POSITION, COUNT)
        yield []

    def before(self, span: Span, keys: Asked) -> Task:
        return agreeing(self._at[span.cut], keys)
        yield []

    def settle(self) -> None:
        """It keeps nothing."""

    def _rows(self, rows: list[Row]) -> pl.DataFrame:
        (atom,) = self._view.atoms
        frame = _frame(dict(atom.relation.columns), rows)
        if atom.condition is not None:
            frame = frame.filter(to_polars(atom.condition))
        shown = [
            pl.col(output.column.rpartition(".")[2]).alias(output.name)
            for output in self._view.outputs
        ]
        return added_up(frame.select(*shown, pl.lit(1, pl.Int64).alias(COUNT)))


def wrong_position(sql: str, types: tuple[str, str], seed: int) -> int | None:
    """The first position at which the operators of a view and DuckDB differ."""
    rng = Random(seed)
    catalog = _catalog(types)
    view = parse_view("view", sql, catalog)
    assert isinstance(view, TreeView)
    histories = {name: History(rng, types) for name in ("l", "r")}
    leaves: Callable[[View], Given] = lambda core: Given(  # noqa: E731
        core, histories[core.atoms[0].relation.name]
    )
    root = build(view.root, leaves)
    held = _counted(_done(root.before(BATCHES[0], ALL)), view)
    if held != _by_duckdb(view, catalog, histories, 0):
        return 0
    for span in BATCHES:
        change = _done(root.change(span))
        root.settle()
        for position in range(span.first, span.last + 1):
            held.update(_counted(change.filter(pl.col(POSITION) == position), view))
            shown = Counter({row: count for row, count in held.items() if count})
            if shown != _by_duckdb(view, catalog, histories, position):
                return position
    return None


def _done(task: Task) -> pl.DataFrame:
    """Runs work that asks no questions."""
    try:
        next(task)
    except StopIteration as done:
        rows: pl.DataFrame = done.value
        return rows
    raise AssertionError("given rows ask nobody")


def _counted(rows: pl.DataFrame, view: TreeView) -> Rows:
    counted: Rows = Counter()
    for *row, count in rows.select(*view.schema, COUNT).iter_rows():
        counted[tuple(map(one_nan, row))] += count
    return counted


def _by_duckdb(
    view: TreeView, catalog: Catalog, histories: dict[str, History], position: int
) -> Rows:
    database = _database()
    for relation in catalog:
        held = histories[relation.name].at[position]
        content = repr((relation.columns, held))
        if _loaded.get(relation.name) != content:
            database.register("rows", _frame(dict(relation.columns), held).to_arrow())
            database.execute(f"CREATE OR REPLACE TABLE s.{relation.name} AS SELECT * FROM rows")
            _loaded[relation.name] = content
    casts = ", ".join(f"{name}::{type_.name}" for name, type_ in view.schema.items())
    found = database.execute(f"SELECT {casts} FROM ({view.sql})").fetchall()
    return Counter(tuple(map(one_nan, row)) for row in found)


#: Relation → its columns and rows in the database, for most change at few positions.
_loaded: dict[str, str] = {}


@cache
def _database() -> duckdb.DuckDBPyConnection:
    database = judging(duckdb.connect(":memory:", config={"threads": 1}))
    database.execute("CREATE SCHEMA s")
    return database


def _frame(columns: dict[str, Any], rows: Iterable[Row]) -> pl.DataFrame:
    cells = [
        tuple(type_.decode(value) for type_, value in zip(columns.values(), row, strict=True))
        for row in rows
    ]
    return pl.DataFrame(cells, {name: t.dtype for name, t in columns.items()}, orient="row")


def _catalog(types: tuple[str, str]) -> Catalog:
    relation = {"columns": dict(zip("kv", types, strict=True))}
    return catalog_from_json({"s": {"relations": {"l": relation, "r": relation}}})


def right(
    sql: str, seeds: range = range(4), kinds: Sequence[tuple[str, str]] = tuple(TYPES)
) -> bool:
    """Whether the view is right on the data of all these seeds, with the types in turn."""
    for seed in seeds:
        types = kinds[seed % len(kinds)]
        position = wrong_position(sql, types, seed)
        if position is not None:
            print(f"{sql} over {types}: seed {seed} is wrong at position {position}")
            return False
    return True


# -- the operators ---------------------------------------------------------------------------------

ON = {
    "equality": "l.k = r.k",
    "two equalities": "l.k = r.k AND l.v = r.v",
    "a column that equals itself": "l.k = r.k AND l.k = l.k",
    "more than equalities": "l.k = r.k AND l.v < r.v",
    "a test of one side": "l.k = r.k AND l.v IS NOT NULL",
    "a test of the other side": "l.k = r.k AND r.v IS NULL",
    "NULL and all": "l.k = r.k AND (l.v <> r.v OR r.v IS NULL)",
}


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])
def test_outer_joins(kind: str, on: str) -> None:
    shown = "l.k AS lk, l.v AS lv, r.k AS rk, r.v AS rv"
    assert right(f"SELECT {shown} FROM s.l {kind} JOIN s.r ON {ON[on]}")


@pytest.mark.parametrize("on", ON)
def test_inner_joins_of_what_is_no_relation(on: str) -> None:
    two = "(SELECT DISTINCT k, v FROM s.l) AS l JOIN (SELECT DISTINCT k, v FROM s.r) AS r"
    assert right(f"SELECT l.k, l.v, r.v AS rv FROM {two} ON {ON[on]}")


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize("negated", ["", "NOT "])
def test_exists(negated: str, on: str) -> None:
    subquery = f"SELECT 1 FROM s.r WHERE {ON[on]}"
    assert right(f"SELECT l.k, l.v FROM s.l WHERE {negated}EXISTS ({subquery})")


@pytest.mark.parametrize("link", ["", " WHERE r.k = l.k"])
@pytest.mark.parametrize("form", ["IN", "NOT IN", "< ANY", "> ALL", "<> ALL", "= ANY"])
def test_quantified_comparisons(form: str, link: str) -> None:
    test = f"l.v {form} (SELECT r.v FROM s.r{link})"
    assert right(f"SELECT l.k, l.v FROM s.l WHERE {test}")
    # As a value, unknown is visible.
    assert right(f"SELECT l.k, {test} AS held FROM s.l")


@pytest.mark.parametrize("keys", ["", "k"])
@pytest.mark.parametrize("distinct", ["", "DISTINCT "])
@pytest.mark.parametrize("function", ["count", "min", "max", "sum", "avg"])
def test_aggregates(function: str, distinct: str, keys: str) -> None:
    key, group = (f"{keys}, ", f" GROUP BY {keys}") if keys else ("", "")
    sql = f"SELECT {key}{function}({distinct}v) AS one, count(*) AS n FROM s.l{group}"
    # These DOUBLEs have the same sum in any order, so DuckDB's is the exact one.
    added = [types for types in TYPES if types[1] in ("BIGINT", "DECIMAL(18,4)", "DOUBLE")]
    assert right(sql, range(8), added if function in ("sum", "avg") else TYPES)


def test_several_aggregates_of_one_group() -> None:
    every = "count(v) AS a, min(v) AS b, max(v) AS c, count(DISTINCT v) AS d, count(*) AS e"
    assert right(f"SELECT k, {every} FROM s.l GROUP BY k", range(8))
    assert right(f"SELECT {every} FROM s.l", range(8))


def test_groups_of_groups_and_having() -> None:
    inner = "SELECT k, count(*) AS n, max(v) AS m FROM s.l GROUP BY k HAVING count(*) > 1"
    assert right(inner)
    assert right(f"SELECT g.n, count(*) AS j, max(g.m) AS m FROM ({inner}) AS g GROUP BY g.n")


@pytest.mark.parametrize("every", ["", " ALL"])
@pytest.mark.parametrize("operation", ["UNION", "INTERSECT", "EXCEPT"])
def test_set_operations(operation: str, every: str) -> None:
    assert right(f"SELECT k, v FROM s.l {operation}{every} SELECT k, v FROM s.r")
    assert right(f"SELECT v FROM s.l {operation}{every} SELECT v FROM s.r")


OVER = "OVER (PARTITION BY k"


@pytest.mark.parametrize(
    "call",
    [
        f"rank() {OVER} ORDER BY v DESC NULLS FIRST)",
        f"dense_rank() {OVER} ORDER BY v)",
        f"count(*) {OVER})",
        f"count(v) {OVER} ORDER BY v NULLS FIRST)",
        f"min(v) {OVER} ORDER BY v DESC NULLS LAST)",
        f"max(v) {OVER})",
    ],
)
def test_windows(call: str) -> None:
    assert right(f"SELECT k, v, {call} AS one FROM s.l", range(8))
    joined = "(SELECT l.k, r.v FROM s.l LEFT JOIN s.r ON l.k = r.k) AS j"
    assert right(f"SELECT k, v, {call} AS one FROM {joined}")


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_sums_over_windows(function: str) -> None:
    added = [types for types in TYPES if types[1] in ("BIGINT", "DECIMAL(18,4)", "DOUBLE")]
    running = f"{function}(v) {OVER} ORDER BY v) AS a, {function}(v) {OVER}) AS b"
    assert right(f"SELECT k, v, {running} FROM s.l", range(8), added)


@pytest.mark.parametrize("frame", ["2 PRECEDING AND 1 PRECEDING", "CURRENT ROW AND 1 FOLLOWING"])
def test_frames_of_rows(frame: str) -> None:
    """Over groups, whose keys order their rows totally."""
    over = f"{OVER} ORDER BY v ROWS BETWEEN {frame})"
    neighbours = f"lag(n) {OVER} ORDER BY v) AS b, first_value(n) {over} AS c, max(n) {over} AS d"
    groups = "(SELECT k, v, count(*) AS n FROM s.l GROUP BY k, v) AS g"
    sums = f"sum(n) {over} AS a, count(*) {over} AS e, row_number() {OVER} ORDER BY v) AS f"
    assert right(f"SELECT k, v, {sums}, {neighbours} FROM {groups}")


def test_partitions_of_many_states_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_AT_ONCE", 3)
    assert right(f"SELECT k, v, rank() {OVER} ORDER BY v) AS r FROM s.l", range(8))


def test_distinct() -> None:
    assert right("SELECT DISTINCT k FROM s.l", range(8))


def test_the_mean_of_decimals_is_duckdbs_to_the_last_bit() -> None:
    decimals = [("BIGINT", "DECIMAL(18,4)")]
    assert right("SELECT k, avg(v) AS a, sum(v) AS s FROM s.l GROUP BY k", range(12), decimals)
    assert right("SELECT avg(v) AS a, avg(DISTINCT v) AS d FROM s.l", range(12), decimals)


def test_rows_of_one_hash_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "row_hashes", _one_hash)
    monkeypatch.setattr(memory, "row_hashes", _one_hash)
    monkeypatch.setattr(frame, "row_hashes", _one_hash)
    assert right("SELECT k, count(*) AS n, max(v) AS m FROM s.l GROUP BY k", range(8))
    assert right("SELECT l.k, r.v FROM s.l FULL JOIN s.r ON l.k = r.k")


def _one_hash(rows: pl.DataFrame, _: Sequence[str]) -> pl.Series:
    return pl.Series([7], dtype=pl.UInt64).new_from_index(0, rows.height)


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_outer_joins_that_are_made_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins of many rows are made in pieces."""
    monkeypatch.setattr(outer, "_MANY", 0)
    assert right(f"SELECT l.v, r.v AS w FROM s.l {kind} JOIN s.r ON l.k = r.k")
    assert right(f"SELECT l.k, r.v FROM s.l {kind} JOIN s.r ON l.k = r.k AND l.v = r.v")


def test_sums_that_fill_a_decimal_are_right() -> None:
    """The sum over several groups would have too many digits."""
    most = 10**38 - 1
    rows = {"g": [1, 1, 2, 2], "v": [most, -7, 5, most - 5], POSITION: [-1, 3, -1, 4]}
    placed = pl.DataFrame(rows, schema_overrides={"v": pl.Decimal(38, 0)})
    sums = order.in_order(placed, ["g"]).sums(placed["v"])
    assert set(sums) == {most, most - 7, 5}


_DOUBLES = [0.1, 1e16, -1e16, 1.0, 5e-324, 1e308, -1e308, 2.5e-17, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_doubles_are_exact_at_every_position(seed: int) -> None:
    """The exact sum of the rows that are there, rounded once; infinite if it is too large."""
    rng = Random(seed)
    held: Counter[float] = Counter()
    rows: list[tuple[float, int, int]] = []
    right_ones = []
    for position in range(30):
        value = rng.choice(_DOUBLES[: rng.choice((8, 8, 8, 11))])
        count = -1 if held[value] and rng.random() < 0.5 else 1
        held[value] += count
        rows.append((value, count, position))
        right_ones.append(_exact_sum(held))
    placed = pl.DataFrame(rows, schema=["v", COUNT, POSITION], orient="row")
    summed = exactsums.summands(placed["v"], placed[COUNT])
    at_positions = order.in_order(placed, []).sums(summed)
    found = exactsums.sums(at_positions, pl.Series([1] * 30))
    assert found.to_list() == pytest.approx(right_ones, rel=0, abs=0, nan_ok=True)
    if seed == 0:
        naive = pl.Series([v * c for v, c, _ in rows]).cum_sum()
        assert naive.to_list() != found.to_list(), "control: added in order of arrival"


def _exact_sum(held: Counter[float]) -> float:
    odd = [value for value, count in held.items() if count and not math.isfinite(value)]
    if odd:
        return sum(odd)
    exact = sum((Fraction(v) * n for v, n in held.items() if math.isfinite(v)), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# -- planted defects -----------------------------------------------------------------------------


def test_orphans_that_are_decided_once_per_batch_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        return placed.running(rows.with_columns(pl.col(POSITION).max()), by)

    monkeypatch.setattr("protocols.operators.partners.running", at_once)
    assert not right("SELECT l.v FROM s.l LEFT JOIN s.r ON l.k = r.k")


def test_a_running_sum_over_the_newest_state_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = planted(windows.WindowOperator._replaced, "at[state] > BEGINNING", "ends[state]")
    monkeypatch.setattr(windows.WindowOperator, "_replaced", newest)
    assert not right(f"SELECT k, v, sum(v) {OVER} ORDER BY v) AS s FROM s.l", range(4), TYPES[:1])


def test_peers_that_come_one_after_the_other_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tie broken by arrival."""
    apart = planted(frames.ordered, "of_peers = ", "of_peers = np.ones(rows.height, np.bool_) | ")
    monkeypatch.setattr(windows, "ordered", apart)
    assert not right(f"SELECT k, rank() {OVER} ORDER BY v) AS r FROM s.l", range(4), TYPES[:1])


def test_nan_that_is_below_all_numbers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ascending = aggregates._ascending
    monkeypatch.setattr(
        aggregates, "_ascending", lambda v, function: ascending(v.fill_nan(float("-inf")), function)
    )
    assert not right("SELECT max(v) AS m FROM s.l", range(6), [TYPES[1]])
