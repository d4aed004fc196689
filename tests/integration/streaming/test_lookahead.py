"""The lookahead with a real broker: its records, how far it reads, and how it fails."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from infra.localbroker import LocalBroker
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.algebra.types import column_type
from protocols.errors import SourceViolation, Unreachable
from protocols.exchange.mailbox import Mailbox
from protocols.views.catalog import Catalog, Relation
from sources.envelope import encode_transaction
from sources.envelope.feed import Feed
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.topics import CLIENT_LOG
from sources.transaction import RowChange, Transaction
from streaming.intake import lookahead
from streaming.intake.lookahead import Awaited, Lookahead
from streaming.stopping import Stopped
from tests.harness.waiting import eventually, patience

RELATIONS = {s: Relation(s, "r", (("x", column_type("BIGINT")),)) for s in "ab"}
CATALOG = Catalog(tuple(RELATIONS.values()))


class World:
    """Two topics, and feeds into one mailbox."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.topics = {source: f"{prefix}-{source}" for source in "ab"}
        self.admin = AdminClient({"bootstrap.servers": bootstrap}, logger=CLIENT_LOG)
        new = [NewTopic(topic, num_partitions=1) for topic in self.topics.values()]
        for made in self.admin.create_topics(new).values():
            made.result(patience())
        eventually(lambda: self.topics["b"] in self.admin.list_topics(timeout=10).topics)
        # Without this the records of a new topic may overtake each other.
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
        self.producer = Producer(settings, logger=CLIENT_LOG)
        self.logs = {relation: FrameLog() for relation in RELATIONS.values()}
        self.mailbox: Mailbox[Frame] = Mailbox(self.logs, {"a": 0, "b": 0})
        self.feeds = {
            s: Feed(s, (RELATIONS[s],), self.mailbox, {self.partition(s): 0}) for s in self.topics
        }
        self.reports: list[str] = []
        self.stopping = threading.Event()
        self.stack = ExitStack()

    def partition(self, source: str) -> Partition:
        return Partition(self.topics[source])

    def next_offset(self, source: str) -> int:
        return self.feeds[source].next[self.partition(source)]

    def publish(self, source: str, versions: Sequence[int]) -> None:
        """Publishes versions; version v inserts v."""
        for version in versions:
            transaction = Transaction((RowChange("r", (version,), 1),))
            for record in encode_transaction(source, version, version, transaction, CATALOG):
                self.write(source, record)
        assert self.producer.flush(patience()) == 0

    def write(self, source: str, value: bytes | None) -> None:
        self.producer.produce(self.topics[source], value, partition=0)

    def read(self, seconds: float = 600, **settings: Any) -> Lookahead:
        reading = Lookahead(
            Kafka(self.bootstrap),
            self.feeds,
            seconds,
            self.reports.append,
            self.stopping,
            **settings,
        )
        self.stack.callback(reading.close)
        return reading

    def has(self, source: str, version: int) -> Callable[[], bool]:
        return lambda: self.mailbox.received(source) >= version

    def wait_until_full(self, reading: Lookahead) -> None:
        eventually(reading._ahead._is_full)

    def waiting(self, reading: Lookahead, source: str) -> int:
        """The number of records that are decoded and not yet taken."""
        return sum(
            len(each.chunk.heads) for each in reading._ahead._decoded[self.partition(source)]
        )

    def rows(self, source: str) -> list[int]:
        rows = self.logs[RELATIONS[source]].rows()
        return [] if rows is None else rows["x"].to_list()


@pytest.fixture
def world(broker: LocalBroker, topic: str) -> Iterator[World]:
    world = World(broker.bootstrap, topic)
    with world.stack:
        yield world


def test_everything_comes_in_order_from_all_topics_while_they_grow(world: World) -> None:
    world.publish("a", range(1, 2001))
    reading = world.read()
    reading.read_until(world.has("a", 2000), "the first ones")
    world.publish("a", range(2001, 2011))
    world.publish("b", range(1, 4))
    reading.read_until(world.has("a", 2010), "what came later")
    reading.read_until(world.has("b", 3), "the other topic")
    assert world.rows("a") == list(range(1, 2011))
    assert world.rows("b") == [1, 2, 3]


