"""A workload at its rate: no transaction is lost or delayed, however commits group them."""

import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import duckdb
import pytest

from protocols.views.catalog import catalog_from_json
from sources.simulated.database import SourceDatabase
from sources.simulated.drive import Drive, WorkloadDriver
from sources.transaction import RowChange, Transaction

CATALOG = catalog_from_json({"a": {"relations": {"r": {"columns": {"n": "BIGINT"}}}}})


class Watched(SourceDatabase):
    """Remembers the sizes of the groups that it committed."""

    groups: list[int]

    def commit_many(self, transactions: Sequence[Transaction], *, driven: bool = False) -> int:
        self.groups.append(len(transactions))
        return super().commit_many(transactions, driven=driven)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Watched]:
    SourceDatabase.create(tmp_path / "a.db", "a", CATALOG, {}).close()
    connection = duckdb.connect(str(tmp_path / "a.db"))
    opened = Watched(tmp_path / "a.db", connection)
    opened.groups = []
    with opened:
        yield opened


def rows() -> Iterator[Transaction]:
    return (Transaction((RowChange("r", (n,), 1),)) for n in count())


def test_a_fast_workload_is_committed_in_few_groups_and_in_order(database: Watched) -> None:
    begun = time.monotonic()
    driver = WorkloadDriver(database, Drive(rows(), rate=1000, total=500))
    driver.start()
    assert database.wait_beyond(499, 60)
    elapsed = time.monotonic() - begun
    driver.stop()
    assert driver.error is None
    assert sum(database.groups) == database.version == database.driven == 500
    # The first group is due at once, and the last may be incomplete.
    assert len(database.groups) <= elapsed / 0.05 + 2
    with database.snapshot() as (cursor, _):
        stored = cursor.execute("SELECT n FROM relations.r ORDER BY rowid").fetchall()
    assert stored == [(n,) for n in range(500)]


def test_what_a_workload_owes_grows_with_time_not_with_its_commits(database: Watched) -> None:
    driver = WorkloadDriver(database, Drive(rows(), rate=200))
    begun = time.monotonic()
    driver.start()
    assert database.wait_beyond(100, 60)
    driver.stop()
    assert database.version <= (time.monotonic() - begun) * 200 + 1
