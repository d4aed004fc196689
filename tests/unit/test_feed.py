"""The feed: repetitions are dropped, cut transactions are put together, gaps are refused.

The reference is the stream without repetitions, taken in one piece. Two planted defects show that
the comparison with it can fail.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocols.algebra.frame import Frame, FrameLog
from protocols.algebra.types import column_type
from protocols.errors import SourceViolation, ViewsweepError
from protocols.maintenance.mailbox import Mailbox
from protocols.views.catalog import Catalog, Relation
from sources.envelope import encode_transaction
from sources.transaction import RowChange, Transaction
from streaming.feed import Feed, positions_of

R = Relation("a", "r", (("x", column_type("BIGINT")),))
S = Relation("a", "s", (("x", column_type("BIGINT")),))
CATALOG = Catalog((R, S))
#: Where the topic begins, and what the view has seen of the source.
OFFSET, SEEN = 100, 4


def transaction(version: int, records: int) -> list[bytes]:
    """Version v inserts the rows 10v+1, 10v+2, … into s and r in turn."""
    changes = [RowChange("rs"[n % 2], (10 * version + n,), 1) for n in range(1, records + 1)]
    return encode_transaction("a", version, 1000 + version, Transaction(tuple(changes)), CATALOG)


def stream(*sizes: int) -> list[bytes]:
    """Transactions of so many records each, from the first version not yet seen on."""
    versions = enumerate(sizes, SEEN + 1)
    return [record for version, size in versions for record in transaction(version, size)]


class Fed:
    """A feed with a mailbox of its own."""

    def __init__(self, kind: type[Feed] = Feed) -> None:
        self.logs = {R: FrameLog(), S: FrameLog()}
        self.mailbox: Mailbox[Frame] = Mailbox(self.logs, {"a": SEEN})
        self.feed = kind("a", "topic-of-a", (R, S), self.mailbox, OFFSET)

    def take(self, records: Sequence[bytes | None], offset: int) -> None:
        offsets = np.arange(offset, offset + len(records))
        self.feed.take(self.feed.decoded(offsets, pl.Series(records, dtype=pl.Binary)))

    def refuse_a_fault(self) -> None:
        if self.feed.fault is not None:
            raise self.feed.fault

    def take_in_chunks(self, records: Sequence[bytes], edges: Sequence[int]) -> "Fed":
        borders = [0, *sorted(edges), len(records)]
        for start, stop in pairwise(borders):
            if start < stop:
                self.take(records[start:stop], OFFSET + start)
        self.refuse_a_fault()
        return self

    def received(self) -> int:
        return self.mailbox.received("a")

    def rows(self) -> list[list[Any]]:
        """The changes of each relation, with their versions."""
        logs = (log.rows() for log in self.logs.values())
        return [[] if rows is None else rows.rows() for rows in logs]

    def content(self) -> tuple[Any, ...]:
        """Everything that a job could learn from mailbox and feed."""
        versions = range(SEEN + 1, self.received() + 1)
        times = [self.feed.committed_at(version) for version in versions]
        behind = [self.feed.offset_behind(version) for version in versions]
        upto = range(OFFSET, self.feed.next_offset + 1)
        starts = [self.feed.version_up_to(offset) for offset in upto]
        return self.rows(), times, behind, starts, self.feed.next_offset


def whole(records: Sequence[bytes]) -> Fed:
    return Fed().take_in_chunks(records, ())


# ------------------------------------------------------------------------------- repetitions


A, B, C = transaction(5, 2), transaction(6, 3), transaction(7, 1)
RESTARTS = {
    "the whole beginning again": [*A, *B, *A, *B, *C],
    "one transaction again": [*A, *B, *B, *C],
    "a part of a transaction again": [*A, *B, B[1], B[2], *C],
    "cut in the middle, then whole": [*A, B[0], B[1], *B, *C],
    "cut in the middle, then from the one before": [*A, B[0], *A, *B, *C],
    "cut twice": [*A, B[0], *B[:2], *A, B[0], *B, *C],
    "what the view has seen": [*transaction(3, 2), *transaction(4, 1), *A, *B, *C],
    "the end of what the view has seen": [transaction(4, 2)[1], *A, *B, *C],
}


@pytest.mark.parametrize("records", RESTARTS.values(), ids=RESTARTS.keys())
def test_a_restart_of_the_publisher_repeats_nothing_in_the_mailbox(records: list[bytes]) -> None:
    for edges in ((), range(1, len(records)), *((edge,) for edge in range(1, len(records)))):
        fed = Fed().take_in_chunks(records, edges)
        assert fed.rows() == whole([*A, *B, *C]).rows()
        assert fed.received() == 7


def test_records_of_two_readers_are_taken_once() -> None:
    records = stream(2, 3, 1, 2)
    fed = Fed()
    fed.take(records[:4], OFFSET)
    fed.take(records[2:7], OFFSET + 2)
    fed.take(records[:5], OFFSET)
    fed.take(records, OFFSET)
    assert fed.content() == whole(records).content()


def test_records_of_other_relations_and_tombstones_and_snapshots_move_the_feed_only() -> None:
    other = Relation("a", "elsewhere", R.columns)
    change = Transaction((RowChange("elsewhere", (1,), 1),))
    strange = encode_transaction("a", 6, 0, change, Catalog((other,)))
    snapshot = orjson.loads(transaction(1, 1)[0])
    snapshot["op"], snapshot["source"]["version"] = "r", 0
    fed = whole([*A, orjson.dumps(snapshot), *strange, *C])
    fed.take([None], OFFSET + 5)
    assert fed.received() == 7
    assert fed.feed.next_offset == OFFSET + 6
    assert [version for rows in fed.rows() for *_, version in rows] == [5, 5, 7]


# --------------------------------------------------------------------------- cut transactions


def test_a_transaction_cut_in_two_at_any_point_is_received_when_its_end_comes() -> None:
    records = stream(2, 4, 1)
    for cut in range(3, 6):
        fed = Fed()
        fed.take(records[:cut], OFFSET)
        assert fed.received() == 5
        assert not fed.feed.is_whole_up_to(OFFSET + cut)
        assert fed.feed.is_whole_up_to(OFFSET + 2)
        fed.take(records[cut:6], OFFSET + cut)
        assert fed.received() == 6
        assert fed.feed.is_whole_up_to(OFFSET + cut)
        fed.take(records[6:], OFFSET + 6)
        assert fed.content() == whole(records).content()


def test_a_batch_reaches_the_version_that_begins_below_its_end() -> None:
    fed = whole(stream(2, 3, 1))
    reached = [fed.feed.version_up_to(OFFSET + end) for end in range(7)]
    assert reached == [4, 5, 5, 6, 6, 6, 7]


def test_what_has_not_been_read_is_not_whole() -> None:
    fed = Fed()
    fed.take(stream(2), OFFSET)
    assert fed.feed.is_whole_up_to(OFFSET + 2)
    assert not fed.feed.is_whole_up_to(OFFSET + 3)
    assert not fed.feed.has_read_up_to(OFFSET + 3)


def test_a_half_repetition_at_the_end_leaves_nothing_open() -> None:
    fed = whole([*A, *B, *B[:2]])
    assert fed.feed.is_whole_up_to(OFFSET + 7)
    assert fed.feed.version_up_to(OFFSET + 7) == 6


def test_forgetting_keeps_the_numbers_of_what_stays() -> None:
    fed = whole(stream(2, 3, 1))
    fed.feed.forget(6)
    fed.feed.forget(5)
    assert fed.feed.committed_at(7) == 1007
    assert fed.feed.offset_behind(7) == OFFSET + 6
    assert fed.feed.version_up_to(OFFSET + 6) == 7
    assert fed.feed.version_up_to(OFFSET + 2) == 6


# -------------------------------------------------------------------------------------- gaps


@pytest.mark.parametrize(
    ("records", "offset", "before", "after"),
    [
        ([*A, B[0], B[2], *C], 3, "record 1 of version 6", "record 3 of 3 of version 6"),
        ([*A, *B[:2], *C], 4, "record 2 of version 6", "record 1 of 1 of version 7"),
        ([*A, *B[1:], *C], 2, "record 2 of version 5", "record 2 of 3 of version 6"),
        ([*A, *C], 2, "record 2 of version 5", "record 1 of 1 of version 7"),
        (A[1:], 0, "record 0 of version 4", "record 2 of 2 of version 5"),
        (B, 0, "record 0 of version 4", "record 1 of 3 of version 6"),
    ],
    ids=[
        "inside a transaction",
        "the end of a transaction",
        "the beginning of a transaction",
        "a version",
        "the first record",
        "the first version",
    ],
)
def test_a_gap_is_refused_with_its_place(
    records: list[bytes], offset: int, before: str, after: str
) -> None:
    with pytest.raises(SourceViolation) as refused:
        whole(records)
    message = str(refused.value)
    assert f"source a, topic topic-of-a, offset {OFFSET + offset}: after {before}" in message
    assert f"comes {after}" in message


def test_a_transaction_that_changes_its_mind_about_its_length_is_refused() -> None:
    longer = transaction(6, 4)
    with pytest.raises(SourceViolation, match=f"offset {OFFSET + 3}: .* record 2 of 4"):
        whole([*A, B[0], *longer[1:]])


#: A loaded machine may take its time.
LAW = settings(deadline=None, max_examples=60)
SIZES = st.lists(st.integers(1, 4), min_size=2, max_size=6)


@LAW
@given(SIZES, st.data())
def test_any_missing_record_is_refused_in_any_chunks(sizes: list[int], data: st.DataObject) -> None:
    records = stream(*sizes)
    del records[data.draw(st.integers(0, len(records) - 2))]
    edges = data.draw(_edges(records))
    with pytest.raises(SourceViolation, match="is missing"):
        Fed().take_in_chunks(records, edges)


# ------------------------------------------------------------------------------- any chunking


def _edges(records: Sequence[bytes]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(records)), max_size=8)


@st.composite
def repeated(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """A stream, and the same as publishers leave it that start again at some earlier record."""
    records = stream(*draw(SIZES))
    published: list[bytes] = []
    done = 0
    for _ in range(draw(st.integers(0, 3))):
        reached = draw(st.integers(done, len(records)))
        published += records[done:reached]
        done = draw(st.integers(0, reached))
    return records, published + records[done:]


@LAW
@given(repeated(), st.data())
def test_chunks_and_repetitions_change_nothing(
    streams: tuple[list[bytes], list[bytes]], data: st.DataObject
) -> None:
    clean, published = streams
    fed = Fed().take_in_chunks(published, data.draw(_edges(published)))
    assert fed.content() == whole(published).content()
    assert fed.rows() == whole(clean).rows()


def test_a_chunk_large_enough_to_be_read_in_columns_brings_the_same() -> None:
    records = stream(*(1 + n % 3 for n in range(1000)))
    in_small_chunks = Fed().take_in_chunks(records, range(0, len(records), 400))
    assert in_small_chunks.rows() == whole(records).rows()
    assert in_small_chunks.received() == whole(records).received() == SEEN + 1000


class BelievingFeed(Feed):
    """Takes every record for a new one."""

    def _fresh(self, heads: Any) -> Any:
        return np.full(len(heads), True)

    def _gaps(self, _heads: Any) -> Any:
        """Whatever comes is welcome."""
        return np.empty(0, np.int64)


class ForgetfulFeed(Feed):
    """Loses the beginning of a transaction when its end is in the next chunk."""

    def _keep_open(self, _fresh: Any) -> None:
        self._open = []


def _differs(kind: type[Feed], records: list[bytes], edges: Sequence[int]) -> bool:
    try:
        return Fed(kind).take_in_chunks(records, edges).rows() != whole(stream(2, 3, 1)).rows()
    except ViewsweepError:
        return True


def test_control_a_feed_that_drops_no_repetitions_is_caught() -> None:
    assert _differs(BelievingFeed, [*A, *B, *B, *C], ())
    assert not _differs(BelievingFeed, [*A, *B, *C], ())


def test_control_a_feed_that_forgets_half_a_transaction_is_caught() -> None:
    assert _differs(ForgetfulFeed, [*A, *B, *C], (3,))
    assert not _differs(ForgetfulFeed, [*A, *B, *C], (2,))


# -------------------------------------------------------------------------- order of delivery


class Times(Feed):
    """A feed that only knows when its versions 1, 2, … were committed."""

    def __init__(self, times: Sequence[int]) -> None:
        self._times = array("q", times)
        self._first = 1


CLOCKS = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(0, 9), max_size=6), min_size=1
)


def _order(clocks: dict[str, list[int]], sources: Sequence[str]) -> list[tuple[str, int]]:
    feeds: dict[str, Feed] = {source: Times(clocks[source]) for source in sources}
    batch = {source: (0, len(clocks[source])) for source in sources}
    names, which, versions = positions_of(batch, feeds)
    return [(names[i], v) for i, v in zip(which.tolist(), versions.tolist(), strict=True)]


@LAW
@given(CLOCKS)
def test_the_order_extends_each_sources_own_even_if_clocks_step_back(
    clocks: dict[str, list[int]],
) -> None:
    order = _order(clocks, list(clocks))
    for source, times in clocks.items():
        own = [version for name, version in order if name == source]
        assert own == list(range(1, len(times) + 1))
    assert len(order) == sum(map(len, clocks.values()))


@LAW
@given(CLOCKS, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_which_topic_comes_first(
    clocks: dict[str, list[int]], dice: Any
) -> None:
    shuffled = list(clocks)
    dice.shuffle(shuffled)
    assert _order(clocks, list(clocks)) == _order(clocks, shuffled)


@LAW
@given(CLOCKS)
def test_where_clocks_do_not_step_back_the_order_is_that_of_time(
    clocks: dict[str, list[int]],
) -> None:
    ordered = {source: sorted(times) for source, times in clocks.items()}
    assume(any(ordered.values()))
    delivered = [ordered[source][version - 1] for source, version in _order(ordered, list(ordered))]
    assert delivered == sorted(delivered)
