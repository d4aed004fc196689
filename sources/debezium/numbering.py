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

from protocols.errors import Unreachable, ViewsweepError
from protocols.exchange.deliveries import Numbers
from sources.debezium.decoding import MESSAGES
from sources.partitions import Partition
from sources.topics import consumer

_AT_ONCE = 10_000
_MOMENT = 0.05
#: The last transactions whose numbers at the database are remembered.
REMEMBERED = 1 << 16
_END = b'"status":"END"'


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
        #: Transactions of ours that are waited for → the last one numbered before their END.
        self._awaited: dict[int, Numbered | None] = {}
        self._error: ViewsweepError | None = None
        self._closing = False
        self._consumer = consumer(bootstrap)
        self._consumer.assign([TopicPartition(*partition, beginning.offset)])
        self._thread = threading.Thread(target=self._run, name=f"numbers of {source}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing = True
        self._thread.join()

    def expect(self, tx: int) -> None:
        """Notes that an END of this transaction will come, before it is committed."""
        with self._changed:
            self._awaited[tx] = None

    def passed(self, tx: int, seconds: float) -> Numbered:
        """The last transaction numbered before the END of an expected one; waits for it.

        Unreachable if it does not come in time.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while (found := self._awaited[tx]) is None:
                if self._error is not None:
                    raise self._error
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    del self._awaited[tx]
                    raise Unreachable(
                        f"source {self._source}: a message that was written into the database's log"
                        f" has not come in topic {self._partition.topic} for {seconds:g} s: is the"
                        " connector running (its task, too), and does its publication stand?"
                    )
            del self._awaited[tx]
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
                except ViewsweepError as error:
                    with self._changed:
                        self._error = error
                        self._changed.notify_all()
                    return

    def _take(self, messages: list[Message]) -> None:
        ends = []
        for message in messages:
            value = message.value()
            if message.error() is not None or value is None or _END not in value:
                continue
            try:
                ends.append((int(message.offset() or 0), *_read(orjson.loads(value))))
            except (KeyError, TypeError, ValueError, orjson.JSONDecodeError):
                # The record of a row may have such a text in it.
                continue
        with self._changed:
            for end in ends:
                self._number(*end)
            if len(self._tx) > 2 * REMEMBERED:
                done = len(self._tx) - REMEMBERED
                del self._tx[:done]
                self._first += done
            if ends:
                self._changed.notify_all()

    def _number(self, offset: int, tx: int, committed: int, has_rows: bool) -> None:
        if committed <= self._committed:
            return
        self._committed = committed
        if has_rows:
            self._last = Numbered(self._last.version + 1, offset + 1, committed)
            self._tx.append(tx)
        if tx in self._awaited:
            self._awaited[tx] = self._last


def _read(content: dict[str, Any]) -> tuple[int, int, bool]:
    """The transaction of an END, the place of its commit, and whether it changes a table."""
    end = content.get("payload", content)
    if end["status"] != "END":
        raise KeyError("status")
    tx, _, committed = end["id"].partition(":")
    names = [each["data_collection"] for each in end["data_collections"] or ()]
    return int(tx), int(committed), any(MESSAGES not in name for name in names)
