"""The tables as an audit reads them: both at one position, whatever the job does meanwhile."""

from pathlib import Path

import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.auditing.audit import Damaged
from protocols.errors import Unreachable, WrongUse
from protocols.operators.keys import ALL, NOBODY, These
from tests.harness.stored import Row, anew, install, made, rows, view
from warehouse.audited import AuditedTables

FIRST: set[Row] = {("p", 1.0, 2), (None, None, 1)}
AT_1: set[Row] = {*FIRST, ("q", 2.0, 1)}


def held(frame: pl.DataFrame) -> set[Row]:
    return set(frame.select("t", "y", COUNT).iter_rows())


def of(tables: AuditedTables) -> dict[str, set[Row]]:
    return {name: held(frame) for name, frame in tables.of(ALL).items()}


def test_current_is_compared_at_the_position_though_it_is_behind_or_ahead(tmp_path: Path) -> None:
    tables = made(tmp_path)
    tables.follow()
    install(tables, 1, ("q", 2.0, 1))
    audited = AuditedTables(tmp_path, view())
    assert audited.standing.position == 1
    assert of(audited) == {"changes": AT_1, "current": AT_1}
    install(tables, 2, ("p", 1.0, -2), ("r", None, 1))
    tables.follow()
    assert tables.followed() == 2
    assert of(audited) == {"changes": AT_1, "current": AT_1}
    assert audited.rows() == 4
    assert set(audited.values(["t"])["t"]) == {"p", None, "q"}


def test_rows_are_found_by_their_values_and_null_is_one(tmp_path: Path) -> None:
    made(tmp_path).follow()
    audited = AuditedTables(tmp_path, view())
    keys = These(rows((None, None, 1), ("z", None, 1)).select("t"))
    assert {name: held(each) for name, each in audited.of(keys).items()} == {
        "changes": {(None, None, 1)},
        "current": {(None, None, 1)},
    }
    assert all(each.is_empty() for each in audited.of(NOBODY).values())


def test_a_view_without_current_is_audited_by_its_changes(tmp_path: Path) -> None:
    made(tmp_path)
    assert of(AuditedTables(tmp_path, view())) == {"changes": FIRST}


def test_a_missing_file_is_damage_and_history_that_was_folded_is_none(tmp_path: Path) -> None:
    tables = made(tmp_path)
    audited = AuditedTables(tmp_path, view())
    install(tables, 1, ("q", 2.0, 1))
    install(tables, 2, ("r", 2.0, 1))
    anew(tables).fold(2)
    with pytest.raises(Unreachable, match="folded beyond position 0 during the audit"):
        audited.rows()
    for file in (tables.directory / "changes").glob("*.parquet"):
        file.unlink()
    with pytest.raises(Damaged, match="is gone"):
        AuditedTables(tmp_path, view()).rows()


def test_a_view_without_a_first_state_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="no first state yet"):
        AuditedTables(tmp_path, view())
