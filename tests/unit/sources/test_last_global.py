"""A source reports which of its commits was its last part of a global transaction."""

from pathlib import Path

import duckdb
import pytest

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import catalog_from_json
from sources.simulated.admission import TransactionRefused
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import status_of
from sources.transaction import RowChange, Transaction

CATALOG = catalog_from_json(
    {"a": {"relations": {"r": {"columns": {"id": "BIGINT", "x": "VARCHAR"}, "key": ["id"]}}}}
)
G = GlobalPart("g", frozenset("ab"))


def row(id_: int, x: str = "x", part: GlobalPart | None = None) -> Transaction:
    return Transaction((RowChange("r", (id_, x), 1),), part)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A source whose versions 1 and 3 are parts, and whose versions 2 and 4 look like parts."""
    with SourceDatabase.create(tmp_path / "a.db", "a", CATALOG, {}) as database:
        assert status_of(database)["last_global"] == 0
        seen = []
        for each in (
            [row(1, part=G)],
            [row(2, '"global":'), row(3, part=G)],
            [row(4, '"global":{"id":"g"}')],
        ):
            database.commit_many(each)
            seen.append(status_of(database)["last_global"])
        assert seen == [1, 3, 3]
    return tmp_path / "a.db"


def last_global(path: Path) -> int:
    with SourceDatabase.open(path) as database:
        return database.last_global


def test_it_outlives_the_process(path: Path) -> None:
    assert last_global(path) == 3


def test_nothing_empty_and_nothing_refused_counts(path: Path) -> None:
    with SourceDatabase.open(path) as database:
        nothing = Transaction(())
        assert database.commit_many([nothing, row(5), nothing, row(6, part=G)]) == 6
        assert database.last_global == 6
        with pytest.raises(TransactionRefused):
            database.commit_many([row(7, part=G), row(1, part=G)])
        assert database.last_global == 6
    assert last_global(path) == 6


def test_a_file_of_the_format_before_finds_it_in_its_outbox(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE source.globals")
        connection.execute("UPDATE source.self SET format = 2")
    assert last_global(path) == 3
    assert last_global(path) == 3
