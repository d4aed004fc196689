"""The Delta tables of a view: commits are read back, and everything else is rebuilt."""

import datetime
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.algebra.types import column_type
from protocols.errors import ViewsweepError, WrongUse
from protocols.views.catalog import Relation
from protocols.views.constraints import Reference
from tests.harness.stored import (
    SQL,
    R,
    Row,
    S,
    anew,
    current,
    delivered,
    deliveries,
    held,
    install,
    log_files,
    made,
    order,
    rows,
    standing,
    view,
)
from warehouse import delta
from warehouse.definition import definition_of, stored_view, write_definition
from warehouse.progress import PROGRESS, QUESTION
from warehouse.tables import ViewTables


@pytest.fixture
def tables(tmp_path: Path) -> ViewTables:
    return made(tmp_path)


# ---------------------------------------------------------------------------------- changes


def test_the_standing_is_read_back(tables: ViewTables) -> None:
    assert anew(tables).standing() == standing(0, 3, 5)
    install(tables, 1, ("q", 2.0, 1))
    tables.install(rows(position=3), standing(3, 4, 7), deliveries((2, "b", 6), (3, "b", 7)))
    assert tables.standing() == anew(tables).standing() == standing(3, 4, 7)


def test_each_position_is_a_state(tables: ViewTables) -> None:
    install(tables, 1, ("p", 1.0, -1), ("q", 2.0, 1))
    install(tables, 2, (None, None, -1))
    read = anew(tables)
    assert held(read.at(0)) == {("p", 1.0, 2), (None, None, 1)}
    assert held(read.at(1)) == {("p", 1.0, 1), ("q", 2.0, 1), (None, None, 1)}
    assert held(read.at(2)) == {("p", 1.0, 1), ("q", 2.0, 1)}
    assert read.rows() == 2


def test_duckdb_reads_the_same(tables: ViewTables) -> None:
    install(tables, 1, ("p", 1.0, -2), ("q", None, 3))
    tables.follow()
    names = DeltaTable(tables.directory / "current").to_pyarrow_table()
    found = duckdb.from_arrow(names).order("_count").fetchall()
    assert found == [(None, None, 1), ("q", None, 3)]


def test_a_second_writer_is_fenced(tables: ViewTables) -> None:
    other = anew(tables)
    install(tables, 1, ("q", 2.0, 1))
    with pytest.raises(ViewsweepError, match="another job has committed to this view meanwhile"):
        install(other, 1, ("q", 2.0, 1))
    assert anew(tables).standing() == standing(1, 4, 5)
    assert held(anew(tables).at(1)) == {("p", 1.0, 2), (None, None, 1), ("q", 2.0, 1)}


def test_a_second_first_state_is_refused(tables: ViewTables, tmp_path: Path) -> None:
    late = ViewTables(tmp_path / "other", view())
    late.define()
    shutil.copytree(tables.directory / "changes", late.directory / "changes")
    with pytest.raises(ViewsweepError, match="changes"):
        late.begin(rows(("p", 1.0, 2)), standing(0, 3, 5))
    assert held(ViewTables(tmp_path / "other", view()).at(0)) == held(tables.at(0))


# --------------------------------------------------------------------------------- progress


def test_progress_says_which_transaction_each_position_was(tables: ViewTables) -> None:
    now = datetime.datetime(2024, 2, 29, 1, 2, 3)
    asked = {"source": "b", "relation": "s", "keys": 1, "bytes": 2, "version": 3, "rows": 4}
    question = {**asked, "answer_bytes": 5}
    tables.install(rows(position=1), standing(1, 4, 5), deliveries((1, "a", 4)))
    known = {"committed_at": now, "skipped": 2, "questions": [question]}
    tables.record(delivered((1, "a", 4), **known))
    [entry] = anew(tables).progress().iter_rows(named=True)
    assert (entry["committed_at"], entry["skipped"], entry["questions"]) == (now, 2, [question])


def test_transactions_for_which_nothing_was_asked_have_no_questions(tables: ViewTables) -> None:
    tables.install(rows(position=2), standing(2, 5, 5), deliveries((1, "a", 4), (2, "a", 5)))
    tables.record(delivered((1, "a", 4), (2, "a", 5)))
    read = anew(tables).progress()
    assert read["questions"].to_list() == [[], []]
    assert read.schema["questions"] == pl.List(QUESTION)
    assert read["installed_at"].null_count() == 0


