"""Copies a source's outbox to its topic: everything, in order, at least once.

The outbox and the topic are two stores without a common commit, so "exactly once" is impossible.
The rules:

- apart from repetitions, every partition of the topic is always a prefix of its part of the outbox;
- so a topic of one partition tells itself where to resume: after the version of its last record,
  since all records before it were sent earlier. With several partitions the watermark tells it;
- one producer keeps the order: it is idempotent, and a record that cannot be delivered ends it. The
  next producer asks the topic again;
- the watermark (`database.published`) passes a version only after all replicas have acknowledged
  all records of it and of the versions before it. It tells how far the source is published while
  the broker is down; if it is ahead of the topic, the topic has lost records, and they are sent
  again.

One thread does all of it. It shares only the database's short write lock with commits, and takes it
about once a second, to move the watermark.
"""

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from confluent_kafka import KafkaError, KafkaException, Producer

from protocols.errors import SourceViolation, Unreachable, ViewsweepError
from protocols.failures import as_ours
from sources.envelope import BadRecord, decode, record_key
from sources.history import differ, other_past, parting
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.simulated.database import SourceDatabase
from sources.topics import CLIENT_LOG, LARGEST_RECORD, TopicReader, ensure_topic

#: Records read from the outbox at once, and records that may wait for their acknowledgement: of one
#: transaction or of many, so that memory does not grow with the size of a transaction.
_READ = 5_000
_IN_FLIGHT = 50_000
_IN_FLIGHT_KBYTES = 128 * 1024
_PRODUCER: Mapping[str, Any] = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "acks": "all",
    "linger.ms": 2,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 2 * _IN_FLIGHT,
    "queue.buffering.max.kbytes": _IN_FLIGHT_KBYTES,
    "message.max.bytes": LARGEST_RECORD,
    "message.timeout.ms": 60_000,
    "allow.auto.create.topics": False,
    "topic.metadata.propagation.max.ms": 3_000,
    "reconnect.backoff.max.ms": 1_000,
}
_MARK_EVERY = 1.0
_ANSWER_WITHIN = 3.0
_TRY_AGAIN_AFTER = 0.5
#: The longest wait before the thread notices a stop request or a callback.
_MOMENT = 0.1


