"""The lookahead: reads the topics of a view, ahead of the batch that the job processes.

    thread   broker ─ consume ─> messages ─ Changes.decode ─> columns ─┐
    job                              mailbox <─ Changes.take <─────────┘ when it waits, or has time

While a batch is swept and committed, the records after it are fetched and decoded. An answer may
also contain updates that are in no batch yet, and they can be taken out only once they are here.

Only the job's thread touches changes and mailbox, so they change only when it takes something.
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
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from confluent_kafka import KafkaError, Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable, about
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.port import Changes
from sources.topics import consumer, lost
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
    """Reads the partitions of all sources, each from its next offset."""

    def __init__(
        self,
        kafka: Kafka,
        changes: Mapping[str, Changes],
        patience: float,
        report: Callable[[str], None],
        stopping: threading.Event,
        ahead_records: int = AHEAD_RECORDS,
    ) -> None:
        """`changes`: source → what takes its records."""
        self._changes = dict(changes)
        partitions = {p: each for each in changes.values() for p in each.next}
        self._patience = patience
        self._report = report
        self._stopping = stopping
        self._ahead = _Ahead(partitions, ahead_records)
        # The client's prefetching is bounded as well, by number and by size.
        bounds = {
            "queued.min.messages": ahead_records,
            "queued.max.messages.kbytes": max(1024, ahead_records * _RECORD_BYTES // 1024),
            "enable.partition.eof": True,
        }
        self._reader = _Reader(kafka, partitions, self._ahead, bounds)
        self._reader.start()

    def close(self) -> None:
        """Ends the thread and disconnects from the broker."""
        self._ahead.close()
        self._reader.join()

    def drain(self, sources: Collection[str] = ()) -> bool:
        """Takes the decoded records (of these sources, or of all) without waiting.

        Returns whether there were any. Decoded records of other sources stay where they are.
        """
        found = self._ahead.taken(self._partitions(sources or self._changes))
        for changes, decoded in found:
            if isinstance(decoded, _End):
                decoded.reach(changes)
            else:
                changes.take(decoded)
        return bool(found)

    def _partitions(self, sources: Iterable[str]) -> list[Partition]:
        return [partition for source in sources for partition in self._changes[source].next]

    def read_until(
        self, done: Callable[[], bool], waiting_for: str, sources: Collection[str] = ()
    ) -> None:
        """Reads these sources (all, if none are named) until `done` is true; see `read`."""
        wanted = Awaited(done, waiting_for)
        self.read(dict.fromkeys(sources or self._changes, wanted))

    def read(self, wanted: Mapping[str, "Awaited"]) -> None:
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
            self._ahead.wait(self._partitions(missing))
            waiting_for = next(iter(missing.values()))
            if time.monotonic() > deadline:
                with about(*missing):
                    raise Unreachable(
                        f"{waiting_for} has not arrived within {self._patience:.0f} s. Check that"
                        " the source's publisher and the broker are running, then run the same"
                        " command again"
                    )
            if time.monotonic() > reported:
                self._report(f"waiting: {waiting_for} has not arrived yet")
                reported = time.monotonic() + _REPORT_EVERY

    def _refuse_faults(self, sources: Collection[str]) -> None:
        for source in sources:
            if (fault := self._changes[source].fault) is not None:
                with about(source):
                    raise fault


@dataclass(frozen=True)
class _End:
    """Nothing is left to be read below this offset: what is there belongs to Kafka's transactions.

    Their marks take offsets, too, and so do records that were taken back. A consumer never sees
    them, but Spark counts them: a batch may end with them.
    """

    partition: Partition
    offset: int

    def reach(self, changes: Changes) -> None:
        """Goes on after it, unless a record before it could not be taken."""
        if changes.fault is None:
            changes.next[self.partition] = max(changes.next[self.partition], self.offset)


@dataclass(frozen=True)
class Awaited:
    """Something that the job waits for at a source."""

    done: Callable[[], bool]
    #: For messages.
    what: str


class _Ahead:
    """The decoded records that are not taken yet, of bounded weight; both threads use it."""

    def __init__(self, partitions: Mapping[Partition, Changes], limit: int) -> None:
        #: Nothing more is read from this weight on.
        self._limit = limit
        self._changed = threading.Condition()
        self._changes = dict(partitions)
        self._decoded: dict[Partition, list[Any]] = {partition: [] for partition in partitions}
        self._weights = dict.fromkeys(self._decoded, 0)
        #: The error that ended the reading thread, if one did.
        self._error: BaseException | None = None
        self.closed = False

    def put(self, partition: Partition, decoded: Any, weight: int) -> None:
        """Adds the next records of a partition."""
        with self._changed:
            self._decoded[partition].append(decoded)
            self._weights[partition] += weight
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Returns when there is room again, or when nobody will take records any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or not self._is_full())

    def taken(self, partitions: Collection[Partition]) -> list[tuple[Changes, Any]]:
        """Removes and returns all decoded records of these partitions, each in its order.

        If these have none and there is no room for any, those of the others are taken.
        """
        with self._changed:
            if self._is_full() and not self._has(partitions):
                partitions = list(self._decoded)
            found = [(self._changes[p], each) for p in partitions for each in self._decoded[p]]
            if self._error is not None and not found:
                raise self._error
            for partition in partitions:
                self._decoded[partition], self._weights[partition] = [], 0
            self._changed.notify_all()
            return found

    def wait(self, partitions: Collection[Partition]) -> None:
        """Returns when these have records, when all the room is taken, or after a moment."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or self._has(partitions) or self._is_full(), _MOMENT
            )

    def _has(self, partitions: Collection[Partition]) -> bool:
        return any(self._decoded[partition] for partition in partitions)

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
        self,
        kafka: Kafka,
        partitions: Mapping[Partition, Changes],
        ahead: _Ahead,
        bounds: Mapping[str, Any],
    ) -> None:
        super().__init__(name="lookahead", daemon=True)
        self._changes = dict(partitions)
        self._ahead = ahead
        self._decoding = ThreadPoolExecutor(min(len(partitions), os.cpu_count() or 1), "decoding")
        #: The pieces that are being decoded, in the order in which they were read.
        self._under_way: list[tuple[Partition, Future[list[_Weighed]]]] = []
        self._consumer = consumer(kafka, bounds)
        self._consumer.assign(
            [TopicPartition(*p, changes.next[p]) for p, changes in partitions.items()]
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
        read = by_partition(self._consumed())
        much = sum(map(len, read.values())) >= _WORTH_THREADS
        begun = [
            (partition, self._decoding.submit(self._decoded, partition, read[partition]))
            for partition in (read if much else ())
        ]
        self._hand_over()
        self._under_way = begun
        for partition in () if much else read:
            self._put(partition, self._decoded(partition, read[partition]))

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
        for partition, decoded in self._under_way:
            self._put(partition, decoded.result())

    def _put(self, partition: Partition, pieces: Iterable["_Weighed"]) -> None:
        for decoded, weight in pieces:
            self._ahead.put(partition, decoded, weight)

    def _decoded(self, partition: Partition, messages: list[Message]) -> list["_Weighed"]:
        """The decoded records of a partition, each piece with its weight."""
        changes = self._changes[partition]
        records = [m for m in messages if m.error() is None]
        found = [_decoded(changes, partition, records)] if records else []
        ends = losses(messages) if len(records) < len(messages) else ()
        found += [(changes.lost(partition, loss), 0) for loss in ends]
        last = messages[-1].error()
        if last is not None and last.code() == KafkaError._PARTITION_EOF:
            found.append((_End(partition, int(messages[-1].offset() or 0)), 0))
        return found


#: Decoded records and their weight.
_Weighed: TypeAlias = tuple[Any, int]


def by_partition(messages: list[Message]) -> dict[Partition, list[Message]]:
    """The messages by partition, without those about the client itself or about a broker."""
    found: dict[Partition, list[Message]] = {}
    for topic, of_topic in groupby(messages, Message.topic):
        for number, run in groupby(of_topic if topic else (), Message.partition):
            found.setdefault(Partition(str(topic), int(number or 0)), []).extend(run)
    return found


def _decoded(changes: Changes, partition: Partition, records: list[Message]) -> _Weighed:
    offsets = np.array([m.offset() for m in records], dtype=np.int64)
    values = pl.Series("value", [m.value() for m in records], pl.Binary)
    weight = len(records) + int((values.bin.size() // _RECORD_BYTES).sum())
    return changes.decode(partition, offsets, values), weight


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
