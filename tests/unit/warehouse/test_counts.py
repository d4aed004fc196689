"""The count of a row in a view never falls below zero: such a row is named, with the update."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.algebra.delta import COUNT, POSITION
from protocols.errors import SourceViolation
from protocols.views.catalog import Relation
from tests.harness.stored import R, S, delivered, deliveries, rows, standing, view
from warehouse.counts import below_zero
from warehouse.staging import Staging
from warehouse.tables import ViewTables

#: (row, position, change of its count).
Change = tuple[float | None, int, int]
_VALUES = st.sampled_from([None, 1.0, float("nan")])
_CHANGES = st.lists(st.tuples(_VALUES, st.integers(1, 4), st.integers(-2, 2)), max_size=8)


def first_below(before: list[tuple[float | None, int]], changes: list[Change]) -> int | None:
    """By definition: the first position after which the count of a row is below zero."""
    held: Counter[str] = Counter()
    for row, count in before:
        held[str(row)] += count
    for position in range(1, 5):
        for row, at, count in changes:
            held[str(row)] += count if at == position else 0
        if any(count < 0 for count in held.values()):
            return position
    return None


@settings(deadline=None)
@given(
    held=st.dictionaries(st.sampled_from(["None", "1.0", "nan"]), st.integers(1, 3)),
    changes=_CHANGES,
)
def test_the_first_position_with_too_few_of_a_row_is_found(
    held: dict[str, int], changes: list[Change]
) -> None:
    before = [(None if row == "None" else float(row), count) for row, count in held.items()]
    there = pl.DataFrame(before, schema={"y": pl.Float64, COUNT: pl.Int64}, orient="row")
    placed = pl.DataFrame(
        changes, schema={"y": pl.Float64, POSITION: pl.Int64, COUNT: pl.Int64}, orient="row"
    )
    found = below_zero(placed, ["y"], there.lazy())
    expected = first_below(before, changes)
    assert (None if found is None else found.item(0, POSITION)) == expected


def kept(directory: Path) -> ViewTables:
    """A view with the rows (p, 1.5) twice and (q, NULL) once."""
    tables = ViewTables(directory, view(view().sql, R, S))
    tables.define()
    tables.begin(rows(("p", 1.5, 2), ("q", None, 1)), standing(0, 0, 0))
    tables.follow()
    return tables


def install(tables: ViewTables, changes: pl.DataFrame, *order: tuple[int, str, int]) -> None:
    last = order[-1][0]
    tables.install(changes, standing(last, last, 0), deliveries(*order))
    tables.record(delivered(*order))


def current(tables: ViewTables) -> list[tuple[object, ...]]:
    return sorted(pl.read_delta(str(tables.directory / "current")).rows(), key=str)


def test_a_row_deleted_that_was_not_there_is_named_and_no_reader_sees_it(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    before = current(tables)
    install(
        tables,
        pl.concat([rows(("p", 1.5, -1), position=1), rows(("z", None, -1), position=2)]),
        (1, "a", 1),
        (2, "a", 2),
        (3, "a", 3),
    )
    expected = r"position 2 \(version 2 of source a\) .*\(t = z, y = NULL\) would become -1"
    for each in (tables, ViewTables(tmp_path, tables.view)):
        with pytest.raises(SourceViolation, match=expected):
            each.follow()
        assert current(tables) == before


def test_more_of_a_row_deleted_than_there_are_is_named(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    install(tables, rows(("p", 1.5, -1), position=1), (1, "a", 1))
    tables.follow()
    install(tables, rows(("p", 1.5, -2), position=2), (2, "a", 2))
    with pytest.raises(
        SourceViolation, match=r"version 2 of source a\).*y = 1\.5\) would become -1"
    ):
        tables.follow()


def test_a_row_that_is_too_few_for_a_moment_is_named(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    gone, back = rows(("z", 1.5, -1), position=1), rows(("z", 1.5, 1), ("z", 2.5, 1), position=2)
    install(tables, pl.concat([gone, back]), (1, "a", 1), (2, "a", 2))
    with pytest.raises(SourceViolation, match="at position 1 "):
        tables.follow()
    # Also if no other row has changed.
    install(tables, rows(("z", 2.5, -1), position=3), (3, "a", 3))
    with pytest.raises(SourceViolation, match="at position 1 "):
        tables.follow()


def test_a_row_that_goes_and_comes_back_is_no_fault(tmp_path: Path) -> None:
    tables = kept(tmp_path)
    parts = [
        rows(("p", 1.5, -2), ("q", None, -1), ("n", float("nan"), 1), position=1),
        rows(("p", 1.5, 2), ("n", float("nan"), -1), position=2),
    ]
    install(tables, pl.concat(parts), (1, "a", 1), (2, "a", 2))
    tables.follow()
    assert current(tables) == [("p", 1.5, 2)]


def test_delta_itself_refuses_a_count_below_one_unless_the_protocol_is_a_control(
    tmp_path: Path,
) -> None:
    tables = kept(tmp_path)
    place, wrong = tables.directory / "current", rows(("z", 1.5, -1)).to_arrow()
    with pytest.raises(DeltaError, match="1 rows failed validation"):
        write_deltalake(place, wrong, mode="append")
    tables.allows_too_few = True
    tables.follow()
    write_deltalake(place, wrong, mode="append")


def test_a_current_that_is_made_anew_has_no_count_below_zero(tmp_path: Path) -> None:
    tables = ViewTables(tmp_path, view(view().sql, R, S))
    tables.define()
    tables.begin(rows(("p", 1.5, 2)), standing(0, 0, 0))
    install(tables, rows(("p", 1.5, -3), position=1), (1, "a", 1))
    with pytest.raises(SourceViolation, match=r"position 1 .version 1 of source a"):
        tables.follow()
    assert not (tables.directory / "current").exists()


def test_a_first_state_with_a_count_below_zero_is_read_anew(tmp_path: Path) -> None:
    keyed = Relation("a", "r", R.columns, ("id",))
    tables = ViewTables(tmp_path, view(view().sql, keyed, S))
    tables.define()
    staging = Staging(tables, ())
    staging.begin(standing(0, 0, 0))
    staging.add(rows(("p", 1.5, 1), ("z", 1.5, -1)), None)
    with pytest.raises(SourceViolation, match=r"\(t = z, y = 1\.5\) -1 times"):
        staging.finish()
    assert not tables.exists
    assert not (tables.directory / "first_state").exists()
