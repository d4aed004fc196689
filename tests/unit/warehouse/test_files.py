"""Changes written by other processes become visible with the job's commit, or never."""

import datetime
import decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.types import column_type
from protocols.errors import Unreachable, ViewsweepError
from protocols.views.catalog import Catalog, Relation
from protocols.views.sql import parse_view
from tests.harness.stored import anew, deliveries, held, install, made, rows, standing
from warehouse import files
from warehouse.tables import ViewTables


@pytest.fixture
def tables(tmp_path: Path) -> ViewTables:
    return made(tmp_path)


def written(tables: ViewTables, position: int) -> list[files.WrittenFile]:
    """Two files for a position and the one before."""
    changes = tables.directory / "changes"
    return [
        files.write(changes, rows(("p", 1.0, -1), (None, None, 2), position=position - 1)),
        files.write(changes, rows(("q", None, 1), position=position)),
    ]


def install_files(
    tables: ViewTables, found: list[files.WrittenFile], *here: tuple[str, float, int]
) -> None:
    order = deliveries((1, "a", 4), (2, "a", 5))
    tables.install(rows(*here, position=2), standing(2, 5, 5), order, written=found)


def test_written_files_are_seen_with_the_commit_and_not_before(tables: ViewTables) -> None:
    found = written(tables, 2)
    assert held(anew(tables).changes().collect()) == {("p", 1.0, 2), (None, None, 1)}
    install_files(tables, found, ("r", 3.0, 1))
    assert [file.growth for file in found] == [1, 1]
    read = anew(tables)
    assert read.standing() == standing(2, 5, 5)
    assert held(read.at(1)) == {("p", 1.0, 1), (None, None, 3)}
    assert held(read.at(2)) == {("p", 1.0, 1), (None, None, 3), ("q", None, 1), ("r", 3.0, 1)}


def test_the_next_commit_follows_and_the_order_is_in_the_log(tables: ViewTables) -> None:
    install_files(tables, written(tables, 2))
    tables.recover_progress()
    install(tables, 3, ("s", 1.0, 1))
    tables.follow()
    again = anew(tables)
    assert again.progress()["version"].to_list() == [4, 5, 6]
    assert held(again.at(3)) == held(pl.read_delta(str(tables.directory / "current")))


def test_a_second_writer_is_fenced(tables: ViewTables) -> None:
    other = anew(tables)
    install(tables, 1, ("q", 2.0, 1))
    with pytest.raises(ViewsweepError, match="another job has committed to this view meanwhile"):
        install_files(other, written(other, 2))
    assert anew(tables).standing() == standing(1, 4, 5)


def test_a_fold_that_comes_between_does_not_matter(tables: ViewTables) -> None:
    install(tables, 1, ("q", 2.0, 1))
    found = [files.write(tables.directory / "changes", rows(("s", 1.0, 1), position=2))]
    anew(tables).fold(1)
    tables.install(rows(position=2), standing(2, 5, 5), deliveries((2, "a", 5)), written=found)
    assert held(anew(tables).at(2)) == {
        ("p", 1.0, 2), ("q", 2.0, 1), (None, None, 1), ("s", 1.0, 1)
    }  # fmt: skip


def test_a_file_that_is_gone_is_named_and_nothing_is_committed(tables: ViewTables) -> None:
    found = written(tables, 2)
    (tables.directory / "changes" / found[1].name).unlink()
    with pytest.raises(Unreachable, match=r"part-.* is gone.*for positions 2 to 2"):
        install_files(tables, found)
    assert anew(tables).standing() == standing(0, 3, 5)


def test_readers_skip_files_by_their_positions(tables: ViewTables) -> None:
    install_files(tables, written(tables, 2))
    found = pl.DataFrame(DeltaTable(tables.directory / "changes").get_add_actions(flatten=True))
    spans = found.select(f"min.{POSITION}", f"max.{POSITION}", "num_records")
    assert {(1, 1, 2), (2, 2, 1)} <= set(spans.rows())


VALUES = {
    "BIGINT": 7,
    "DOUBLE": 0.5,
    "DECIMAL(12,2)": decimal.Decimal("12.30"),
    "VARCHAR": "é",
    "BOOLEAN": True,
    "DATE": datetime.date(2026, 2, 3),
    "TIMESTAMP": datetime.datetime(2026, 2, 3, 4, 5, 6, 7),
}


def test_every_type_is_read_back_by_polars_and_duckdb(tmp_path: Path) -> None:
    types = {f"c{n}": column_type(name) for n, name in enumerate(VALUES)}
    catalog = Catalog((Relation("a", "r", tuple(types.items())),))
    tables = ViewTables(tmp_path, parse_view("v", f"SELECT {', '.join(types)} FROM a.r", catalog))
    schema = {name: type_.dtype for name, type_ in types.items()} | {COUNT: pl.Int64()}
    full, nulls = (*VALUES.values(), 1), (*[None] * len(VALUES), 1)
    tables.define()
    tables.begin(pl.DataFrame([full], schema, orient="row"), standing(0, 3, 5))
    changes = pl.DataFrame([(*full, 1), (*nulls, 1)], schema | {POSITION: pl.Int64()}, orient="row")
    directory = tables.directory / "changes"
    found = [files.write(directory, changes)]
    order = deliveries((1, "a", 4))
    tables.install(changes.clear(), standing(1, 4, 5), order, written=found)
    assert set(pl.read_delta(str(directory)).rows()) == {(*full, 0), (*full, 1), (*nulls, 1)}
    read = duckdb.read_parquet([str(uri) for uri in DeltaTable(directory).file_uris()])
    assert set(read.fetchall()) == {(*full, 0), (*full, 1), (*nulls, 1)}
