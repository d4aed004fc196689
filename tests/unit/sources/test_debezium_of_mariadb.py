"""MariaDB's records: GTIDs without gaps, BEGINs without END, prepared XA transactions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest

from sources.debezium.feed import DebeziumFeed
from sources.debezium.layout import TableLayout
from sources.mariadb.logform import MariaDBLogForm
from sources.partitions import Partition
from tests.unit.sources.test_debezium import ITEM, Kept, ids

TABLE = TableLayout(ITEM, ("shop", "item"), {"id": "plain", "n": "plain"})
P = Partition("shop")


class Log:
    """A topic, as a connector writes it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def put(self, record: Any) -> None:
        self.values.append(orjson.dumps(record))

    def begin(self, number: int) -> None:
        self.put({"status": "BEGIN", "id": f"0-1-{number}", "ts_ms": number})

    def change(self, number: int, row: int, id_: int) -> None:
        source: dict[str, Any] = {"db": "shop", "table": "item", "gtid": f"0-1-{number}"}
        source |= {"file": "binlog.000001", "pos": number * 100, "row": row}
        after = {"id": id_, "n": number}
        record = {"op": "c", "before": None, "after": after, "source": source}
        self.put({**record, "transaction": {"id": f"0-1-{number}"}})

    def end(self, number: int, count: int, table: str = "shop.item") -> None:
        collections = [{"data_collection": table, "event_count": count}] if count else []
        end = {"status": "END", "id": f"0-1-{number}", "ts_ms": number, "event_count": count}
        self.put({**end, "data_collections": collections})

    def transaction(self, number: int, *found: int) -> None:
        self.begin(number)
        for row, id_ in enumerate(found):
            self.change(number, row, id_)
        self.end(number, len(found))


def read(log: Log, pieces: Sequence[int]) -> tuple[Kept, DebeziumFeed]:
    kept = Kept()
    feed = DebeziumFeed("s", [TABLE], MariaDBLogForm("shop", "marks"), kept, {P: 0})
    for start, stop in zip([0, *pieces], [*pieces, len(log.values)], strict=True):
        if start < stop:
            values = pl.Series("value", log.values[start:stop], pl.Binary)
            feed.take(feed.decode(P, np.arange(start, stop), values))
    return kept, feed


def test_statements_without_an_end_and_marks_take_no_number() -> None:
    log = Log()
    log.transaction(4, 1)
    log.begin(5)  # CREATE TABLE
    log.begin(6)  # ALTER TABLE
    log.transaction(7, 2, 3)
    log.transaction(8)  # of another database
    log.begin(9)
    log.change(9, 0, 9)
    log.end(9, 1, "shop.marks")
    log.begin(10)
    log.transaction(11, 4)
    for cut in range(len(log.values)):
        kept, feed = read(log, [cut])
        assert feed.fault is None, (cut, feed.fault)
        assert ids(kept) == {1: [1], 2: [2, 3], 3: [4]}


@pytest.mark.parametrize("first", [5, 6])
def test_a_connector_that_was_killed_behind_a_begin_goes_on_there_or_earlier(first: int) -> None:
    log = Log()
    log.transaction(4, 1)
    log.transaction(5, 2)
    log.begin(6)
    if first == 5:
        log.transaction(5, 2)
    log.transaction(6, 3)
    log.transaction(7, 4)
    for cut in range(len(log.values)):
        kept, feed = read(log, [cut])
        assert feed.fault is None, (cut, feed.fault)
        assert ids(kept) == {1: [1], 2: [2], 3: [3], 4: [4]}


def test_a_transaction_that_is_published_in_part_and_again_counts_once() -> None:
    log = Log()
    log.transaction(4, 1)
    log.begin(5)
    log.change(5, 0, 2)
    log.change(5, 1, 3)
    log.begin(5)
    log.change(5, 1, 3)
    log.change(5, 2, 4)
    log.end(5, 2)
    for cut in range(len(log.values)):
        kept, feed = read(log, [cut])
        assert feed.fault is None, (cut, feed.fault)
        assert ids(kept) == {1: [1], 2: [2, 3, 4]}


def test_a_prepared_xa_transaction_is_refused() -> None:
    log = Log()
    log.transaction(4, 1)
    log.begin(5)
    log.change(5, 0, 2)
    log.begin(6)  # XA ROLLBACK, or XA COMMIT
    log.transaction(7, 3)
    kept, feed = read(log, [])
    assert "prepared XA transaction" in str(feed.fault)
    assert "offset 3" in str(feed.fault)
    assert ids(kept) == {1: [1]}


@pytest.mark.parametrize("missing", [(3, 4, 5), (3,), (4,), (5,)])
def test_what_is_missing_is_found(missing: tuple[int, ...]) -> None:
    log = Log()
    for number in (4, 5, 6, 7):
        log.transaction(number, number)
    log.values = [value for place, value in enumerate(log.values) if place not in missing]
    kept, feed = read(log, [])
    assert feed.fault is not None
    assert set(ids(kept)) <= {1}
