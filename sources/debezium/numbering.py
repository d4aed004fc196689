"""The numbers of a database's transactions, by their order in the topic.

A thread reads the topic beside the job, for the ENDs alone: whoever asks the database a question
learns here which numbers the transactions have that its answer contains.
"""

import threading
import time
from array import array
from base64 import b64decode
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable
from protocols.exchange.deliveries import Numbers
from sources.debezium.decoding import changes_a_table
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
        self, bootstrap: str, source: str, partition: Partition, beginning: Numbered
    ) -> None:
        self._source, self._partition = source, partition
        self._changed = threading.Condition()
        #: The last transaction that was numbered.
        self._last = beginning
        self._committed = beginning.committed
        #: The numbers at the database of the transactions `_first, _first + 1, …`.
        self._first = beginning.version + 1
        self._tx = array("q")
        #: Messages of ours that are waited for → the last transaction numbered before them.
        self._awaited: dict[str, Numbered | None] = {}
        #: The fault that ended the thread.
        self._error: SourceViolation | None = None
        self._closing = False
        self._consumer = consumer(bootstrap)
        self._consumer.assign([TopicPartition(*partition, beginning.offset)])
        self._thread = threading.Thread(target=self._run, name=f"numbers of {source}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing = True
        self._thread.join()

    def expect(self, message: str) -> None:
        """Notes that a message with this content will come, before it is committed."""
        with self._changed:
            self._awaited[message] = None

    def passed(self, message: str, seconds: float) -> Numbered:
        """The last transaction numbered before an expected message; waits for it.

        Unreachable if it does not come in time.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while (found := self._awaited[message]) is None:
                if self._error is not None:
                    raise self._error
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    del self._awaited[message]
                    raise Unreachable(
                        f"source {self._source}: a message that was written into the database's log"
                        f" has not come in topic {self._partition.topic} for {seconds:g} s. Start"
                        " the connector, or its task if that has failed, or name the right topic"
                    )
            del self._awaited[message]
            return found

    def upto(self, version: int) -> tuple[int, Numbers]:
        """The first version that is remembered, and the numbers at the database from it on.

        Earlier ones ended long ago.
        """
        with self._changed:
            return self._first, np.array(self._tx[: version + 1 - self._first], np.int64)

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
                            f" that is not one of Debezium's ({error!r}); name the right topic, to"
                            " which nobody else writes"
                        )
                        self._changed.notify_all()
                    return

    def _take(self, messages: list[Message]) -> None:
        found = []
        for message in messages:
            value = message.value()
            if message.error() is None and value is not None and _matters(value):
                found.append((int(message.offset() or 0), orjson.loads(value)))
        if not found:
            return
        with self._changed:
            for offset, content in found:
                content = content.get("payload", content)
                if content.get("status") == "END":
                    self._number(offset, content)
                elif content.get("op") == "m":
                    self._pass(content["message"])
            if len(self._tx) > 2 * REMEMBERED:
                done = len(self._tx) - REMEMBERED
                del self._tx[:done]
                self._first += done
            self._changed.notify_all()

    def _number(self, offset: int, end: dict[str, Any]) -> None:
        """Numbers a transaction at its END, unless it changes no table or came before."""
        tx, _, committed = end["id"].partition(":")
        if int(committed) <= self._committed:
            return
        self._committed = int(committed)
        if changes_a_table(end):
            self._last = Numbered(self._last.version + 1, offset + 1, self._committed)
            self._tx.append(int(tx))

    def _pass(self, message: dict[str, str]) -> None:
        content = b64decode(message["content"]).decode(errors="replace")
        if content in self._awaited:
            self._awaited[content] = self._last


def _matters(value: bytes) -> bool:
    """Whether a record may be an END or a message: most are not, and need not be parsed."""
    return b'"status":"END"' in value or b'"op":"m"' in value