class Publisher:
    """Publishes one source in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        database: SourceDatabase,
        kafka: Kafka,
        topic: str,
        report: Callable[[str], None] = lambda _: None,
        partitions: int = 1,
    ) -> None:
        self.topic = topic
        self._partitions = [Partition(topic, number) for number in range(partitions)]
        #: Why publishing has ended for good; None while it runs.
        self.error: ViewsweepError | None = None
        #: The present obstacle to publishing; None if there is none.
        self.outage: str | None = None
        self._database = database
        self._kafka = kafka
        self._report = report
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"publisher of {database.source}", daemon=True
        )

    def start(self) -> None:
        """Starts the thread, which publishes or waits for the broker."""
        self._thread.start()

    def stop(self) -> None:
        """Finishes the records under way and ends. The rest is sent after the next start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._publish_until_it_fails()
        except BaseException as error:
            self._end(as_ours(error))

    def _publish_until_it_fails(self) -> None:
        try:
            begin = self._where_to_begin()
            delivery = _Delivery(self._database, self._kafka, self._partitions, begin)
            delivery.run(self._stopping, self._set_outage)
        except Unreachable as error:
            self._set_outage(str(error))
            self._stopping.wait(_TRY_AGAIN_AFTER)

    def _where_to_begin(self) -> int:
        """The version after which to send; the topic exists when this returns."""
        ensure_topic(self._kafka, self.topic, _ANSWER_WITHIN, len(self._partitions))
        if len(self._partitions) > 1:
            held = self._version_in_several()
        else:
            with TopicReader(self._kafka, self._partitions[0], _ANSWER_WITHIN) as reader:
                held = self._version_held(reader)
        if held < self._database.published:
            self._report(
                f"source {self._database.source}: topic {self.topic} ends with version {held},"
                f" and had {self._database.published}: sending the lost records again"
            )
        return held

    def _version_held(self, reader: TopicReader) -> int:
        """The last version that the topic holds completely, from the records at its ends."""
        low, high = reader.ends()
        if low == high:
            return 0
        if low == 0:
            self._refuse_later_beginning(self._head(reader.value_at(0)))
        end = self._checked_end(reader, low, high)
        return int(end["version"]) - int(end["order"] < end["count"])

    def _version_in_several(self) -> int:
        """The version up to which all partitions hold everything; 0 if the topic was recreated."""
        last = 0
        for partition in self._partitions:
            with TopicReader(self._kafka, partition, _ANSWER_WITHIN) as reader:
                low, high = reader.ends()
                if low < high:
                    last = max(last, int(self._checked_end(reader, low, high)["version"]))
        published = self._database.published
        return published if last >= published else 0

    def _checked_end(self, reader: TopicReader, low: int, high: int) -> dict[str, Any]:
        """The head of the last record; SourceViolation if it is not of this source's history."""
        end = self._head(reader.value_at(high - 1))
        if end["version"] > self._database.version:
            raise SourceViolation(
                f"topic {self.topic} has version {end['version']} of source"
                f" {self._database.source}, but the source is only at version"
                f" {self._database.version}: the source was reset. Name a new topic, or delete this"
                " one, and recreate the views over this source"
            )
        self._refuse_fork(reader, low, high - 1, end)
        return end

    def _head(self, record: bytes) -> dict[str, Any]:
        values = pl.Series([record], dtype=pl.Binary)
        try:
            return decode(values, self._database.catalog.relations).heads.row(0, named=True)
        except BadRecord as error:
            raise SourceViolation(
                f"topic {self.topic} holds a record that is not ours: {error.reason}. Stop the"
                " other writer and delete the topic: it is filled again from version 1"
            ) from None

    def _refuse_later_beginning(self, head: Mapping[str, Any]) -> None:
        if head["version"] > 1:
            raise SourceViolation(
                f"topic {self.topic} begins with version {head['version']} of source"
                f" {self._database.source}: the topic was recreated while the source was"
                " publishing. Delete it, and the source will refill it from version 1"
            )

    def _refuse_fork(
        self, reader: TopicReader, low: int, last: int, end: Mapping[str, Any]
    ) -> None:
        """SourceViolation if the topic holds records of a different history of the source."""

        def same(head: Mapping[str, Any]) -> bool:
            return not differ(head["digest"], self._database.digest_at(head["version"]))

        if same(end):
            return
        _, place = parting(lambda at: same(self._head(reader.value_at(at))), low - 1, last)
        version = int(self._head(reader.value_at(place))["version"])
        raise SourceViolation(
            f"topic {self.topic}: {other_past(self._database.source, version - 1, version)}"
        )

    def _set_outage(self, reason: str | None) -> None:
        """Reports once when publishing fails and once when it works again."""
        where = (
            f"source {self._database.source}, broker {self._kafka.bootstrap}, topic {self.topic}"
        )
        if reason is not None and self.outage is None:
            self._report(f"{where}: cannot publish ({reason}); commits go on, trying again")
        if reason is None and self.outage is not None:
            self._report(f"{where}: publishing again")
        self.outage = reason

    def _end(self, error: ViewsweepError) -> None:
        self.error = error
        self._report(f"source {self._database.source} is no longer published: {error}")


@dataclass
class _Sent:
    """A version on its way to the topic."""

    version: int
    #: Records handed to the producer and not yet acknowledged.
    left: int = 0
    #: The number of records handed to the producer, and whether these are all.
    begun: int = 0
    whole: bool = False


