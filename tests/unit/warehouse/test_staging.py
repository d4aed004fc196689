"""The pages of a first state: continued if possible, otherwise dropped and read again."""

import datetime
import decimal
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from protocols.algebra.types import column_type
from protocols.errors import SourceViolation, ViewsweepError
from tests.harness.stored import SQL, Row, held, rows, standing, view
from warehouse import delta
from warehouse.definition import read_definition
from warehouse.mending import mend
from warehouse.staging import Staging, staging_of
from warehouse.standing import Standing
from warehouse.tables import ViewTables

KEY = (column_type("BIGINT"),)
P: Row = ("p", 1.0, 1)


def nothing(_: Standing) -> None:
    """Accepts any standing."""


@pytest.fixture
def tables(tmp_path: Path) -> ViewTables:
    """The tables of a view without a first state yet."""
    tables = ViewTables(tmp_path, view())
    tables.define()
    return tables


def begun(tables: ViewTables) -> Staging:
    """A staging with one page."""
    staging = Staging(tables, KEY)
    staging.begin(standing(0, 3, 5))
    staging.add(rows(P), (1,))
    return staging


def taken_up(tables: ViewTables) -> tuple[Staging, str]:
    """The staging that the next job finds, and its messages."""
    said: list[str] = []
    return staging_of(tables, KEY, nothing, said.append), "\n".join(said)


def test_the_first_state_goes_on_behind_the_last_page(tables: ViewTables) -> None:
    key = (column_type("BIGINT"), column_type("DECIMAL(5,2)"), column_type("DATE"))
    last = (7, decimal.Decimal("1.50"), datetime.date(2024, 2, 29))
    first = Staging(tables, key)
    first.begin(standing(0, 3, 5))
    first.add(rows(P), last)
    second = staging_of(tables, key, nothing, pytest.fail)
    assert (second.last_key, second.finished, second.rows) == (last, False, 1)
    assert second.standing == standing(0, 3, 5)
    second.add(None, last)
    second.add(rows(P, ("q", None, 1)), None)
    third = staging_of(tables, key, nothing, pytest.fail)
    assert third.finished
    assert not tables.exists
    third.finish()
    assert held(tables.at(0)) == {("p", 1.0, 2), ("q", None, 1)}
    assert tables.standing() == standing(0, 3, 5)
    assert not (tables.directory / "first_state").exists()


def test_nothing_is_kept_before_the_first_page(tables: ViewTables) -> None:
    Staging(tables, KEY).begin(standing(0, 3, 5))
    assert taken_up(tables)[0].standing is None


def test_a_vector_without_pages_that_an_earlier_version_kept_is_dropped(tables: ViewTables) -> None:
    note = {"viewsweep": '{"last_key":null,"finished":false}'}
    place = tables.directory / "first_state"
    delta.append(place, rows(), standing(0, 999, 5).numbers(), note)
    staging, said = taken_up(tables)
    assert staging.standing is None
    assert "read again" in said
    assert "no page yet" in said
    assert not place.exists()


def test_pages_that_the_sources_have_left_behind_are_dropped(tables: ViewTables) -> None:
    begun(tables)

    def refuse(found: Standing) -> None:
        assert found == standing(0, 3, 5)
        raise SourceViolation("source a was reset. Remove the view's directory")

    said: list[str] = []
    assert staging_of(tables, KEY, refuse, said.append).standing is None
    assert said == [
        "view v: its first state was interrupted and cannot be continued, so it is read again:"
        " source a was reset"
    ]


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("damage", [cut_short, Path.unlink, lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize("which", ["*.parquet", "_delta_log/*.json"])
def test_damaged_pages_are_dropped(
    tables: ViewTables, damage: Callable[[Path], object], which: str
) -> None:
    begun(tables).add(rows(P), (2,))
    damage(sorted((tables.directory / "first_state").glob(which))[-1])
    staging, said = taken_up(tables)
    if staging.standing is None:
        assert "read again" in said
    else:
        assert (staging.rows, staging.last_key) == (1, (1,)), "a lost commit is a lost page"


@pytest.mark.parametrize("note", ["{", "{}", '{"last_key":[],"finished":0}'])
def test_a_damaged_note_is_no_place_to_go_on(tables: ViewTables, note: str) -> None:
    begun(tables)
    [file] = (tables.directory / "first_state/_delta_log").glob("*.json")
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["viewsweep"] = note
    file.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    staging, said = taken_up(tables)
    assert staging.standing is None
    assert "first_state is damaged" in said


# ------------------------------------------------------------------------------- another view


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"format":2}'])
def test_before_the_first_state_the_definition_binds_nobody(
    tables: ViewTables, tmp_path: Path, content: bytes | None
) -> None:
    begun(tables)
    if content is not None:
        (tables.directory / "view.json").write_bytes(content)
    other = view(SQL + " WHERE s.y > 1")
    mend(tmp_path, other, pytest.fail)
    edited = ViewTables(tmp_path, other)
    staging, said = taken_up(edited)
    assert staging.standing is None
    assert "read again" in said
    edited.define()
    stored = read_definition(edited.directory)
    assert stored is not None
    assert stored["sql"] == other.sql


# ------------------------------------------------------------------------------- two at once


def test_of_two_jobs_that_go_on_with_a_first_state_one_is_fenced(tables: ViewTables) -> None:
    begun(tables)
    one, other = taken_up(tables)[0], taken_up(tables)[0]
    one.add(rows(P), (2,))
    with pytest.raises(ViewsweepError, match="another job"):
        other.add(rows(P), (2,))
    assert taken_up(tables)[0].rows == 2


def test_of_two_jobs_that_begin_a_first_state_one_is_fenced(tables: ViewTables) -> None:
    one, other = taken_up(tables)[0], taken_up(tables)[0]
    for each in (one, other):
        each.begin(standing(0, 3, 5))
        ViewTables(tables.directory.parent, tables.view).define()
    one.add(rows(P), (1,))
    with pytest.raises(ViewsweepError, match="another job"):
        other.add(rows(P), (1,))
    assert list(tables.directory.glob("view.json*")) == [tables.directory / "view.json"]


@pytest.mark.parametrize("late", ["page", "end"])
def test_a_job_whose_first_state_another_one_has_finished_is_fenced(
    tables: ViewTables, late: str
) -> None:
    begun(tables).add(rows(P), None)
    one, other = taken_up(tables)[0], taken_up(tables)[0]
    one.finish()
    with pytest.raises(ViewsweepError, match="another job"):
        other.add(rows(P), (2,)) if late == "page" else other.finish()
    assert not (tables.directory / "first_state").exists()
    assert held(tables.at(0)) == {("p", 1.0, 2)}


def test_a_first_state_that_another_job_has_made_stays(tables: ViewTables, tmp_path: Path) -> None:
    staging = begun(tables)
    staging.add(rows(P), None)
    done = ViewTables(tmp_path / "other", view())
    done.define()
    done.begin(rows(("q", 2.0, 1)), standing(0, 3, 5))
    shutil.copytree(done.directory / "changes", tables.directory / "changes")
    with pytest.raises(ViewsweepError, match="another job"):
        staging.finish()
    assert held(ViewTables(tmp_path, view()).at(0)) == {("q", 2.0, 1)}
