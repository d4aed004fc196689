"""The feed of a topic with several partitions: records wait for those before them."""

import numpy as np
import polars as pl

from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import column_type
from protocols.exchange.mailbox import Received
from protocols.views.catalog import Catalog, Relation
from sources.envelope import encode_transaction
from sources.envelope.feed import Feed
from sources.partitions import Partition
from sources.transaction import RowChange, Transaction

R = Relation("a", "r", (("x", column_type("BIGINT")),))
FIRST, SECOND = Partition("t", 0), Partition("t", 1)


def test_records_go_on_waiting_when_only_repetitions_come() -> None:
    changes = tuple(RowChange("r", (x,), 1) for x in (1, 2, 3))
    one, two, three = encode_transaction("a", 1, 0, Transaction(changes), Catalog((R,)))
    received = Received({R: FrameLog()}, {"a": 0})
    feed = Feed("a", (R,), received, {FIRST: 0, SECOND: 0})
    # Of the second partition the publisher sends a record again, before the first one has sent any.
    for partition, offset, records in (
        (SECOND, 0, [two]),
        (SECOND, 1, [two]),
        (FIRST, 0, [one, three]),
    ):
        offsets = np.arange(offset, offset + len(records))
        feed.take(feed.decode(partition, offsets, pl.Series(records, dtype=pl.Binary)))
    assert feed.fault is None
    found = received.logs[R].between(0, 1)
    assert found is not None
    assert found.data.get_column("x").to_list() == [1, 2, 3]
