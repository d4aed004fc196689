"""The lookahead: reads the topics of a view, ahead of what the job is at work on.

    thread   broker ─ consume ─> messages ─ Feed.decoded ─> chunks ─┐
    job                              mailbox <─ Feed.take <─────────┘ when it waits, or has time

While a batch is swept and committed, the records behind it are fetched and decoded. And an answer
may contain updates of no batch yet; to take them out again, they have to be here.

Only the job's thread touches feeds and mailbox, so nothing in them changes while nobody waits.
How far the thread may be ahead is bounded: it goes on when the job takes what is there.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
import polars as pl
from confluent_kafka import KafkaError, Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable
from streaming.feed import Chunk, Feed
from streaming.stopping import Stopped
from streaming.topics import consumer

#: How many records may be decoded and not yet taken, unless it is configured.
AHEAD_RECORDS = 50_000
#: A record counts once for each of so many bytes, begun ones included.
_RECORD_BYTES = 1024
_AT_ONCE = 10_000
#: The first record waits this long for others: to decode ten costs hardly more than one.
_GATHERING = 0.004
#: How long one wait may keep either thread from noticing that it is to stop.
_MOMENT = 0.1
_REPORT_EVERY = 5.0


class Lookahead:
    """Reads the topics of all feeds from where they stand."""

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
        self._ahead = _Ahead(ahead_records)
        self._reader = _Reader(bootstrap, self._feeds, self._ahead)
        self._reader.start()

    def close(self) -> None:
        """Ends the thread and lets go of the broker."""
        self._ahead.close()
        self._reader.join()

    def drain(self) -> bool:
        """Feeds what has been decoded, without waiting; whether there was anything."""
        chunks = self._ahead.taken()
        for topic, chunk in chunks:
            self._feeds[topic].take(chunk)
        return bool(chunks)

    def read_until(
        self, done: Callable[[], bool], waiting_for: str, sources: Collection[str] = ()
    ) -> None:
        """Reads on until it is so; Unreachable when the topics stay silent for too long.

        A record that cannot be taken is reported now, if it is in a topic of these sources (of
        any, if none are named): what is waited for lies behind it.
        """
        deadline = time.monotonic() + self._patience
        reported = time.monotonic() + _REPORT_EVERY
        while not done():
            if self._stopping.is_set():
                raise Stopped
            if self.drain():
                deadline = time.monotonic() + self._patience
                continue
            self._refuse_faults(sources)
            self._ahead.wait()
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
            if feed.fault is not None and (feed.source in sources or not sources):
                raise feed.fault


class _Ahead:
    """What has been decoded and not taken yet, of bounded weight; both threads use it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._chunks: deque[tuple[str, Chunk]] = deque()
        self._weight = 0
        #: What ended the reading thread, if anything did.
        self._error: Exception | None = None
        self.closed = False

    def put(self, topic: str, chunk: Chunk, weight: int) -> None:
        """Adds what comes next of a topic."""
        with self._changed:
            self._chunks.append((topic, chunk))
            self._weight += weight
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Returns when less is waiting than may, or when nobody will take it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._weight < self._limit or self.closed)

    def taken(self) -> list[tuple[str, Chunk]]:
        """All that is there, in order; it is gone from here then."""
        with self._changed:
            if self._error is not None and not self._chunks:
                raise self._error
            chunks = list(self._chunks)
            self._chunks.clear()
            self._weight = 0
            self._changed.notify_all()
            return chunks

    def wait(self) -> None:
        """Returns when something is there, or after a moment."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._error, _MOMENT)

    def end(self, error: Exception) -> None:
        """No more will come."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()


class _Reader(threading.Thread):
    """Consumes and decodes until it is told to stop."""

    def __init__(self, bootstrap: str, feeds: Mapping[str, Feed], ahead: _Ahead) -> None:
        super().__init__(name="lookahead", daemon=True)
        self._feeds = dict(feeds)
        self._ahead = ahead
        self._consumer = consumer(bootstrap)
        self._consumer.assign(
            [TopicPartition(topic, 0, feed.next_offset) for topic, feed in feeds.items()]
        )

    def run(self) -> None:
        try:
            while not self._ahead.closed:
                self._read()
                self._ahead.wait_for_room()
        except Exception as error:
            self._ahead.end(error)
        finally:
            self._consumer.close()

    def _read(self) -> None:
        first = self._consumer.poll(_MOMENT)
        if first is None:
            return
        for topic, messages in _by_topic([first, *self._consumer.consume(_AT_ONCE, _GATHERING)]):
            feed = self._feeds[topic]
            records = [m for m in messages if m.error() is None]
            if records:
                self._ahead.put(topic, _decoded(feed, records), _weight(records))
            for loss in _losses(messages):
                self._ahead.put(topic, feed.ended(loss), 0)


def _by_topic(messages: list[Message]) -> Iterable[tuple[str, list[Message]]]:
    """What belongs to a topic; what the client says about itself, or about a broker, does not."""
    topics: dict[str, list[Message]] = {}
    for topic, run in groupby(messages, Message.topic):
        if topic:
            topics.setdefault(topic, []).extend(run)
    return topics.items()


def _decoded(feed: Feed, records: list[Message]) -> Chunk:
    offsets = np.array([m.offset() for m in records], dtype=np.int64)
    return feed.decoded(offsets, pl.Series("value", [m.value() for m in records], pl.Binary))


def _weight(records: list[Message]) -> int:
    return sum(1 + len(m) // _RECORD_BYTES for m in records)


def _losses(messages: list[Message]) -> Iterator[SourceViolation]:
    """What these messages say of records that are no longer there."""
    for message in messages:
        error = message.error()
        if error is not None and error.code() in _LOST:
            yield SourceViolation(
                f"topic {message.topic()!r}: {error.str()}; what follows the view's position is"
                " gone. Remove the view's directory to make it anew"
            )


_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
