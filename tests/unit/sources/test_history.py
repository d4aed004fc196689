"""The digest of a source's history: which pasts it distinguishes, and where it is compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import polars as pl
import pytest

from protocols.algebra.framelog import FrameLog
from protocols.errors import SourceViolation
from protocols.exchange.mailbox import Mailbox
from protocols.views.catalog import catalog_from_json
from sources.envelope import BadRecord, decode, encode_transaction, head_of
from sources.envelope.feed import Feed
from sources.history import UNKNOWN, CommitHistory
from sources.partitions import Partition
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import status_of
from sources.transaction import RowChange, Transaction

CATALOG = catalog_from_json(
    {"a": {"relations": {"r": {"columns": {"id": "BIGINT", "x": "VARCHAR"}, "key": ["id"]}}}}
)
[R] = CATALOG.relations


def inserted(*ids: int) -> Transaction:
    return Transaction(tuple(RowChange("r", (id_, "x"), 1) for id_ in ids))


def created(path: Path) -> SourceDatabase:
    return SourceDatabase.create(path, "a", CATALOG, {})


def without_history(path: Path) -> None:
    """Turns the file into one from before sources had a history."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE source.history")
        connection.execute("DROP TABLE source.globals")
        connection.execute("ALTER TABLE source.committed DROP COLUMN digest")
        connection.execute("UPDATE source.self SET format = 1")


# --------------------------------------------------------------------------------- the database


def test_each_version_has_a_digest_that_outlives_the_process(tmp_path: Path) -> None:
    with created(tmp_path / "a.db") as database:
        known = {0: database.standing[1]}
        for version in range(1, 6):
            database.commit(inserted(version, 100 + version))
            known[version] = database.standing[1]
    assert len(set(known.values())) == 6
    with SourceDatabase.open(tmp_path / "a.db") as database:
        assert {version: database.digest_at(version) for version in known} == known
        assert database.digest_at(6) == database.digest_at(-1) == UNKNOWN
        histories = status_of(database, versions=[0, 3, 7])["histories"]
        assert {int(v): int(text, 16) for v, text in histories.items()} == {
            0: known[0],
            3: known[3],
        }
        assert [head_of(record) for _, record in database.outbox(0, 100)] == [
            (version, known[version]) for version in range(1, 6) for _ in range(2)
        ]


def test_pasts_part_with_what_is_committed_and_not_with_when(tmp_path: Path) -> None:
    created(tmp_path / "one.db").close()
    (tmp_path / "two.db").write_bytes((tmp_path / "one.db").read_bytes())
    with (
        SourceDatabase.open(tmp_path / "one.db") as one,
        SourceDatabase.open(tmp_path / "two.db") as two,
    ):
        for database in (one, two):
            database.commit_many([inserted(1), inserted(2)])
        assert one.standing == two.standing
        one.commit(inserted(3))
        two.commit(inserted(4))
        for database in (one, two):
            database.commit(inserted(5))
        same = [one.digest_at(v) == two.digest_at(v) for v in range(5)]
    assert same == [True, True, True, False, False]


def test_two_sources_made_alike_have_different_pasts(tmp_path: Path) -> None:
    with created(tmp_path / "one.db") as one, created(tmp_path / "two.db") as two:
        assert one.standing[1] != two.standing[1]
        assert one.identity != two.identity


def test_a_refused_group_is_not_in_the_history(tmp_path: Path) -> None:
    with created(tmp_path / "a.db") as database:
        database.commit(inserted(1))
        before = database.standing
        with pytest.raises(Exception, match="key"):
            database.commit_many([inserted(2), inserted(1)])
        assert database.standing == before


def test_an_old_file_gets_a_history_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with created(path) as database:
        database.commit_many([inserted(1), inserted(2)])
    without_history(path)
    with SourceDatabase.open(path) as database:
        version, begun = database.standing
        assert (version, database.driven) == (2, 0)
        assert database.digest_at(1) == UNKNOWN
        database.commit(inserted(3))
    with SourceDatabase.open(path) as database:
        assert database.digest_at(2) == begun != database.digest_at(3) == database.standing[1]


# ---------------------------------------------------------------------------------- the records


def records(history: CommitHistory, first: int, *versions: Sequence[int]) -> list[bytes]:
    return [
        record
        for version, ids in enumerate(versions, first)
        for record in encode_transaction("a", version, 1, inserted(*ids), CATALOG, history)
    ]


@pytest.mark.parametrize("count", [3, 600])
@pytest.mark.parametrize("spoilt", ["", "12", "g" * 15, "+" + "1" * 14, "\uff11" * 15, 7, "1" * 16])
def test_what_is_no_digest_is_a_bad_record(spoilt: Any, count: int) -> None:
    values = records(CommitHistory(7), 1, *([n] for n in range(count)))
    content = orjson.loads(values[1])
    content["transaction"]["history"] = spoilt
    values[1] = orjson.dumps(content)
    with pytest.raises(BadRecord, match=r"record 1 .*transaction\.history"):
        decode(pl.Series(values, dtype=pl.Binary), [R])


