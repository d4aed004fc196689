"""The end of the outbox in memory: it gives the records of the outbox, or None."""

from pathlib import Path

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.views.catalog import catalog_from_json
from sources.simulated.database import SourceDatabase
from sources.simulated.recent import RecentRecords
from sources.transaction import RowChange, Transaction

CATALOG = catalog_from_json({"a": {"relations": {"r": {"columns": {"n": "BIGINT"}}}}})
commits = st.lists(st.lists(st.lists(st.binary(min_size=1, max_size=9), min_size=1), max_size=4))


def expected(
    all_records: list[tuple[int, bytes]], after: int, limit: int
) -> list[tuple[int, bytes]]:
    """The records up to the first version that begins beyond the limit."""
    found: list[tuple[int, bytes]] = []
    for version, record in all_records:
        if version <= after:
            continue
        if len(found) >= limit and found[-1][0] != version:
            break
        found.append((version, record))
    return found


@settings(deadline=None)
@given(before=st.integers(0, 5), groups=commits, kept=st.integers(0, 60), limit=st.integers(1, 12))
def test_what_is_in_memory_is_what_was_committed_or_none(
    before: int, groups: list[list[list[bytes]]], kept: int, limit: int
) -> None:
    recent, version, everything = RecentRecords(kept), before, list[tuple[int, bytes]]()
    for group in groups:
        recent.extend(version, group)
        for records in group:
            version += 1
            everything += [(version, record) for record in records]
    known = [recent.after(after, limit) for after in range(version + 1)]
    for after, found in enumerate(known):
        assert found is None or found == expected(everything, after, limit)
    there = [found is not None for found in known]
    assert there == sorted(there), "what is forgotten is the older part"
    if groups:
        assert there[-1], "who is up to date always finds what comes next here"
        first = there.index(True)
        size = sum(len(record) for number, record in everything if number > first)
        assert size <= kept


def test_the_outbox_is_the_same_from_memory_and_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with SourceDatabase.create(path, "a", CATALOG, {}) as database:
        for n in range(20):
            many = tuple(RowChange("r", (100 * n + m,), 1) for m in range(n % 4))
            database.commit_many([Transaction(many), Transaction((RowChange("r", (n,), 1),))])
        places = [(after, limit) for after in range(database.version + 1) for limit in (1, 3, 99)]
        remembered = [database.outbox(*place) for place in places]
    with SourceDatabase.open(path) as database:
        assert [database.outbox(*place) for place in places] == remembered
    with duckdb.connect(str(path)) as plain:
        stored = plain.execute("SELECT * FROM source.outbox ORDER BY version, rowid").fetchall()
    assert remembered == [
        [entry for entry in stored if entry[0] > after][:limit] for after, limit in places
    ]
