"""The numbers of a database's transactions, by their order in the topic.

A thread reads the topic beside the job, for the ENDs alone: whoever asks the database a question
learns here which numbers the transactions have that its answer contains.
"""

import threading
import time
from array import array
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable
from protocols.exchange.deliveries import Numbers
from sources.debezium.decoding import changes_a_table
from sources.debezium.logform import LogForm
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.topics import consumer

_AT_ONCE = 10_000
_MOMENT = 0.05
#: The last transactions whose numbers at the database are remembered.
REMEMBERED = 1 << 16


@dataclass(frozen=True)
class Numbered:
    """A number, and where the reading goes on after it."""

    version: int
    #: No record of a later transaction is before this offset.
    offset: int
    #: The place in the database's log of the last commit before the offset.
    committed: int


class Numbering:
    """Numbers the transactions of one topic after a known one."""

    def __init__(
        self,
        kafka: Kafka,
        source: str,
        partition: Partition,
        form: LogForm,
        beginning: Numbered,
    ) -> None:
        self._source, self._partition, self._form = source, partition, form
        self._changed = threading.Condition()
        #: The last transaction that was numbered.
        self._last = beginning
        self._committed = beginning.committed
        #: The numbers at the database of the transactions `_first, _first + 1, …`.
        self._first = beginning.version + 1
        self._tx = array("q")
        #: Marks that are waited for → the last transaction numbered before them.
        self._awaited: dict[str | None, Numbered | None] = {}
        #: The fault that ended the thread.
        self._error: SourceViolation | None = None
        self._closing = False
        self._consumer = consumer(kafka)
        self._consumer.assign([TopicPartition(*partition, beginning.offset)])
        self._thread = threading.Thread(target=self._run, name=f"numbers of {source}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing = True
        self._thread.join()

    def expect(self, mark: str) -> None:
        """Notes that a mark with this content will come, before it is committed."""
        with self._changed:
            self._awaited[mark] = None

    def passed(self, mark: str, seconds: float) -> Numbered:
        """The last transaction numbered before an expected mark; waits for it.

        Unreachable if it does not come in time.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while (found := self._awaited[mark]) is None:
                if self._error is not None:
                    raise self._error
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    del self._awaited[mark]
                    raise self._silence(seconds)
            del self._awaited[mark]
            return found

    def _silence(self, seconds: float) -> Unreachable:
        return Unreachable(
            f"source {self._source}: a mark that was written into the database's log has not"
            f" arrived in topic {self._partition.topic} within {seconds:g} s. Start the connector,"
            " or its task if the task has failed, or correct the topic's name"
        )

    @property
    def last(self) -> Numbered:
        """The last transaction that was numbered."""
        with self._changed:
            return self._last

    @property
    def remembered(self) -> tuple[int, Numbers]:
        """The first version that is remembered, and the numbers at the database from it on."""
        with self._changed:
            return self._first, np.array(self._tx, np.int64)

    def _run(self) -> None:
        with closing(self._consumer):
            while not self._closing:
                messages = self._consumer.consume(_AT_ONCE, _MOMENT)
                try:
                    self._take(messages)
                except (KeyError, TypeError, ValueError) as error:
                    with self._changed:
                        self._error = SourceViolation(
                            f"source {self._source}: topic {self._partition.topic} has a record"
                            f" that is not one of Debezium's ({error!r}); correct the topic's name;"
                            " only the connector may write to that topic"
                        )
                        self._changed.notify_all()
                    return

    def _take(self, messages: list[Message]) -> None:
        found = []
        for message in messages:
            value = message.value()
            if message.error() is None and value is not None and self._matters(value):
                found.append((int(message.offset() or 0), orjson.loads(value)))
        if not found:
            return
        with self._changed:
            for offset, content in found:
                content = content.get("payload", content)
                if content.get("status") == "END":
                    self._number(offset, content)
                elif (mark := self._form.mark(content)) in self._awaited:
                    self._awaited[mark] = self._last
            if len(self._tx) > 2 * REMEMBERED:
                done = len(self._tx) - REMEMBERED
                del self._tx[:done]
                self._first += done
            self._changed.notify_all()

    def _matters(self, value: bytes) -> bool:
        """Whether a record may be an END or a mark: most are not, and need not be parsed."""
        return b'"status":"END"' in value or self._form.of_marks in value

    def _number(self, offset: int, end: dict[str, Any]) -> None:
        """Numbers a transaction at its END, unless it changes no table or came before."""
        tx, committed = self._form.transaction(end["id"])
        if committed <= self._committed:
            return
        self._committed = committed
        if changes_a_table(end, self._form):
            self._last = Numbered(self._last.version + 1, offset + 1, committed)
            self._tx.append(tx)