@pytest.mark.parametrize("count", [3, 600])
@pytest.mark.parametrize("mixed", [False, True])
def test_digests_are_read_and_may_be_missing(count: int, mixed: bool) -> None:
    history = CommitHistory(7)
    values = records(history, 1, *([n] for n in range(count)))
    expected = [head_of(value)[1] for value in values]
    if mixed:
        values[1::2] = [
            record
            for version in range(2, count + 1, 2)
            for record in encode_transaction("a", version, 1, inserted(version - 1), CATALOG)
        ]
        expected[1::2] = [UNKNOWN] * len(expected[1::2])
    heads = decode(pl.Series(values, dtype=pl.Binary), [R]).heads
    assert heads["digest"].to_list() == expected


# ------------------------------------------------------------------------------------- the feed


P = Partition("t")


class Fed:
    """A feed whose receiver has version 4, with this digest."""

    def __init__(self, digest: int) -> None:
        self.feed = Feed("a", [R], Mailbox({R: FrameLog()}, {"a": 4}), {P: 0}, digest)
        self._offset = 0

    def take(self, values: list[bytes]) -> None:
        offsets = np.arange(self._offset, self._offset + len(values))
        self._offset += len(values)
        self.feed.take(self.feed.decode(P, offsets, pl.Series(values, dtype=pl.Binary)))

    def is_refused(self, offset: int, *parts: str) -> None:
        fault = str(self.feed.fault)
        assert f"offset {offset}:" in fault
        assert "another past" in fault
        for each in parts:
            assert each in fault


ONE, OTHER = 1234, 4321


@pytest.mark.parametrize("together", [True, False])
def test_a_repetition_of_another_past_is_refused(together: bool) -> None:
    """The publisher of a restored copy sends old versions again, with other content."""
    fed = Fed(ONE)
    good = records(CommitHistory(ONE), 5, [1, 2], [3], [4])
    other = records(CommitHistory(OTHER), 6, [3], [5])
    for values in [[*good, *other]] if together else [good, other]:
        fed.take(values)
    fed.is_refused(4, "version 6")
    assert fed.feed._receiver.received("a") == 7


def test_the_version_that_the_view_stands_at_is_compared_too() -> None:
    history = CommitHistory(ONE)
    fed = Fed(ONE)
    [standing] = encode_transaction("a", 4, 1, inserted(0), CATALOG, history)
    fed.take([standing])
    fed.is_refused(0, "version 4")


@pytest.mark.parametrize("edge", [1, 2])
def test_records_of_two_pasts_do_not_make_one_transaction(edge: int) -> None:
    fed = Fed(ONE)
    [first, _] = records(CommitHistory(ONE), 5, [1, 2])
    [_, second] = records(CommitHistory(OTHER), 5, [1, 2])
    values = [first, second]
    fed.take(values[:edge])
    fed.take(values[edge:] or records(CommitHistory(ONE), 6, [3]))
    fed.is_refused(1, "version 5")
    assert fed.feed._receiver.received("a") == 4


def test_what_an_answer_says_is_compared_before_and_after_its_version_comes() -> None:
    history = CommitHistory(ONE)
    values = records(history, 5, [1], [2], [3])
    digests = [head_of(value)[1] for value in values]
    fed = Fed(ONE)
    assert fed.feed.agrees(4, ONE)
    assert not fed.feed.agrees(4, OTHER)
    assert fed.feed.agrees(5, digests[0])
    assert fed.feed.agrees(7, OTHER)
    assert not fed.feed.agrees(7, digests[2])
    fed.take(values)
    fed.is_refused(2, "at version 7 or between it and 4")
    assert fed.feed.agrees(6, digests[1])
    assert not fed.feed.agrees(6, OTHER)
    fed.feed.forget(6)
    assert fed.feed.agrees(6, digests[1])
    assert not fed.feed.agrees(6, OTHER)


def test_whoever_says_nothing_of_a_history_is_not_checked() -> None:
    fed = Fed(UNKNOWN)
    fed.take(
        [
            record
            for version in (5, 5, 6)
            for record in encode_transaction("a", version, 1, inserted(version), CATALOG)
        ]
    )
    assert fed.feed.fault is None
    assert fed.feed.agrees(6, ONE)
    assert fed.feed.agrees(6, UNKNOWN)


def test_a_fault_is_a_source_violation() -> None:
    fed = Fed(ONE)
    fed.take(records(CommitHistory(ONE), 5, [1]))
    fed.take(records(CommitHistory(OTHER), 5, [1]))
    assert isinstance(fed.feed.fault, SourceViolation)
