"""The lookahead: reads the topics of a view, ahead of the batch that the job processes.

    thread   broker ─ consume ─> messages ─ Feed.decoded ─> chunks ─┐
    job                              mailbox <─ Feed.take <─────────┘ when it waits, or has time

While a batch is swept and committed, the records after it are fetched and decoded. An answer may
also contain updates that are in no batch yet, and they can be taken out only once they are here.

Only the job's thread touches feeds and mailbox, so they change only when the job takes something.
The thread's lead is bounded: it goes on when the job takes decoded records. The job takes only the
sources that it waits for, so while one source is slow, the others do not fill the mailbox with
records that nobody needs yet. They are taken only when they fill all the room. (Pausing their
topics at the client would avoid even that, but each resumption costs up to a second.)
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np
import polars as pl
from confluent_kafka import KafkaError, Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable
from streaming.intake.chunks import Chunk
from streaming.intake.feed import Feed
from streaming.intake.topics import consumer, lost
from streaming.stopping import Stopped

#: About so many records of all topics may be decoded and not yet taken.
AHEAD_RECORDS = 50_000
#: The weight of a record is its size in units of so many bytes, rounded up.
_RECORD_BYTES = 1024
#: At most so many are read at once: every relation in a piece costs milliseconds by itself.
_AT_ONCE = 25_000
#: From so many records on, topics are decoded side by side; decoding releases Python's lock.
_WORTH_THREADS = 1_000
#: The first record waits this long for others: decoding ten costs hardly more than one.
_GATHERING = 0.004
#: The longest wait after which either thread notices that it has to stop.
_MOMENT = 0.1
_REPORT_EVERY = 5.0


class Lookahead:
    """Reads the topics of all feeds, each from its next offset."""

    def __init__(
        self,
        bootstrap: str,
        feeds: Mapping[str, Feed],
        patience: float,
        report: Callable[[str], None],
        stopping: threading.Event,
        ahead_records: int = AHEAD_RECORDS,
    ) -> None:
        self._feeds = {feed.topic: feed for feed in feeds.values()}
        self._patience = patience
        self._report = report
        self._stopping = stopping
        self._ahead = _Ahead(self._feeds, ahead_records)
        # The client's prefetching is bounded as well, by number and by size.
        bounds = {
            "queued.min.messages": ahead_records,
            "queued.max.messages.kbytes": max(1024, ahead_records * _RECORD_BYTES // 1024),
        }
        self._reader = _Reader(bootstrap, self._feeds, self._ahead, bounds)
        self._reader.start()

    def close(self) -> None:
        """Ends the thread and disconnects from the broker."""
        self._ahead.close()
        self._reader.join()

    def drain(self, sources: Collection[str] = ()) -> bool:
        """Takes the decoded records (of these sources, or of all) without waiting.

        Returns whether there were any. Decoded records of other sources stay where they are.
        """
        topics = [topic for topic, feed in self._feeds.items() if feed.source in sources]
        chunks = self._ahead.taken(topics or self._feeds)
        for topic, chunk in chunks:
            self._feeds[topic].take(chunk)
        return bool(chunks)

    def read_until(
        self, done: Callable[[], bool], waiting_for: str, sources: Collection[str] = ()
    ) -> None:
        """Reads these sources (all, if none are named) until `done` is true; see `read`."""
        every = [feed.source for feed in self._feeds.values()]
        self.read({source: Wanted(done, waiting_for) for source in sources or every})

    def read(self, wanted: Mapping[str, "Wanted"]) -> None:
        """Reads each of these sources, and no other, until it has what is wanted of it.

        Unreachable when the topics stay silent for too long. A record of these sources that cannot
        be taken raises its fault now: the wanted records come after it.
        """
        deadline = time.monotonic() + self._patience
        reported = time.monotonic() + _REPORT_EVERY
        while missing := {s: each.what for s, each in wanted.items() if not each.done()}:
            if self._stopping.is_set():
                raise Stopped
            if self.drain(missing):
                deadline = time.monotonic() + self._patience
                continue
            self._refuse_faults(missing)
            self._ahead.wait([t for t, feed in self._feeds.items() if feed.source in missing])
            waiting_for = next(iter(missing.values()))
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{waiting_for} has not come for {self._patience:.0f} s; is the source's"
                    " publisher alive, and the broker? The same command goes on when it is back"
                )
            if time.monotonic() > reported:
                self._report(f"waiting: {waiting_for} has not arrived yet")
                reported = time.monotonic() + _REPORT_EVERY

    def _refuse_faults(self, sources: Collection[str]) -> None:
        for feed in self._feeds.values():
            if feed.fault is not None and feed.source in sources:
                raise feed.fault


@dataclass(frozen=True)
class Wanted:
    """Something that the job waits for at a source."""

    done: Callable[[], bool]
    #: For messages.
    what: str


class _Ahead:
    """The decoded records that are not taken yet, of bounded weight; both threads use it."""

    def __init__(self, topics: Iterable[str], limit: int) -> None:
        #: Nothing more is read from this weight on.
        self._limit = limit
        self._changed = threading.Condition()
        self._chunks: dict[str, list[Chunk]] = {topic: [] for topic in topics}
        self._weights = dict.fromkeys(self._chunks, 0)
        #: The error that ended the reading thread, if one did.
        self._error: BaseException | None = None
        self.closed = False

    def put(self, topic: str, chunk: Chunk, weight: int) -> None:
        """Adds the next records of a topic."""
        with self._changed:
            self._chunks[topic].append(chunk)
            self._weights[topic] += weight
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Returns when there is room again, or when nobody will take records any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or not self._is_full())

    def taken(self, topics: Collection[str]) -> list[tuple[str, Chunk]]:
        """Removes and returns all decoded records of these topics, each in its order.

        If these topics have none and there is no room for any, those of the others are taken.
        """
        with self._changed:
            if self._is_full() and not self._has(topics):
                topics = list(self._chunks)
            chunks = [(topic, chunk) for topic in topics for chunk in self._chunks[topic]]
            if self._error is not None and not chunks:
                raise self._error
            for topic, _ in chunks:
                self._chunks[topic], self._weights[topic] = [], 0
            self._changed.notify_all()
            return chunks

    def wait(self, topics: Collection[str]) -> None:
        """Returns when these topics have records, when all the room is taken, or after a moment."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or self._has(topics) or self._is_full(), _MOMENT
            )

    def _has(self, topics: Collection[str]) -> bool:
        return any(self._chunks[topic] for topic in topics)

    def _is_full(self) -> bool:
        return sum(self._weights.values()) >= self._limit

    def end(self, error: BaseException) -> None:
        """Notes that the reading thread has ended: no more records will come."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()


class _Reader(threading.Thread):
    """Consumes and decodes until it has to stop.

    Large pieces are decoded by other threads, outside of Python's lock, while more is consumed.
    """

    def __init__(
        self, bootstrap: str, feeds: Mapping[str, Feed], ahead: _Ahead, bounds: Mapping[str, int]
    ) -> None:
        super().__init__(name="lookahead", daemon=True)
        self._feeds = dict(feeds)
        self._ahead = ahead
        self._decoding = ThreadPoolExecutor(min(len(feeds), os.cpu_count() or 1), "decoding")
        #: The pieces that are being decoded, in the order in which they were read.
        self._under_way: list[tuple[str, Future[list[_Weighed]]]] = []
        self._consumer = consumer(bootstrap, bounds)
        self._consumer.assign(
            [TopicPartition(topic, 0, feed.next_offset) for topic, feed in feeds.items()]
        )

    def run(self) -> None:
        try:
            while not self._ahead.closed:
                self._read()
                self._ahead.wait_for_room()
        except BaseException as error:
            self._ahead.end(error)
        finally:
            self._decoding.shutdown()
            self._consumer.close()

    def _read(self) -> None:
        topics = by_topic(self._consumed())
        much = sum(map(len, topics.values())) >= _WORTH_THREADS
        begun = [
            (topic, self._decoding.submit(self._chunks, topic, topics[topic]))
            for topic in (topics if much else ())
        ]
        self._hand_over()
        self._under_way = begun
        for topic in () if much else topics:
            self._put(topic, self._chunks(topic, topics[topic]))

    def _consumed(self) -> list[Message]:
        """The records that have come or come while others are decoded: larger pieces cost less.

        Waits for the first one if none are being decoded.
        """
        first = self._consumer.poll(0 if self._under_way else _MOMENT)
        messages = [] if first is None else [first]
        while messages or self._is_decoding():
            messages += self._consumer.consume(_AT_ONCE, _GATHERING)
            if len(messages) >= _AT_ONCE or not self._is_decoding():
                break
        return messages

    def _is_decoding(self) -> bool:
        return not all(decoded.done() for _, decoded in self._under_way)

    def _hand_over(self) -> None:
        """Puts the pieces under way into the room, each when it is decoded."""
        for topic, decoded in self._under_way:
            self._put(topic, decoded.result())

    def _put(self, topic: str, chunks: Iterable["_Weighed"]) -> None:
        for chunk, weight in chunks:
            self._ahead.put(topic, chunk, weight)

    def _chunks(self, topic: str, messages: list[Message]) -> list["_Weighed"]:
        """The decoded records of a topic, each piece with its weight."""
        feed = self._feeds[topic]
        records = [m for m in messages if m.error() is None]
        found = [_decoded(feed, records)] if records else []
        ends = losses(messages) if len(records) < len(messages) else ()
        return [*found, *((feed.ended(loss), 0) for loss in ends)]


#: A chunk and its weight.
_Weighed: TypeAlias = tuple[Chunk, int]


def by_topic(messages: list[Message]) -> dict[str, list[Message]]:
    """The messages by topic, without those about the client itself or about a broker."""
    topics: dict[str, list[Message]] = {}
    for topic, run in groupby(messages, Message.topic):
        if topic:
            topics.setdefault(topic, []).extend(run)
    return topics


def _decoded(feed: Feed, records: list[Message]) -> _Weighed:
    offsets = np.array([m.offset() for m in records], dtype=np.int64)
    values = pl.Series("value", [m.value() for m in records], pl.Binary)
    weight = len(records) + int((values.bin.size() // _RECORD_BYTES).sum())
    return feed.decoded(offsets, values), weight


def losses(messages: list[Message]) -> Iterator[SourceViolation]:
    """The losses of records that these messages report."""
    for message in messages:
        error = message.error()
        if error is not None and error.code() in _LOST:
            yield lost(str(message.topic()), error.str())


_LOST = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
