"""The algebra: `Frame` and `Bag` agree, both obey the laws, and a join is DuckDB's join.

The purpose of each family: *equal results*, because the simulator runs on either and production on
one; *linearity*, because only then can an error be removed from an answer afterwards; *the
database's join*, because the source decides which rows match and we must decide the same.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import duckdb
import polars as pl
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import protocols.algebra.frame as production
from protocols.algebra.bag import Bag, bag
from protocols.algebra.delta import COUNT, POSITION, SINCE, UNTIL
from protocols.algebra.expressions import COMPARISONS, Column, Comparison, Condition, Literal
from protocols.algebra.frame import Frame, empty_frame
from protocols.algebra.types import ColumnType
from protocols.simulation.algebras import ALGEBRAS
from tests.cases.values import FEW, TYPES, few

#: For controls: any counterexample is enough, and need not be small.
UNSHRUNK = settings(deadline=None, max_examples=3000, phases=[Phase.generate])

Counted = list[tuple[tuple[Any, ...], int]]
LINKS = (("a", "x"), ("b", "y"))
#: Columns taken twice and in another order, with new names.
SELECTED = (("second", "b"), ("first", "a"), ("again", "b"))

#: The last column as the position of a change.
PLACED = (("a", "a"), ("b", "b"), (POSITION, "c"))
ENDS = (("a", "a"), ("b", "b"))
AS_R = (("x", "a"), ("y", "b"), ("z", "c"))


@dataclass(frozen=True)
class Both:
    """The same rows in both algebras; the frame keeps equal rows apart."""

    bag: Bag
    frame: Frame


@dataclass(frozen=True)
class Case:
    """Three deltas: p and q over (a, b, c), r over (x, y, z); a, x and b, y have one type each."""

    p: Both
    q: Both
    r: Both
    types: tuple[ColumnType, ColumnType]


def _both(names: Sequence[str], types: Sequence[ColumnType], rows: Counted) -> Both:
    schema = {name: type_.dtype for name, type_ in zip(names, types, strict=True)}
    data = pl.DataFrame(
        [(*row, count) for row, count in rows],
        schema={**schema, COUNT: pl.Int64()},
        orient="row",
    )
    return Both(bag(names, rows), Frame(data))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    first, second = (TYPES[draw(st.sampled_from(list(TYPES)))] for _ in range(2))
    types = (first, second, TYPES["BIGINT"])
    row = st.tuples(few(first), few(second), st.sampled_from([0, 1]))
    counted = st.lists(st.tuples(row, st.sampled_from([-2, -1, 1, 3])), max_size=5)
    p, q, r = (_both(names, types, draw(counted)) for names in ("abc", "abc", "xyz"))
    return Case(p, q, r, (first, second))


def _rows(frame: Frame) -> Bag:
    return ALGEBRAS["frame"].rows(frame)


def _where(condition: Condition, delta: Any, *_: object) -> Any:
    return delta.where(condition)


def _operations(case: Case) -> dict[str, Callable[[Any, Any, Any], Any]]:
    """Every operation of the algebra, written once for both."""
    type_ = case.types[0]
    middle = Literal(type_.decode(FEW[type_.name][1]), type_)
    operations: dict[str, Callable[[Any, Any, Any], Any]] = {
        "plus": lambda p, q, _: p.plus(q),
        "negated": lambda p, *_: p.negated(),
        "select": lambda p, *_: p.select(SELECTED),
        "select nothing": lambda p, *_: p.select(()),
        "consolidated": lambda p, q, _: p.plus(q).consolidated(),
        "join": lambda p, _, r: p.join(r, LINKS),
        "join on one": lambda p, _, r: p.join(r, LINKS[:1]),
        "join on the other": lambda p, _, r: p.join(r, LINKS[1:]),
        "join twice": lambda p, q, r: p.join(r, LINKS[:1]).join(
            q.select([("i", "a"), ("j", "b")]), [("y", "j")]
        ),
        "keys": lambda p, *_: p.consolidated().keys([("x", "a"), ("y", "b")]),
        "keys of several": lambda p, q, r: p.consolidated().keys(
            [("x", "a")], (q.consolidated(), [("x", "a")]), (r.consolidated(), [("x", "x")])
        ),
        "matching": lambda p, _, r: r.matching(p.consolidated().keys([("x", "a"), ("y", "b")])),
        "positive": lambda p, *_: p.positive(),
        "earliest": lambda p, *_: p.consolidated().earliest(("a", "b"), "c"),
        "touched": lambda p, _, r: r.apart(p.consolidated().select(AS_R), ("x",))[0],
        "not touched": lambda p, _, r: r.apart(p.consolidated().select(AS_R), ("x", "y"))[1],
        "lifetimes": lambda p, q, _: p.select(ENDS).lifetimes(q.consolidated().select(PLACED)),
        "throughout": lambda p, *_: p.consolidated().throughout(),
        "matching on one": lambda p, _, r: r.matching(p.consolidated().keys([("y", "b")])),
    }
    for op in COMPARISONS:
        condition = Comparison(Column("a"), op, middle)
        operations[f"where {op}"] = partial(_where, condition)
    return operations


@given(cases())
@settings(max_examples=120, deadline=None)
def test_frames_give_what_bags_give(case: Case) -> None:
    for name, operation in _operations(case).items():
        expected = operation(case.p.bag, case.q.bag, case.r.bag)
        found = operation(case.p.frame, case.q.frame, case.r.frame)
        assert found.columns == expected.columns, name
        assert _rows(found) == expected, name


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=120, deadline=None)
def test_a_join_is_linear_on_either_side(case: Case, algebra: str) -> None:
    p, q, r = _in(case, algebra)
    left = p.plus(q).join(r, LINKS[:1])
    assert _same(left, p.join(r, LINKS[:1]).plus(q.join(r, LINKS[:1])), algebra)
    back = [("x", "a")]
    right = r.join(p.plus(q), back)
    assert _same(right, r.join(p, back).plus(r.join(q, back)), algebra)
    assert _same(p.negated().join(r, LINKS), p.join(r, LINKS).negated(), algebra)


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=60, deadline=None)
def test_where_select_and_matching_are_linear(case: Case, algebra: str) -> None:
    """So a condition, a projection and fixed keys can be applied to an error term alone."""
    p, q, r = _in(case, algebra)
    condition = Comparison(Column("a"), "<>", Column("a"))
    keys = r.keys([("a", "x")])
    operations: list[Callable[[Any], Any]] = [
        partial(_where, condition),
        lambda delta: delta.select(SELECTED),
        lambda delta: delta.matching(keys),
        lambda delta: delta.negated(),
        lambda delta: delta.consolidated(),
    ]
    for operation in operations:
        assert _same(operation(p.plus(q)), operation(p).plus(operation(q)), algebra)


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=60, deadline=None)
def test_a_delta_is_its_positive_rows_less_those_of_its_opposite(case: Case, algebra: str) -> None:
    p, _, _ = _in(case, algebra)
    whole = p.positive().plus(p.negated().positive().negated())
    assert _same(whole, p, algebra)


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=60, deadline=None)
def test_what_is_alive_at_a_cut_is_what_is_there_in_the_end_less_what_came_later(
    case: Case, algebra: str
) -> None:
    p, q, _ = _in(case, algebra)
    ends, changes = p.select(ENDS), q.select(PLACED)
    spans = ends.lifetimes(changes)
    for cut in (-1, 0, 1, 5):
        later = Comparison(Column(POSITION), ">", Literal(cut, TYPES["BIGINT"]))
        born = Comparison(Column(SINCE), "<=", Literal(cut, TYPES["BIGINT"]))
        not_gone = Comparison(Column(UNTIL), ">", Literal(cut, TYPES["BIGINT"]))
        alive = spans.where(born).where(not_gone).select(ENDS)
        assert _same(alive, ends.plus(changes.where(later).select(ENDS).negated()), algebra)


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=60, deadline=None)
def test_what_nothing_changes_is_there_throughout(case: Case, algebra: str) -> None:
    p, q, _ = _in(case, algebra)
    ends = p.select(ENDS)
    never = Comparison(Column(POSITION), "<>", Column(POSITION))
    assert _same(ends.lifetimes(q.select(PLACED).where(never)), ends.throughout(), algebra)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_rows_of_one_hash_are_still_told_apart(case: Case) -> None:
    """Hashes only tell which rows may be equal: the result is right even if all are the same."""
    p, q, _ = _in(case, "frame")
    found = p.select(ENDS).lifetimes(q.select(PLACED)), p.plus(q).consolidated()
    one = pl.Series([1], dtype=pl.UInt64)
    with mock.patch.object(
        production, "row_hashes", lambda data, _: one.new_from_index(0, data.height)
    ):
        again = p.select(ENDS).lifetimes(q.select(PLACED)), p.plus(q).consolidated()
    for expected, same in zip(found, again, strict=True):
        assert _rows(same) == _rows(expected)


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=60, deadline=None)
def test_rows_apart_add_up_and_only_some_are_touched(case: Case, algebra: str) -> None:
    p, q, _ = _in(case, algebra)
    touched, rest = p.apart(q, ("a", "b"))
    assert _same(touched.plus(rest), p, algebra)
    again, none = touched.apart(q, ("a", "b"))
    assert none.is_empty()
    assert rest.apart(q, ("a", "b"))[0].is_empty()
    assert _same(again, touched, algebra)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_the_parts_of_a_split_are_the_rows_with_each_value(case: Case) -> None:
    parts, expected = case.p.frame.split("b"), case.p.bag.split("b")
    held = {_one_nan(value): _rows(part) for value, part in parts.items()}
    for value, rows in expected.items():
        assert held.pop(_one_nan(value)) == rows
    # The rows left in the frame have cancelled out.
    assert all(part.is_empty() for part in held.values())


@given(cases(), st.sampled_from(["bag", "frame"]))
@settings(max_examples=60, deadline=None)
def test_a_join_needs_no_more_than_the_rows_that_match_its_keys(case: Case, algebra: str) -> None:
    """Lemma 2: the reason why a source receives only link values."""
    p, _, r = _in(case, algebra)
    keys = p.keys([("x", "a"), ("y", "b")])
    assert _same(p.join(r.matching(keys), LINKS), p.join(r, LINKS), algebra)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_consolidated_and_keys_leave_each_row_once(case: Case) -> None:
    for frame in (case.p.frame.plus(case.q.frame), case.p.frame):
        once = frame.consolidated()
        assert once.data.height == len(_rows(frame).counts)
        assert 0 not in once.data[COUNT].to_list()
        keys = frame.keys([("k", "a")])
        assert keys.data.height == len(_rows(keys).counts)
        assert set(keys.data[COUNT].to_list()) <= {1}
        assert not keys.data["k"].null_count()


@given(cases())
@settings(max_examples=60, deadline=None)
def test_uncancelled_rows_may_add_keys_but_never_lose_one(case: Case) -> None:
    wide = case.p.frame.plus(case.q.frame).keys([("k", "a")])
    exact = case.p.bag.plus(case.q.bag).keys([("k", "a")])
    assert exact.counts.keys() <= _rows(wide).counts.keys()


@given(cases())
@settings(max_examples=60, deadline=None)
def test_a_join_finds_the_pairs_that_a_database_finds(case: Case) -> None:
    for links in (LINKS, LINKS[:1], LINKS[1:]):
        found = case.p.bag.join(case.r.bag, links)
        assert Counter(dict(found.counts)) == _by_duckdb(case, links)


def test_an_empty_frame_has_its_types_and_is_neutral() -> None:
    empty = empty_frame(TYPES)
    assert empty.is_empty()
    assert empty.columns == tuple(TYPES)
    assert empty.consolidated().columns == empty.columns
    row = _both(list(TYPES), list(TYPES.values()), [((None,) * len(TYPES), 1)]).frame
    assert _rows(empty.plus(row)) == _rows(row.plus(empty)) == _rows(row)


def test_a_single_nan_links_with_a_single_nan_as_it_does_among_many() -> None:
    """Polars by itself finds no match once it knows that both columns are sorted."""
    for rows in (1, 2):
        sides = [
            _both(names, [TYPES["DOUBLE"]], [((TYPES["DOUBLE"].decode("NaN"),), 1)] * rows)
            for names in ("a", "x")
        ]
        joined = sides[0].frame.join(sides[1].frame, [("a", "x")])
        assert joined.data.height == rows * rows


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"nulls_equal": True}, id="null-equals-null"),
        pytest.param({"nan": False}, id="nan-differs-from-nan"),
        pytest.param({"counts": False}, id="counts-forgotten"),
    ],
)
def test_the_generated_deltas_tell_wrong_joins_apart(wrong: dict[str, bool]) -> None:
    """The control: for each wrong join there is a case on which it differs from the reference."""

    def joined(p: Frame, r: Frame) -> Bag:
        data = p.data
        if not wrong.get("nan", True) and data.schema["a"] == pl.Float64():
            data = data.filter(pl.col("a").is_not_nan() | pl.col("a").is_null())
        pairs = data.join(
            r.data.rename({COUNT: "_other"}),
            left_on="a",
            right_on="x",
            coalesce=False,
            nulls_equal=wrong.get("nulls_equal", False),
        )
        product = pl.col(COUNT) * pl.col("_other") if wrong.get("counts", True) else pl.col(COUNT)
        return _rows(Frame(pairs.with_columns(product.alias(COUNT)).drop("_other")))

    def differs(case: Case) -> bool:
        return joined(case.p.frame, case.r.frame) != case.p.bag.join(case.r.bag, LINKS[:1])

    find(cases(), differs, settings=UNSHRUNK)


def _in(case: Case, algebra: str) -> tuple[Any, Any, Any]:
    if algebra == "bag":
        return case.p.bag, case.q.bag, case.r.bag
    return case.p.frame, case.q.frame, case.r.frame


def _same(one: Any, other: Any, algebra: str) -> bool:
    rows = ALGEBRAS[algebra].rows
    return rows(one) == rows(other)


_DATABASE = duckdb.connect(":memory:", config={"threads": 1})


def _by_duckdb(case: Case, links: Sequence[tuple[str, str]]) -> Counter[tuple[Any, ...]]:
    types = [*(type_.name for type_ in case.types), "BIGINT", "BIGINT"]
    for table, side in (("p", case.p.bag), ("r", case.r.bag)):
        columns = zip([*side.columns, "n"], types, strict=True)
        typed = ", ".join(f"{name} {type_}" for name, type_ in columns)
        _DATABASE.execute(f"CREATE OR REPLACE TABLE {table} ({typed})")
        rows = [(*row, count) for row, count in side.counts.items()]
        if rows:
            places = ", ".join(["(?, ?, ?, ?)"] * len(rows))
            values = [value for row in rows for value in row]
            _DATABASE.execute(f"INSERT INTO {table} VALUES {places}", values)
    on = " AND ".join(f"p.{ours} = r.{theirs}" for ours, theirs in links)
    found = _DATABASE.execute(f"SELECT a, b, c, x, y, z, p.n * r.n FROM p JOIN r ON {on}")
    pairs: Counter[tuple[Any, ...]] = Counter()
    for *row, count in found.fetchall():
        pairs[tuple(_one_nan(value) for value in row)] += count
    return pairs


def _one_nan(value: Any) -> Any:
    return TYPES["DOUBLE"].decode(value) if isinstance(value, float) else value