def test_after_a_crash_between_changes_and_progress_the_order_is_recovered(
    tables: ViewTables,
) -> None:
    install(tables, 1, ("q", 2.0, 1))
    crashing = anew(tables)
    crashing.install(
        rows(("q", 2.0, 1), position=2),
        standing(4, 5, 7),
        deliveries((2, "b", 6), (3, "a", 5), (4, "b", 7)),
    )
    after = anew(tables)
    after.recover_progress()
    after.recover_progress()
    assert order(anew(after)) == [(1, "a", 4), (2, "b", 6), (3, "a", 5), (4, "b", 7)]


def test_a_progress_table_that_was_deleted_is_recovered_from_the_log(tables: ViewTables) -> None:
    for position in (1, 2, 3):
        install(tables, position, ("q", 2.0, 1))
    shutil.rmtree(tables.directory / "progress")
    after = anew(tables)
    after.recover_progress()
    assert order(after) == [(1, "a", 4), (2, "a", 5), (3, "a", 6)]


def test_an_order_that_the_log_has_lost_is_not_guessed(tables: ViewTables) -> None:
    install(tables, 1, record=False)
    commit = log_files(tables)[-1]
    commit.write_bytes(commit.read_bytes().replace(b"viewsweep/order", b"viewsweep/other"))
    with pytest.raises(WrongUse, match=r"positions 1 to 1 are missing, but the log of .*recreate"):
        anew(tables).recover_progress()


def test_nothing_is_recovered_where_nothing_is_missing(tables: ViewTables) -> None:
    tables.recover_progress()
    assert order(tables) == []
    install(tables, 1)
    anew(tables).recover_progress()
    assert order(anew(tables)) == [(1, "a", 4)]


def test_which_positions_were_shown_survives_a_crash_before_progress(tables: ViewTables) -> None:
    order = deliveries((1, "a", 4), (2, "a", 5), (2, "b", 6), (3, "a", 6))
    tables.install(rows(position=3), standing(3, 6, 6), order, np.array([2, 3]))
    tables.install(rows(position=4), standing(4, 7, 6), deliveries((4, "a", 7)))
    anew(tables).recover_progress()
    found = anew(tables).progress().select("position", "source", "version", "shown")
    assert found.rows() == [
        (1, "a", 4, False),
        (2, "a", 5, True),
        (2, "b", 6, True),
        (3, "a", 6, True),
        (4, "a", 7, True),
    ]


def test_progress_of_an_older_viewsweep_is_read_and_continued(tables: ViewTables) -> None:
    old = {name: type_ for name, type_ in PROGRESS.items() if name != "shown"}
    install(tables, 1, record=False)
    row = {"position": 1, "source": "a", "version": 4, "skipped": 0, "questions": []}
    path = tables.directory / "progress"
    delta.append(path, pl.DataFrame([row], schema=old), {"viewsweep/position": 1})
    assert anew(tables).progress()["shown"].to_list() == [True]
    again = anew(tables)
    again.install(rows(position=2), standing(2, 5, 5), deliveries((2, "a", 5)), np.array([], int))
    again.record(delivered((2, "a", 5), shown=False))
    assert anew(tables).progress()["shown"].to_list() == [True, False]


# ---------------------------------------------------------------------------------- current


def test_current_follows_with_nulls_and_duplicates(tables: ViewTables) -> None:
    tables.follow()
    assert current(tables) == {("p", 1.0, 2), (None, None, 1)}
    install(tables, 1, ("p", 1.0, -1), (None, None, 2), ("q", None, 1))
    tables.follow()
    assert current(tables) == {("p", 1.0, 1), (None, None, 3), ("q", None, 1)}
    install(tables, 2, ("p", 1.0, -1), (None, None, -3), ("q", None, 1))
    install(tables, 3, ("q", None, -2), ("p", None, 1))
    tables.follow()
    tables.follow()
    assert current(tables) == {("p", None, 1)}


@pytest.mark.parametrize(
    "changes", [[()], [(("q", 2.0, 1),), (("q", 2.0, -1),)]], ids=["none", "there and back"]
)
@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("first", [[("p", 1.0, 2)], []], ids=["rows", "empty"])
def test_current_follows_where_nothing_is_left_of_the_changes(
    tmp_path: Path, first: list[Row], changes: list[tuple[Row, ...]], folds: bool
) -> None:
    """`current` must show its new position to readers, although its MERGE would be empty."""
    tables = ViewTables(tmp_path, view())
    tables.define()
    tables.begin(rows(*first), standing(0, 3, 5))
    tables.follow()
    for position, rows_ in enumerate(changes, 1):
        install(tables, position, *rows_)
    if folds:
        tables.fold(len(changes))
    tables.follow()
    followed = DeltaTable(tables.directory / "current")
    assert followed.transaction_version("viewsweep/position") == len(changes)
    assert current(tables) == set(first)
    install(tables, len(changes) + 1, ("q", 2.0, 1))
    tables.follow()
    assert current(tables) == {*first, ("q", 2.0, 1)}