@pytest.mark.parametrize(
    ("worth", "threads"), [(1, {"decoding"}), (10**9, {"lookahead"})], ids=["pool", "own"]
)
def test_many_records_are_decoded_in_threads_and_taken_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch, worth: int, threads: set[str]
) -> None:
    seen = set()

    def decode(feed: Feed, *given: Any, here: Any = Feed.decode) -> Any:
        seen.add(threading.current_thread().name.partition("_")[0])
        return here(feed, *given)

    monkeypatch.setattr(Feed, "decode", decode)
    monkeypatch.setattr(lookahead, "_WORTH_THREADS", worth)
    for source in "ab":
        world.publish(source, range(1, 3001))
    reading = world.read()
    reading.read({s: Awaited(world.has(s, 3000), f"version 3000 of {s}") for s in "ab"})
    assert [world.rows(source) for source in "ab"] == [list(range(1, 3001))] * 2
    assert seen == threads


def test_it_begins_where_the_feed_stands(world: World) -> None:
    world.publish("a", range(1, 21))
    mailbox = Mailbox(world.logs, {"a": 15, "b": 0})
    world.feeds["a"] = Feed("a", (RELATIONS["a"],), mailbox, {world.partition("a"): 15})
    world.read().read_until(lambda: mailbox.received("a") == 20, "the rest")
    assert world.rows("a") == [16, 17, 18, 19, 20]


def test_nothing_is_taken_while_nobody_asks(world: World) -> None:
    reading = world.read()
    world.publish("a", range(1, 11))
    eventually(lambda: reading._ahead._decoded[world.partition("a")])
    assert world.next_offset("a") == 0
    eventually(lambda: reading.drain() and world.next_offset("a") == 10)
    assert not reading.drain()
    assert world.rows("a") == list(range(1, 11))


def test_it_goes_no_further_ahead_than_it_may_and_on_when_something_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "_AT_ONCE", 50)
    found_full = noting_whether_full(monkeypatch)
    world.publish("a", range(1, 1001))
    reading = world.read(ahead_records=100)
    world.wait_until_full(reading)
    assert 100 <= world.waiting(reading, "a") < 100 + 51
    reading.read_until(world.has("a", 1000), "all of it")
    assert world.rows("a") == list(range(1, 1001))
    assert not any(found_full)


def test_control_a_lookahead_that_does_not_wait_for_room_goes_further(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "_AT_ONCE", 50)
    monkeypatch.setattr(lookahead._Ahead, "wait_for_room", lambda _: None)
    found_full = noting_whether_full(monkeypatch)
    world.publish("a", range(1, 1001))
    reading = world.read(ahead_records=100)
    eventually(lambda: world.waiting(reading, "a") == 1000)
    assert any(found_full)


