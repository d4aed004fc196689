"""A start with damaged tables: they agree again, losses are named, and nothing is guessed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from protocols.errors import Unreachable, WrongUse
from tests.harness.stored import (
    Row,
    anew,
    current,
    held,
    install,
    log_files,
    made,
    order,
    rows,
    standing,
)
from warehouse import delta
from warehouse.mending import mend
from warehouse.tables import ViewTables
from warehouse.upkeep import tidy

Damage = Callable[[Path], object]
Q: Row = ("q", 2.0, 1)


@pytest.fixture
def tables(tmp_path: Path) -> ViewTables:
    """Tables at position 3, with `progress` and `current` up to date."""
    tables = made(tmp_path)
    for position in (1, 2, 3):
        install(tables, position, Q)
    tables.follow()
    return tables


def start(tables: ViewTables) -> tuple[ViewTables, str]:
    """Starts a job on the tables; returns them and all its messages."""
    said: list[str] = []
    mend(tables.directory.parent, tables.view, said.append)
    after = ViewTables(tables.directory.parent, tables.view, said.append)
    if after.exists:
        after.recover_progress()
        after.follow()
    return after, "\n".join(said)


def assert_agreed(tables: ViewTables, position: int) -> None:
    """Checks that another process finds all three at this position and can continue them."""
    for last in (position, position + 1):
        read = anew(tables)
        assert read.standing() == standing(last, 3 + last, 5)
        assert order(read) == [(k, "a", 3 + k) for k in range(1, last + 1)]
        recorded = DeltaTable(read.directory / "progress")
        assert recorded.transaction_version("viewsweep/position") == last
        assert read.followed() == last
        assert current(read) == held(read.at(last))
        if last == position:
            install(read, last + 1, Q)
            read.follow()


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


TORN: list[Damage] = [Path.unlink, emptied, cut_short, zeroed]


def data_files(tables: ViewTables, name: str) -> list[Path]:
    return sorted((tables.directory / name).glob("*.parquet"))


# ------------------------------------------------------------------------- changes is the truth


@pytest.mark.parametrize("damage", TORN)
def test_when_changes_has_lost_its_last_commit_the_others_go_back(
    tables: ViewTables, damage: Damage
) -> None:
    damage(log_files(tables)[-1])
    after, said = start(tables)
    assert_agreed(after, 2)
    assert "changes has lost its commits after position 2, progress goes up to 3" in said
    assert "current is at position 3 and changes at 2: current is recreated" in said


def test_when_changes_has_lost_several_commits_all_of_them_are_taken_back(
    tables: ViewTables,
) -> None:
    for entry in log_files(tables)[-2:]:
        emptied(entry)
    after, said = start(tables)
    assert_agreed(after, 1)
    assert said.count("is empty: treated as never committed") == 2


def test_the_other_tables_go_back_also_when_their_last_commits_are_lost(
    tables: ViewTables,
) -> None:
    for name in ("changes", "progress", "current"):
        emptied(log_files(tables, name)[-1])
    after, _ = start(tables)
    assert_agreed(after, 2)


def test_a_commit_cut_short_in_the_middle_is_not_guessed(tables: ViewTables) -> None:
    cut_short(log_files(tables)[1])
    with pytest.raises(Unreachable, match=r"v/changes cannot be read.*Restore it"):
        start(tables)


def test_when_changes_is_gone_nothing_of_the_others_stays_in_the_way(tables: ViewTables) -> None:
    shutil.rmtree(tables.directory / "changes")
    after, said = start(tables)
    assert not after.exists
    assert "changes is gone, so the view is recreated" in said
    after.begin(rows(("z", 1.0, 1)), standing(0, 6, 5))
    after.follow()
    assert order(anew(after)) == []
    assert current(after) == {("z", 1.0, 1)}
    assert (tables.directory / "progress.aside").exists()


@pytest.mark.parametrize("damage", [Path.unlink, emptied, cut_short, zeroed])
def test_a_damaged_file_of_changes_is_named_before_anything_reads_it(
    tables: ViewTables, damage: Damage
) -> None:
    file = data_files(tables, "changes")[0]
    damage(file)
    with pytest.raises(Unreachable, match=r"Restore it, or remove the view's directory") as broke:
        start(tables)
    assert str(file) in str(broke.value)
    for read in (anew(tables).rows, lambda: anew(tables).at(1), anew(tables).changes):
        with pytest.raises(Unreachable, match=file.name):
            read()


# ------------------------------------------------------------------ tables derived from changes


@pytest.mark.parametrize("name", ["progress", "current"])
@pytest.mark.parametrize("damage", TORN)
def test_a_lost_commit_of_a_derived_table_is_made_again(
    tables: ViewTables, name: str, damage: Damage
) -> None:
    damage(log_files(tables, name)[-1])
    after, _ = start(tables)
    assert_agreed(after, 3)


@pytest.mark.parametrize("name", ["progress", "current"])
@pytest.mark.parametrize("damage", TORN)
def test_a_derived_table_with_damaged_files_is_made_anew(
    tables: ViewTables, name: str, damage: Damage
) -> None:
    file = data_files(tables, name)[0]
    damage(file)
    after, said = start(tables)
    assert_agreed(after, 3)
    assert str(file) in said
    assert f"{name} is recreated from changes" in said


@pytest.mark.parametrize("name", ["progress", "current"])
def test_a_derived_table_with_a_damaged_log_is_made_anew(tables: ViewTables, name: str) -> None:
    install(tables, 4, Q)
    tables.follow()
    cut_short(log_files(tables, name)[0])
    after, said = start(tables)
    assert_agreed(after, 4)
    assert f"v/{name} cannot be read" in said


@pytest.mark.parametrize("name", ["progress", "current"])
def test_a_derived_table_that_was_deleted_is_made_anew(tables: ViewTables, name: str) -> None:
    shutil.rmtree(tables.directory / name)
    after, _ = start(tables)
    assert_agreed(after, 3)


def test_progress_whose_order_the_log_has_lost_stays_and_is_named(tables: ViewTables) -> None:
    entry = log_files(tables)[1]
    entry.write_bytes(entry.read_bytes().replace(b"viewsweep/order", b"viewsweep/other"))
    file = data_files(tables, "progress")[0]
    cut_short(file)
    after, said = start(tables)
    assert f"{file} has" in said
    assert "restore the file to have its trace" in said
    assert after.followed() == 3
    with pytest.raises(Unreachable, match=file.name):
        after.progress()


# ------------------------------------------------------------------------------ under a running job


@pytest.mark.parametrize("damage", [*TORN, None])
def test_current_that_is_damaged_under_a_running_job_is_made_anew(
    tables: ViewTables, damage: Damage | None
) -> None:
    said: list[str] = []
    running = ViewTables(tables.directory.parent, tables.view, said.append)
    if damage is None:
        shutil.rmtree(tables.directory / "current")
    else:
        damage(data_files(tables, "current")[0])
    install(running, 4, Q)
    running.follow()
    assert "current is recreated from changes" in "\n".join(said)
    assert_agreed(running, 4)


def test_current_with_a_file_that_only_its_reader_finds_damaged_is_written_anew(
    tables: ViewTables,
) -> None:
    said: list[str] = []
    running = ViewTables(tables.directory.parent, tables.view, said.append)
    for file in data_files(tables, "current"):
        content = file.read_bytes()
        file.write_bytes(content[:4] + bytes(len(content) - 8) + content[-4:])
    install(running, 4, Q)
    running.follow()
    assert "current was written again from changes" in "\n".join(said)
    assert_agreed(running, 4)


@pytest.mark.parametrize("name", ["changes", "progress"])
def test_a_table_that_is_removed_under_a_running_job_is_named(
    tables: ViewTables, name: str
) -> None:
    shutil.rmtree(tables.directory / name)
    with pytest.raises(Unreachable, match=rf"v/{name} was removed while the job ran"):
        install(tables, 4, Q)


def test_a_second_job_mends_nothing_that_the_first_one_is_writing(tables: ViewTables) -> None:
    """It opens `changes`, then the first commits once more, and `progress` seems to be ahead."""
    second, said = start(tables)
    late = ViewTables(tables.directory.parent, tables.view)
    install(tables, 4, Q)
    tables.follow()
    now = anew(tables)
    late._progress.table, late._current.table = now._progress.table, now._current.table
    late.recover_progress()
    late.follow()
    assert said == ""
    assert_agreed(second, 4)


# ---------------------------------------------------------------------------- the log summed up


def summed_up(tables: ViewTables) -> None:
    """Gives each log a checkpoint, and a commit after it."""
    for name in ("changes", "progress", "current"):
        DeltaTable(tables.directory / name).create_checkpoint()
    install(tables, 4, Q)
    tables.follow()


@pytest.mark.parametrize("name", ["changes", "progress", "current"])
@pytest.mark.parametrize("damage", TORN)
@pytest.mark.parametrize("which", ["*.checkpoint.parquet", "_last_checkpoint"])
def test_a_damaged_checkpoint_is_done_without_while_the_commits_say_the_same(
    tables: ViewTables, name: str, damage: Damage, which: str
) -> None:
    summed_up(tables)
    [file] = (tables.directory / name / "_delta_log").glob(which)
    damage(file)
    after, _ = start(tables)
    tidy(after)
    assert_agreed(after, 4)


def test_a_damaged_checkpoint_that_is_needed_is_not_done_without(tables: ViewTables) -> None:
    summed_up(tables)
    log = tables.directory / "changes/_delta_log"
    for entry in log_files(tables)[:2]:
        entry.unlink()
    [file] = log.glob("*.checkpoint.parquet")
    cut_short(file)
    with pytest.raises(Unreachable, match=r"v/changes cannot be read.*Restore it"):
        start(tables)
    assert file.exists()


# ---------------------------------------------------------------------------------------- controls


def test_control_without_mending_the_tables_disagree(tables: ViewTables) -> None:
    emptied(log_files(tables)[-1])
    read = anew(tables)
    assert read.standing().position == 2
    assert read.followed() == 3


def test_healthy_tables_are_only_read(tables: ViewTables) -> None:
    summed_up(tables)

    def state() -> dict[str, int]:
        files = tables.directory.rglob("*")
        return {str(file): file.stat().st_mtime_ns for file in files if file.is_file()}

    before = state()
    _, said = start(tables)
    assert (state(), said) == (before, "")


def test_tables_of_another_view_are_not_touched(tables: ViewTables) -> None:
    emptied(log_files(tables)[-1])
    file = tables.directory / "view.json"
    file.write_bytes(file.read_bytes().replace(b"r.t, s.y", b"s.y, r.t"))
    with pytest.raises(WrongUse, match="holds a view with different SQL"):
        start(tables)
    assert log_files(tables)[-1].read_bytes() == b""


def test_damage_is_looked_for_in_every_file(tables: ViewTables) -> None:
    table = DeltaTable(tables.directory / "changes")
    assert delta.damage(table) is None
    for file in data_files(tables, "changes"):
        content = file.read_bytes()
        cut_short(file)
        assert file.name in str(delta.damage(table))
        file.write_bytes(content)
