"""Kafka as the job sees it: checks before the start, and the lookahead.

The lookahead is a plain consumer that reads the topics beyond the micro-batch at hand. An answer
may contain updates that Spark has not delivered yet; to take them out again, they have to be
here.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable, WrongUse
from sources.topics import CLIENT_LOG
from streaming.feed import Feed
from streaming.stopping import Stopped

#: How long the broker may take to answer before it counts as away.
_PATIENCE = 15.0
#: A source that was started just now makes its topic in a moment.
_NEW_TOPIC_SECONDS = 5.0
_AT_ONCE = 10_000


def consumer(bootstrap: str) -> Consumer:
    """A consumer that belongs to no group and commits nothing."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "viewsweep-lookahead",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 10,
        },
        logger=CLIENT_LOG,
    )


def ends_of_topics(bootstrap: str, topics: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Source → (first offset still there, next offset to be written), all topics checked."""
    asking = consumer(bootstrap)
    try:
        return {
            source: _ends_of(asking, bootstrap, source, topic) for source, topic in topics.items()
        }
    except KafkaException as error:
        raise Unreachable(
            f"no Kafka broker answers at {bootstrap} ({error.args[0].str()}); start it, or correct"
            " kafka.bootstrap"
        ) from None
    finally:
        asking.close()


def _ends_of(asking: Consumer, bootstrap: str, source: str, topic: str) -> tuple[int, int]:
    deadline = time.monotonic() + _NEW_TOPIC_SECONDS
    while (metadata := _metadata(asking, topic)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if metadata is None:
        raise WrongUse(
            f"source {source}: there is no topic {topic!r} on the broker at {bootstrap}; start the"
            f" source so that it publishes, or set sources.{source}.topic"
        )
    if len(metadata.partitions) != 1:
        raise SourceViolation(
            f"source {source}: topic {topic!r} has {len(metadata.partitions)} partitions; it must"
            " have exactly one, or the order of commits is lost. Make it anew with one partition"
        )
    low, high = asking.get_watermark_offsets(TopicPartition(topic, 0), timeout=_PATIENCE)
    return int(low), int(high)


def _metadata(asking: Consumer, topic: str) -> Any:
    """What the broker knows of a topic, if it has it."""
    found = asking.list_topics(topic, timeout=_PATIENCE).topics.get(topic)
    return None if found is None or found.error is not None else found


def refuse_lost_records(source: str, topic: str, offset: int, ends: tuple[int, int]) -> None:
    """SourceViolation when the topic no longer has what comes after the vector."""
    low, high = ends
    if offset < low:
        raise SourceViolation(
            f"source {source}: topic {topic!r} begins at offset {low} now, and the view has read up"
            f" to {offset}; the updates between are lost. Remove the view's directory to make it"
            " anew, and keep the topic longer (retention.ms)"
        )
    if offset > high:
        raise SourceViolation(
            f"source {source}: topic {topic!r} ends at offset {high}, and the view has read up to"
            f" {offset}: the topic was made anew, or sources.{source}.topic names another one now."
            " Correct that, or remove the view's directory to make the view anew"
        )


class Lookahead:
    """Reads the topics of all feeds from where they stand; called when something is missing."""

    def __init__(
        self,
        bootstrap: str,
        feeds: Mapping[str, Feed],
        patience: float,
        report: Callable[[str], None],
        stopping: threading.Event,
    ) -> None:
        self._stopping = stopping
        self._feeds = {feed.topic: feed for feed in feeds.values()}
        self._patience = patience
        self._report = report
        self._consumer = consumer(bootstrap)
        self._consumer.assign(
            [TopicPartition(topic, 0, feed.next_offset) for topic, feed in self._feeds.items()]
        )

    def close(self) -> None:
        self._consumer.close()

    def read_until(self, done: Callable[[], bool], waiting_for: str) -> None:
        """Reads on until it is so; Unreachable when the topics stay silent for too long."""
        deadline = time.monotonic() + self._patience
        reported = time.monotonic() + 5.0
        while not done():
            if self._stopping.is_set():
                raise Stopped
            if self._read(0.2):
                deadline = time.monotonic() + self._patience
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{waiting_for} has not come for {self._patience:.0f} s; is the source's"
                    " publisher alive, and the broker? The same command goes on when it is back"
                )
            if time.monotonic() > reported:
                self._report(f"waiting: {waiting_for} has not arrived yet")
                reported = time.monotonic() + 5.0

    def _read(self, timeout: float) -> bool:
        """Whether anything came within the time."""
        message = self._consumer.poll(timeout)
        if message is None:
            return False
        messages = [message, *self._consumer.consume(_AT_ONCE, 0)]
        records = [m for m in messages if not _is_error(m)]
        for topic, feed in self._feeds.items():
            mine = [m for m in records if m.topic() == topic]
            if mine:
                offsets = pl.Series("offset", [m.offset() for m in mine], dtype=pl.Int64)
                feed.take(offsets, pl.Series("value", [m.value() for m in mine], dtype=pl.Binary))
        return bool(records)


def _is_error(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise SourceViolation(
            f"topic {message.topic()!r}: {error.str()}; what follows the view's position is gone."
            " Remove the view's directory to make it anew"
        )
    return True
