"""Debezium's records become whole, numbered transactions, also after a connector was killed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION
from protocols.views.catalog import Relation, relation_from_json
from sources.debezium.feed import DebeziumFeed
from sources.debezium.layout import TableLayout
from sources.partitions import Partition, more_in, offsets_in
from sources.postgres.logform import PostgresLogForm

ITEM = relation_from_json("s", "item", {"columns": {"id": "BIGINT", "n": "BIGINT"}, "key": ["id"]})
TABLE = TableLayout(ITEM, ("public", "item"), {"id": "plain", "n": "plain"})
P = Partition("shop")


class Kept:
    """A receiver that keeps version → changes of rows."""

    def __init__(self, version: int = 0) -> None:
        self.version = version
        self.rows: dict[int, list[tuple[int, int, int]]] = {}

    def received(self, _source: str) -> int:
        return self.version

    def receive(self, _source: str, version: int, changes: Mapping[Relation, pl.DataFrame]) -> None:
        for rows in changes.values():
            for id_, n, count, number in rows.select("id", "n", COUNT, VERSION).iter_rows():
                self.rows.setdefault(number, []).append((id_, n, count))
        self.version = version


class Log:
    """A topic, as a connector writes it."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []
        self._before: int | None = None

    def put(self, record: Any) -> None:
        self.values.append(None if record is None else orjson.dumps(record))

    def begin(self, tx: int) -> None:
        self.put({"status": "BEGIN", "id": f"{tx}:{tx * 100}", "ts_ms": tx})

    def change(self, tx: int, place: int, id_: int, n: int, **more: Any) -> None:
        before = "null" if self._before is None else f'"{self._before}"'
        source = {"schema": "public", "table": "item", "txId": tx, "lsn": tx * 100 + place}
        source["sequence"] = f'[{before},"{source["lsn"]}"]'
        row = {"id": id_, "n": n}
        record = {"op": "c", "before": None, "after": row, "source": source}
        self.put({**record, "transaction": {"id": f"{tx}:0"}, **more})

    def end(self, tx: int, count: int, table: str = "public.item") -> None:
        self._before = tx * 100 + 99
        collections = [{"data_collection": table, "event_count": count}]
        end = {"status": "END", "id": f"{tx}:{self._before}", "ts_ms": tx, "event_count": count}
        self.put({**end, "data_collections": collections})

    def transaction(self, tx: int, *ids: int) -> None:
        self.begin(tx)
        for place, id_ in enumerate(ids):
            self.change(tx, place, id_, tx)
        self.end(tx, len(ids))

    def restart(self) -> None:
        """The connector does not know the commit before."""
        self._before = None


def feed(kept: Kept, begin: int = 0, *more: int) -> DebeziumFeed:
    return DebeziumFeed("s", [TABLE], PostgresLogForm(), kept, {P: begin}, *more)


def take(found: DebeziumFeed, log: Log, pieces: Sequence[int] = ()) -> None:
    """Takes the topic, cut at these places."""
    begin = found.next[P]
    for start, stop in zip([begin, *pieces], [*pieces, len(log.values)], strict=True):
        if start < stop:
            values = pl.Series("value", log.values[start:stop], pl.Binary)
            found.take(found.decode(P, np.arange(start, stop), values))


def read(log: Log, pieces: Sequence[int] = ()) -> tuple[Kept, DebeziumFeed]:
    kept = Kept()
    found = feed(kept)
    take(found, log, pieces)
    return kept, found


def ids(kept: Kept) -> dict[int, list[int]]:
    return {version: sorted(id_ for id_, _, _ in rows) for version, rows in kept.rows.items()}


def test_transactions_are_numbered_and_messages_are_not() -> None:
    log = Log()
    log.transaction(5, 1, 2)
    log.begin(6)
    log.put({"op": "m", "source": {"schema": "", "table": "", "txId": 6, "lsn": 600,
             "sequence": '["599","600"]'}, "transaction": {"id": "6:600"}})  # fmt: skip
    log.end(6, 1, "io.debezium.LogicalDecodingMessageId@7f")
    log.put(None)
    log.put({"ts_ms": 1})
    log.transaction(7, 3)
    for cut in range(len(log.values)):
        kept, found = read(log, [cut])
        assert found.fault is None
        assert ids(kept) == {1: [1, 2], 2: [3]}
        assert found.times(0, 2).tolist() == [5, 7]
        assert found.sizes(0, 2).tolist() == [2, 1]