class _Delivery:
    """The life of one producer: sends the versions after `begin` until a delivery fails."""

    def __init__(
        self,
        database: SourceDatabase,
        kafka: Kafka,
        partitions: Sequence[Partition],
        begin: int,
    ) -> None:
        self._database = database
        self._topic = partitions[0].topic
        #: The last version whose records the producer has all received.
        self._sent = begin
        #: The next version, while more of its records are to come.
        self._current: _Sent | None = None
        #: The last version that is acknowledged, with all versions before it.
        self._acknowledged = begin
        #: The versions after that one, in order, and the number of their unacknowledged records.
        self._on_their_way: deque[_Sent] = deque()
        self._in_flight = 0
        #: The offset of the last acknowledged record of each partition.
        self._offsets = [-1] * len(partitions)
        self._failure: ViewsweepError | None = None
        self._suspicious = False
        self._marked_at = time.monotonic()
        settings = {**kafka.client(), **_PRODUCER, "error_cb": self._suspect}
        self._producer = Producer(settings, logger=CLIENT_LOG)

    def run(self, stopping: threading.Event, outage: Callable[[str | None], None]) -> None:
        """Sends until `stopping` is set; after Unreachable a new producer may succeed, any other
        error is final."""
        outage(None)
        try:
            while not stopping.is_set():
                self._send()
                self._settle()
                outage(self._probe())
            self._producer.flush(_ANSWER_WITHIN)
        finally:
            # Abandoned messages would otherwise be sent beside those of the next producer.
            self._producer.purge()
            self._producer.flush(_MOMENT)
            self._mark()

    def _send(self) -> None:
        """Hands the next records to the producer; waits briefly for a commit if there are none."""
        if self._in_flight >= _IN_FLIGHT or self._suspicious:
            return
        if self._current is None and self._in_flight == 0:
            self._database.wait_beyond(self._sent, _MOMENT)
        elif self._database.version <= self._sent:
            return
        begun = self._current.begun if self._current is not None else 0
        records = self._database.outbox(self._sent, _READ, begun)
        for version, record in records:
            if not self._produce(self._belonging_to(version), record):
                return
        if len(records) < _READ:
            self._completed()

    def _belonging_to(self, version: int) -> _Sent:
        """The state of this version; the version before it is complete by now."""
        if self._current is None or self._current.version != version:
            self._completed()
            self._current = _Sent(version)
            self._on_their_way.append(self._current)
        return self._current

    def _completed(self) -> None:
        if self._current is not None:
            self._current.whole = True
            self._sent = self._current.version
            self._current = None

    def _produce(self, sent: _Sent, record: bytes) -> bool:
        """Hands one record to the producer; False if it has no room."""
        try:
            self._producer.produce(
                self._topic,
                record,
                key := record_key(record, self._database.catalog),
                partition=self._partition(key or record),
                on_delivery=partial(self._delivered, sent),
            )
        except BufferError:
            return False
        except KafkaException as error:
            self._failure = self._failed(error.args[0], sent.version)
            raise self._failure from None
        sent.begun += 1
        sent.left += 1
        self._in_flight += 1
        return True

    def _partition(self, key: bytes) -> int:
        """Records of one key are in one partition, also when they are sent again."""
        several = len(self._offsets)
        return zlib.crc32(key) % several if several > 1 else 0

    def _delivered(self, sent: _Sent, error: KafkaError | None, message: Any) -> None:
        """Handles a delivery report. A failed record and all after it remain unacknowledged."""
        self._in_flight -= 1
        if self._failure is not None:
            return
        if error is not None:
            self._failure = self._failed(error, sent.version)
        elif message.offset() <= self._offsets[message.partition()]:
            self._failure = Unreachable(f"topic {self._topic} was recreated")
        else:
            self._offsets[message.partition()] = message.offset()
            sent.left -= 1

    def _failed(self, error: KafkaError, version: int) -> ViewsweepError:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return SourceViolation(
                f"a record of version {version} is larger than topic {self._topic} allows;"
                " raise the topic's max.message.bytes and start again"
            )
        return Unreachable(f"version {version} was not delivered: {error.str()}")

    def _settle(self) -> None:
        """Handles delivery reports, moves the watermark, and raises a failure."""
        self._producer.poll(_MOMENT / 20 if self._in_flight else 0)
        while self._on_their_way and self._on_their_way[0].whole and not self._on_their_way[0].left:
            self._acknowledged = self._on_their_way.popleft().version
        if self._failure is not None:
            raise self._failure
        if time.monotonic() - self._marked_at > _MARK_EVERY:
            self._mark()

    def _mark(self) -> None:
        self._marked_at = time.monotonic()
        if self._acknowledged > self._database.published:
            self._database.mark_published(self._acknowledged)

    def _suspect(self, error: KafkaError) -> None:
        """Notes an error of librdkafka. Many are harmless, so `_probe` checks the broker itself."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._suspicious = True
        if error.fatal() and self._failure is None:
            self._failure = Unreachable(f"the producer gave up: {error.str()}")

    def _probe(self) -> str | None:
        """The obstacle, if one was suspected and still exists."""
        if self._suspicious:
            try:
                self._producer.list_topics(timeout=1)
            except KafkaException as error:
                return str(error.args[0].str())
            self._suspicious = False
        return None