def test_a_reader_is_told_how_far_current_has_followed(tables: ViewTables) -> None:
    assert anew(tables).followed() is None
    tables.follow()
    install(tables, 1, ("q", 2.0, 1))
    assert anew(tables).followed() == 0
    tables.follow()
    assert anew(tables).followed() == 1


def test_another_process_lets_current_follow_from_where_it_stands(tables: ViewTables) -> None:
    tables.follow()
    install(tables, 1, ("q", 2.0, 1))
    install(anew(tables), 2, ("q", 2.0, 1))
    after = anew(tables)
    after.follow()
    assert current(after) == {("p", 1.0, 2), (None, None, 1), ("q", 2.0, 2)}


def test_current_is_rebuilt_when_its_directory_is_gone(tables: ViewTables) -> None:
    tables.follow()
    install(tables, 1, ("q", 2.0, 1))
    shutil.rmtree(tables.directory / "current")
    after = anew(tables)
    after.follow()
    assert current(after) == {("p", 1.0, 2), (None, None, 1), ("q", 2.0, 1)}


VALUES = st.tuples(st.sampled_from(["p", "q", None]), st.sampled_from([0.0, 1.5, None]))


@settings(deadline=None, max_examples=8)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=4), max_size=4))
def test_current_is_always_the_sum_of_the_changes(batches: list[list[tuple[Any, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        tables = made(Path(directory))
        for position, batch in enumerate(batches, 1):
            before = {row[:2]: row[2] for row in held(tables.at(position - 1))}
            # Existing rows are deleted, missing ones inserted.
            changes = [(*row, -before[row] if row in before else 1) for row in dict.fromkeys(batch)]
            install(tables, position, *changes, record=False)
            tables.follow()
            assert current(tables) == held(tables.at(position))


# ------------------------------------------------------------------- not ours, or no more so


@pytest.mark.usefixtures("tables")
def test_a_view_with_other_sql_is_refused_and_other_spaces_are_not(
    tmp_path: Path,
) -> None:
    assert ViewTables(tmp_path, view(SQL.replace(" FROM", "\n  FROM"))).exists
    with pytest.raises(WrongUse, match=r"holds a view with different SQL: .* another name"):
        ViewTables(tmp_path, view(SQL + " WHERE s.y > 1"))


@pytest.mark.usefixtures("tables")
def test_a_view_with_a_comment_more_is_the_same_view(tmp_path: Path) -> None:
    text = (
        "-- who has what\nselect r.t, /* how much */ s.y FROM a.r AS r JOIN b.s s ON r.id=s.id -- x"
    )
    assert ViewTables(tmp_path, view(text)).exists


def test_of_other_sql_the_difference_is_shown(tmp_path: Path) -> None:
    for number, (before, now, shown) in enumerate(
        [
            ("WHERE s.y > 1", "WHERE s.y > 2", r"it has 's.y > 1' where the new one has 's.y > 2'"),
            ("", "WHERE s.y > 2", r"it has '.*' where the new one has '.*WHERE s.y > 2'"),
        ]
    ):
        root = tmp_path / str(number)
        tables = ViewTables(root, view(f"{SQL} {before}"))
        tables.define()
        tables.begin(rows(), standing(0, 3, 5))
        with pytest.raises(WrongUse, match=shown):
            ViewTables(root, view(f"{SQL} {now}"))


@pytest.mark.usefixtures("tables")
def test_a_relation_with_another_schema_is_refused(tmp_path: Path) -> None:
    wider = Relation("a", "r", (*R.columns, ("u", column_type("DATE"))), R.key)
    with pytest.raises(WrongUse, match=r"relation a.r had the schema .* and has .*DATE.* now"):
        ViewTables(tmp_path, view(SQL, wider, S))


@pytest.mark.usefixtures("tables")
def test_a_relation_with_another_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"relation a.r had the schema"):
        ViewTables(tmp_path, view(SQL, Relation("a", "r", R.columns), S))


@pytest.mark.usefixtures("tables")
def test_a_relation_of_which_more_keys_are_declared_is_the_same(tmp_path: Path) -> None:
    more = replace(R, further_keys=(("t",),), references=(Reference(("id",), "b.s", ("id",)),))
    assert ViewTables(tmp_path, view(SQL, more, S)).exists
    assert definition_of(view(SQL, more, S)) == definition_of(view())


@pytest.mark.usefixtures("tables")
def test_a_relation_that_the_view_does_not_use_may_change(
    tmp_path: Path,
) -> None:
    assert ViewTables(tmp_path, view(SQL, R, S, Relation("a", "other", R.columns))).exists


def test_the_stored_view_is_read_back(tables: ViewTables, tmp_path: Path) -> None:
    assert stored_view(tables.directory) == view()
    with pytest.raises(WrongUse, match="there is no view in"):
        stored_view(tmp_path / "w")


def test_delta_tables_of_somebody_else_are_refused(tmp_path: Path) -> None:
    rows(("p", 1.0, 1)).write_delta(str(tmp_path / "v/changes"))
    with pytest.raises(WrongUse, match="holds Delta tables, but not those of a viewsweep view"):
        ViewTables(tmp_path, view())


def test_a_changes_table_written_by_somebody_else_is_refused(tables: ViewTables) -> None:
    shutil.rmtree(tables.directory / "changes")
    rows(("p", 1.0, 1)).write_delta(str(tables.directory / "changes"))
    with pytest.raises(WrongUse, match="was not written by viewsweep: it lacks"):
        anew(tables).standing()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"[]", "another version of viewsweep"),
        (b'{"format":2}', "another version of viewsweep"),
        (b'{"format":1}', "is damaged"),
        (b'{"format":1,"view":"v","sql":7,"sources":{}}', "is damaged"),
        (b'{"format":1,"view":"v","sql":"SELECT 1","sources":[]}', "is damaged"),
    ],
)
def test_a_damaged_definition_is_named(tables: ViewTables, content: bytes, complaint: str) -> None:
    file = tables.directory / "view.json"
    file.write_bytes(content)
    with pytest.raises(WrongUse) as refused:
        anew(tables)
    assert str(file) in str(refused.value)
    assert complaint in str(refused.value)