def test_a_token_goes_on_after_its_version() -> None:
    log = Log()
    for tx in range(5, 9):
        log.transaction(tx, tx)
    kept, found = read(log)
    for version in range(kept.version + 1):
        token = found.token_after(version)
        offsets = offsets_in(token, [P])
        assert offsets is not None
        again = Kept(version)
        take(feed(again, offsets[P], *more_in(token, [P])), log)
        assert ids(again) == {v: i for v, i in ids(kept).items() if v > version}


@pytest.mark.parametrize("kills", [1, 2, 3])
@pytest.mark.parametrize("whole", [True, False], ids=["all of it", "the rest"])
def test_a_transaction_that_is_published_in_part_and_again_counts_once(
    whole: bool, kills: int
) -> None:
    log = Log()
    log.transaction(5, 1)
    for kill in range(kills):
        log.begin(6)
        if whole or kill == 0:
            log.change(6, 0, 2, 6)
            log.change(6, 1, 3, 6)
        log.restart()
    if whole:
        log.transaction(5, 1)
        log.transaction(6, 2, 3, 4)
    else:
        log.begin(6)
        log.change(6, 2, 4, 6)
        log.end(6, 1)
    log.transaction(7, 5)
    for cut in range(len(log.values)):
        kept, found = read(log, [cut])
        assert found.fault is None, found.fault
        assert ids(kept) == {1: [1], 2: [2, 3, 4], 3: [5]}, cut


def test_equal_rows_of_one_copy_stay_as_many_as_they_are() -> None:
    log = Log()
    log.begin(5)
    for _ in range(3):
        log.change(5, 0, 1, 5)
    log.restart()
    log.begin(5)
    for _ in range(4):
        log.change(5, 0, 1, 5)
    log.end(5, 4)
    kept, found = read(log)
    assert found.fault is None
    assert ids(kept) == {1: [1, 1, 1, 1]}


def without(log: Log, *places: int) -> Log:
    log.values = [value for place, value in enumerate(log.values) if place not in places]
    return log


def three() -> Log:
    log = Log()
    for tx in (5, 6, 7):
        log.transaction(tx, tx, tx + 10)
    return log


@pytest.mark.parametrize("places", [(4,), (5,), (6,), (7,), (4, 5, 6, 7), (3,)])
def test_what_is_missing_is_found(places: tuple[int, ...]) -> None:
    kept, found = read(without(three(), *places))
    assert found.fault is not None
    assert "Recreate the views" in str(found.fault)
    assert set(ids(kept)) <= {1}


def test_another_past_is_found_where_a_connector_repeats_without_the_last_known_commit() -> None:
    log = Log()
    log.transaction(5, 1)
    log.transaction(7, 2)
    log.restart()
    # A copy from before 7: it went on with 6 and 8.
    log.transaction(5, 1)
    log.transaction(6, 3)
    log.transaction(8, 4)
    kept, found = read(log)
    assert found.fault is not None
    assert "another past" in str(found.fault)
    assert ids(kept) == {1: [1], 2: [2]}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"op": "t", "after": None}, "public.item was truncated"),
    ({"transaction": None}, "provide.transaction.metadata=true"),
    ({"op": "u"}, "REPLICA IDENTITY FULL"),
    ({"after": {"id": "x", "n": 1}}, "'x' in column 'id', which is no BIGINT"),
    ({"after": {"id": 1}}, "has no column 'n'"),
    ({"source": 3}, "not a record of Debezium"),
]


@pytest.mark.parametrize(("wrong", "reason"), BAD)
def test_a_record_that_cannot_be_taken_is_named(wrong: dict[str, Any], reason: str) -> None:
    log = Log()
    log.transaction(5, 1)
    log.begin(6)
    log.change(6, 0, 2, 6, **wrong)
    log.end(6, 1)
    kept, found = read(log)
    assert reason in str(found.fault)
    assert "topic shop, offset 4" in str(found.fault)
    assert ids(kept) == {1: [1]}


def test_a_large_value_that_an_update_leaves_is_taken_from_the_row_before() -> None:
    log = Log()
    row = {"id": 1, "n": 5}
    log.begin(5)
    log.change(5, 0, 0, 0, op="u", before=row, after={**row, "n": "__debezium_unavailable_value"})
    log.end(5, 1)
    kept, found = read(log)
    assert found.fault is None
    assert kept.rows == {1: [(1, 5, -1), (1, 5, 1)]}
