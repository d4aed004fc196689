"""The feed: repetitions are dropped, cut transactions are merged, gaps are refused.

The reference is the stream without repetitions, taken in one piece. Two planted defects show that
the comparison with it can fail.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import column_type
from protocols.errors import SourceViolation, ViewsweepError
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.order import positions_of
from protocols.views.catalog import Catalog, Relation
from sources.envelope import encode_transaction
from sources.envelope.feed import Feed
from sources.ledger import Ledger
from sources.partitions import Partition, offsets_in
from sources.transaction import RowChange, Transaction

R = Relation("a", "r", (("x", column_type("BIGINT")),))
S = Relation("a", "s", (("x", column_type("BIGINT")),))
CATALOG = Catalog((R, S))
#: The first offset of the topic, and the version of the source that the view has seen.
OFFSET, SEEN = 100, 4
P = Partition("topic-of-a")


def transaction(version: int, records: int) -> list[bytes]:
    """Version v inserts the rows 10v+1, 10v+2, … into s and r in turn."""
    changes = [RowChange("rs"[n % 2], (10 * version + n,), 1) for n in range(1, records + 1)]
    return encode_transaction("a", version, 1000 + version, Transaction(tuple(changes)), CATALOG)


def stream(*sizes: int) -> list[bytes]:
    """Transactions of these numbers of records, from the first unseen version on."""
    versions = enumerate(sizes, SEEN + 1)
    return [record for version, size in versions for record in transaction(version, size)]


class Fed:
    """A feed with a mailbox of its own."""

    def __init__(self, kind: type[Feed] = Feed) -> None:
        self.logs = {R: FrameLog(), S: FrameLog()}
        self.mailbox: Mailbox[Frame] = Mailbox(self.logs, {"a": SEEN})
        self.feed = kind("a", (R, S), self.mailbox, {P: OFFSET})

    def take(self, records: Sequence[bytes | None], offset: int) -> None:
        offsets = np.arange(offset, offset + len(records))
        self.feed.take(self.feed.decode(P, offsets, pl.Series(records, dtype=pl.Binary)))

    @property
    def next_offset(self) -> int:
        return self.feed.next[P]

    def offset_behind(self, version: int) -> int:
        offsets = offsets_in(self.feed.token_after(version), [P])
        assert offsets is not None
        return offsets[P]

    def is_whole_up_to(self, offset: int) -> bool:
        return self.feed.is_whole_up_to({P: offset})

    def version_up_to(self, offset: int) -> int:
        return self.feed.version_up_to({P: offset})

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
        """Everything that a job can learn from mailbox and feed."""
        versions = range(SEEN + 1, self.received() + 1)
        times = [self.feed.times(version - 1, version).tolist() for version in versions]
        behind = [self.offset_behind(version) for version in versions]
        upto = range(OFFSET, self.next_offset + 1)
        starts = [self.version_up_to(offset) for offset in upto]
        return self.rows(), times, behind, starts, self.next_offset


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
    assert fed.next_offset == OFFSET + 6
    assert [version for rows in fed.rows() for *_, version in rows] == [5, 5, 7]


# --------------------------------------------------------------------------- cut transactions


def test_a_transaction_cut_in_two_at_any_point_is_received_when_its_end_comes() -> None:
    records = stream(2, 4, 1)
    for cut in range(3, 6):
        fed = Fed()
        fed.take(records[:cut], OFFSET)
        assert fed.received() == 5
        assert not fed.is_whole_up_to(OFFSET + cut)
        assert fed.is_whole_up_to(OFFSET + 2)
        fed.take(records[cut:6], OFFSET + cut)
        assert fed.received() == 6
        assert fed.is_whole_up_to(OFFSET + cut)
        fed.take(records[6:], OFFSET + 6)
        assert fed.content() == whole(records).content()


def test_a_batch_reaches_the_version_that_begins_below_its_end() -> None:
    fed = whole(stream(2, 3, 1))
    reached = [fed.version_up_to(OFFSET + end) for end in range(7)]
    assert reached == [4, 5, 5, 6, 6, 6, 7]


def test_what_has_not_been_read_is_not_whole() -> None:
    fed = Fed()
    fed.take(stream(2), OFFSET)
    assert fed.is_whole_up_to(OFFSET + 2)
    assert not fed.is_whole_up_to(OFFSET + 3)
    assert fed.next_offset == OFFSET + 2


def test_a_half_repetition_at_the_end_leaves_nothing_open() -> None:
    fed = whole([*A, *B, *B[:2]])
    assert fed.is_whole_up_to(OFFSET + 7)
    assert fed.version_up_to(OFFSET + 7) == 6


def test_forgetting_keeps_the_numbers_of_what_stays() -> None:
    fed = whole(stream(2, 3, 1))
    fed.feed.forget(6)
    fed.feed.forget(5)
    assert fed.feed.times(6, 7).tolist() == [1007]
    assert fed.feed.times(7, 7).tolist() == []
    assert fed.offset_behind(7) == OFFSET + 6
    assert fed.version_up_to(OFFSET + 6) == 7
    assert fed.version_up_to(OFFSET + 2) == 6


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


#: No deadline on a busy machine.
LAW = settings(deadline=None, max_examples=60)
SIZES = st.lists(st.integers(1, 4), min_size=2, max_size=6)


@LAW
@given(SIZES, st.data())
def test_any_missing_record_is_refused_in_any_chunks(sizes: list[int], data: st.DataObject) -> None:
    records = stream(*sizes)
    missing = data.draw(st.integers(0, len(records) - 2))
    del records[missing]
    edges = data.draw(_edges(records))
    fed = Fed()
    with pytest.raises(SourceViolation, match="is missing"):
        fed.take_in_chunks(records, edges)
    _has_all_before(fed, records, missing)


def _has_all_before(fed: Fed, records: Sequence[bytes], bad: int) -> None:
    """Checks that everything before the bad record was taken, and nothing after it."""
    before = whole(records[:bad])
    assert fed.rows() == before.rows()
    assert fed.received() == before.received()
    assert fed.next_offset == OFFSET + bad


# -------------------------------------------------------------------------------- bad records


@LAW
@given(SIZES, st.data())
def test_what_lies_before_a_bad_record_is_received(sizes: list[int], data: st.DataObject) -> None:
    records = stream(*sizes)
    bad = data.draw(st.integers(0, len(records) - 1))
    records[bad] = b"none of ours"
    fed = Fed()
    with pytest.raises(SourceViolation, match=f"offset {OFFSET + bad}: not JSON"):
        fed.take_in_chunks(records, data.draw(_edges(records)))
    _has_all_before(fed, records, bad)


def test_behind_a_fault_nothing_is_taken_though_it_would_follow() -> None:
    fed = Fed()
    fed.take([*A, b"{"], OFFSET)
    fed.take([*B, *C], OFFSET + 3)
    assert fed.received() == 5
    with pytest.raises(SourceViolation, match=f"offset {OFFSET + 2}: not JSON"):
        fed.refuse_a_fault()


def test_of_a_gap_and_a_bad_record_behind_it_the_gap_is_the_fault() -> None:
    with pytest.raises(SourceViolation, match=f"offset {OFFSET + 2}: .* is missing"):
        whole([*A, *C, b"{"])


@pytest.mark.parametrize(
    ("version", "order", "count"),
    [(2**62, 1, 1), (2**63 - 1, 1, 1), (7, 2**32 + 1, 2**63 - 1), (2**33, 2**40, 2**41)],
)
def test_numbers_beyond_all_measure_are_a_gap_and_no_repetition(
    version: int, order: int, count: int
) -> None:
    strange = orjson.loads(C[0])
    strange["source"]["version"] = version
    strange["transaction"] |= {"total_order": order, "event_count": count}
    with pytest.raises(SourceViolation, match=f"offset {OFFSET + 5}: .* is missing"):
        whole([*A, *B, orjson.dumps(strange), *C])


# ------------------------------------------------------------------------ global transactions


def part(version: int, records: int, id_: str | None) -> list[bytes]:
    """A transaction that is part of a global one, or of none."""
    changes = tuple(RowChange("r", (10 * version + n,), 1) for n in range(records))
    whole = None if id_ is None else GlobalPart(id_, frozenset("ab"))
    return encode_transaction("a", version, 0, Transaction(changes, whole), CATALOG)


IDS = st.lists(st.sampled_from(["g", "h", None]), min_size=1, max_size=6)


@LAW
@given(IDS, st.data())
def test_parts_are_known_by_version_until_they_are_forgotten(
    ids: list[str | None], data: st.DataObject
) -> None:
    records = [r for version, id_ in enumerate(ids, SEEN + 1) for r in part(version, 2, id_)]
    fed = Fed().take_in_chunks(records, data.draw(_edges(records)))
    expected = dict(enumerate(ids, SEEN + 1))
    gone = data.draw(st.integers(SEEN, SEEN + len(ids)))
    fed.feed.forget(gone)
    for after in range(gone, SEEN + len(ids)):
        found = fed.feed.part_of(after + 1)
        assert (found.id if found else None) == expected[after + 1]
        for upto in range(after, SEEN + len(ids) + 1):
            among = any(expected[version] for version in range(after + 1, upto + 1))
            assert fed.feed.has_parts(after, upto) == among


@pytest.mark.parametrize("ids", [("g", None), (None, "g"), ("g", "h")])
@pytest.mark.parametrize("edges", [(), (3,)])
def test_the_records_of_a_transaction_agree_about_the_global_one(
    ids: tuple[str | None, str | None], edges: Sequence[int]
) -> None:
    first, second = (part(6, 2, id_) for id_ in ids)
    fed = Fed()
    with pytest.raises(
        SourceViolation, match=f"offset {OFFSET + 3}: its global transaction differs .* version 6"
    ):
        fed.take_in_chunks([*A, first[0], second[1]], edges)
    assert fed.received() == 5


# ------------------------------------------------------------------------------- any chunking


def _edges(records: Sequence[bytes]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(records)), max_size=8)


@st.composite
def repeated(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    """A stream, and the same stream with repetitions by publishers that restart earlier."""
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
    """Planted defect: takes every record as new."""

    def _not_repeated(self, heads: Any, _last: Any) -> Any:
        return np.full(len(heads), True)

    def _gaps(self, _heads: Any) -> Any:
        """Finds no gaps."""
        return np.empty(0, np.int64)


class ForgetfulFeed(Feed):
    """Planted defect: loses the beginning of a transaction whose end is in the next chunk."""

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


def _merged(clocks: dict[str, list[int]]) -> list[tuple[str, int]]:
    """Merges in plain Python: always the earliest head, of equal ones the first by name."""
    left = {source: list(enumerate(accumulate(times, max), 1)) for source, times in clocks.items()}
    order = []
    while any(left.values()):
        _, source = min((times[0][1], source) for source, times in left.items() if times)
        order.append((source, left[source].pop(0)[0]))
    return order


def dated(times: Sequence[int]) -> Ledger:
    """A ledger that only knows when its versions 1, 2, … were committed."""
    ledger = Ledger(0, 0, {P: 0})
    ledger.add(np.array(times, np.int64), *[np.ones(len(times), np.int64)] * 2)
    return ledger


CLOCKS = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.integers(0, 9), max_size=6), min_size=1
)


def _order(clocks: dict[str, list[int]], sources: Sequence[str]) -> list[tuple[str, int]]:
    ledgers = {source: dated(clocks[source]) for source in sources}
    batch = {source: (0, len(clocks[source])) for source in sources}
    names, which, versions = positions_of(batch, lambda source, *span: ledgers[source].times(*span))
    return [(names[i], v) for i, v in zip(which.tolist(), versions.tolist(), strict=True)]


@LAW
@given(CLOCKS)
def test_the_order_is_that_of_merging_the_sources_by_time(clocks: dict[str, list[int]]) -> None:
    assert _order(clocks, list(clocks)) == _merged(clocks)


@LAW
@given(CLOCKS, st.data())
def test_a_batch_takes_up_where_the_one_before_it_ended(
    clocks: dict[str, list[int]], data: st.DataObject
) -> None:
    """It takes only the requested versions, and clocks count from the first of them."""
    after = {s: data.draw(st.integers(0, len(times))) for s, times in clocks.items()}
    ledgers = {source: dated(times) for source, times in clocks.items()}
    batch = {source: (after[source], len(times)) for source, times in clocks.items()}
    names, which, versions = positions_of(batch, lambda source, *span: ledgers[source].times(*span))
    rest = {source: times[after[source] :] for source, times in clocks.items()}
    found = [(names[i], v) for i, v in zip(which.tolist(), versions.tolist(), strict=True)]
    assert found == [(source, after[source] + nth) for source, nth in _merged(rest)]


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