def test_a_damaged_log_is_named(tables: ViewTables) -> None:
    log_files(tables)[-1].write_text("{")
    with pytest.raises(ViewsweepError, match=r"v/changes") as broke:
        anew(tables)
    assert "\n" not in str(broke.value)


@pytest.mark.parametrize("damage", ["gone", "overwritten"])
def test_a_damaged_data_file_is_named(tables: ViewTables, damage: str) -> None:
    for file in (tables.directory / "changes").glob("*.parquet"):
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(bytes(file.stat().st_size))
    read = anew(tables)
    for reading in (read.rows, lambda: read.at(0), read.follow):
        with pytest.raises(ViewsweepError, match=r"v/changes") as broke:
            reading()
        assert "\n" not in str(broke.value)


def test_whole_numbers_are_packed_and_come_back_whatever_they_are(tmp_path: Path) -> None:
    numbers = [0, -1, 2**63 - 1, -(2**63), None, 7]
    types = {"n": pl.Int64, "a.b": pl.Int64, "t": pl.String}
    rows = pl.DataFrame({"n": numbers, "a.b": numbers, "t": list("xyzxyz")}, types)
    delta.append(tmp_path / "t", rows, {"number": 1})
    [file] = (tmp_path / "t").glob("*.parquet")
    columns = pq.read_metadata(file).row_group(0).to_dict()["columns"]
    packed = {c["path_in_schema"] for c in columns if "DELTA_BINARY_PACKED" in c["encodings"]}
    assert packed == {"n", "a.b"}
    assert pl.read_delta(tmp_path / "t").rows() == rows.rows()
    with duckdb.connect() as database:
        found = database.execute(f"FROM read_parquet('{file}')").fetchall()
    assert found == rows.rows()


@pytest.mark.usefixtures("tables")
def test_the_same_text_in_another_dialect_is_another_view(tmp_path: Path) -> None:
    other = replace(view(SQL), dialect="postgres")
    with pytest.raises(WrongUse, match="holds the view in the dialect of all databases"):
        ViewTables(tmp_path, other)


def test_a_stored_view_has_its_dialect(tmp_path: Path) -> None:
    directory = tmp_path / "v"
    directory.mkdir()
    write_definition(directory, replace(view(SQL), dialect="duckdb"))
    assert stored_view(directory).dialect == "duckdb"