def noting_whether_full(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each piece of records that is put into the room, whether that was full already."""
    found_full: list[bool] = []
    put = lookahead._Ahead.put

    def noting(ahead: Any, *given: Any) -> None:
        found_full.append(ahead._is_full())
        put(ahead, *given)

    monkeypatch.setattr(lookahead._Ahead, "put", noting)
    return found_full


def test_while_one_source_is_waited_for_the_others_are_not_taken(world: World) -> None:
    world.publish("b", range(1, 101))
    reading = world.read()
    eventually(lambda: world.waiting(reading, "b") == 100)
    world.publish("a", range(1, 101))
    reading.read_until(world.has("a", 100), "all of a", ("a",))
    assert world.rows("a") == list(range(1, 101))
    assert world.rows("b") == []
    reading.read_until(world.has("b", 100), "all of b", ("b",))
    assert world.rows("b") == list(range(1, 101))


def test_what_nobody_waits_for_makes_way_when_it_fills_all_the_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "_AT_ONCE", 50)
    world.publish("b", range(1, 1001))
    reading = world.read(ahead_records=100)
    world.wait_until_full(reading)
    world.publish("a", range(1, 101))
    reading.read_until(world.has("a", 100), "all of a", ("a",))
    assert world.rows("a") == list(range(1, 101))
    reading.read_until(world.has("b", 1000), "all of b", ("b",))
    assert world.rows("b") == list(range(1, 1001))


def test_each_of_several_sources_is_read_until_it_has_what_is_wanted_of_it(world: World) -> None:
    world.publish("b", [1])
    reading = world.read()

    def publish_later() -> None:
        """Publishes more of b, which nothing waits for any more; then the awaited records."""
        eventually(lambda: world.rows("b"))
        world.publish("b", range(2, 101))
        eventually(lambda: world.waiting(reading, "b") == 99)
        world.publish("a", [1])

    with ThreadPoolExecutor(1) as threads:
        published = threads.submit(publish_later)
        reading.read({s: Awaited(world.has(s, 1), f"version 1 of {s}") for s in "ab"})
        published.result()
    assert (world.rows("a"), world.rows("b")) == ([1], [1])


def test_large_records_count_by_their_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookahead, "_AT_ONCE", 5)
    monkeypatch.setattr(lookahead, "_RECORD_BYTES", 20)
    found_full = noting_whether_full(monkeypatch)
    world.publish("a", range(1, 201))
    reading = world.read(ahead_records=100)
    world.wait_until_full(reading)
    assert world.waiting(reading, "a") < 30
    reading.read_until(world.has("a", 200), "all of it")
    assert not any(found_full)


def test_closing_ends_the_thread_though_nobody_takes_what_it_has_read(world: World) -> None:
    world.publish("a", range(1, 101))
    reading = world.read(ahead_records=1)
    world.wait_until_full(reading)
    reading.close()
    assert not reading._reader.is_alive()


# ------------------------------------------------------------------------------------ failures


def test_a_bad_record_is_reported_to_who_needs_what_lies_behind_it(world: World) -> None:
    world.publish("b", range(1, 4))
    world.write("b", b"none of ours")
    world.publish("b", range(4, 6))
    world.publish("a", range(1, 4))
    reading = world.read()
    reading.read_until(world.has("a", 3), "version 3 of a", ("a",))
    reading.read_until(world.has("b", 3), "version 3 of b", ("b",))
    eventually(lambda: reading.drain() or world.feeds["b"].fault)
    world.publish("a", range(4, 6))
    reading.read_until(world.has("a", 5), "version 5 of a", ("a",))
    bad = f"source b, topic {world.topics['b']}, offset 3: not JSON"
    for sources in (("b",), ("a", "b"), ()):
        with pytest.raises(SourceViolation, match=bad):
            reading.read_until(world.has("b", 4), "version 4 of b", sources)
    assert world.rows("b") == [1, 2, 3]
    assert world.next_offset("b") == 3


def test_records_that_the_topic_no_longer_has_are_missed(world: World) -> None:
    world.publish("a", range(1, 11))
    gone = TopicPartition(world.topics["a"], 0, 5)
    for done in world.admin.delete_records([gone]).values():
        done.result(patience())
    reading = world.read()
    with pytest.raises(SourceViolation, match="was deleted, recreated or cut while it was read"):
        reading.read_until(world.has("a", 10), "version 10 of a")
    assert world.rows("a") == []


def test_a_silent_topic_is_not_waited_for_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "_REPORT_EVERY", 0.1)
    said = r"version 1 of a has not arrived within 0 s.*publisher and the broker"
    with pytest.raises(Unreachable, match=said) as silent:
        world.read(0.5).read_until(world.has("a", 1), "version 1 of a", ["a"])
    assert silent.value.sources == {"a"}
    assert "waiting: version 1 of a has not arrived yet" in world.reports


def test_whoever_waits_stops_when_the_job_is_told_to(world: World) -> None:
    reading = world.read()
    threading.Timer(0.2, world.stopping.set).start()
    with pytest.raises(Stopped):
        reading.read_until(world.has("a", 1), "version 1 of a")


@pytest.mark.parametrize("worth", [1, 10**9], ids=["pool", "own"])
def test_what_breaks_the_reading_thread_breaks_the_wait_behind_what_was_read(
    world: World, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(lookahead, "_WORTH_THREADS", worth)
    world.publish("a", range(1, 4))
    reading = world.read()
    reading.read_until(world.has("a", 3), "version 3 of a")

    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Feed, "decode", broken)
    world.publish("a", [4])
    with pytest.raises(MemoryError, match="no room"):
        reading.read_until(world.has("a", 4), "version 4 of a")
    assert world.rows("a") == [1, 2, 3]
