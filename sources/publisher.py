"""Copies a source's outbox to its topic: everything, in order, at least once.

The outbox and the topic are two stores without a common commit, so something has to give way, and
what gives way is "exactly once". The rules:

- leaving out repetitions, what is in the topic is at every moment the outbox up to some point;
- so the topic itself tells where to go on: after the version of its last record. Whoever sent that
  one had sent all before it;
- within one producer nothing overtakes: it is idempotent, and a record that cannot be delivered
  ends it. The next producer asks the topic again;
- the watermark (`database.published`) only passes versions of which all records were acknowledged
  by all replicas, and all versions before them. It tells how far the source is published while the
  broker is away; if it is ahead of the topic, the topic has lost records, and they are sent again.

One thread does all of it. It shares nothing with commits but the database's short write lock, and
that only about once a second, to move the watermark.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from confluent_kafka import KafkaError, KafkaException, Producer

from protocols.errors import SourceViolation, Unreachable, ViewsweepError
from sources.database import SourceDatabase
from sources.envelope import BadRecord, decode, record_key
from sources.topics import CLIENT_LOG, LARGEST_RECORD, ensure_topic, first_and_last

#: Records read from the outbox at once, and how many may wait for their acknowledgement.
_READ = 5_000
_IN_FLIGHT = 50_000
_MARK_EVERY = 1.0
_ANSWER_WITHIN = 3.0
_TRY_AGAIN_AFTER = 0.5
#: How long one wait may keep the thread from noticing a stop or a callback.
_MOMENT = 0.1


class Publisher:
    """Publishes one source in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        database: SourceDatabase,
        bootstrap: str,
        topic: str,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.topic = topic
        #: Why publishing has ended for good; None while it goes on.
        self.error: ViewsweepError | None = None
        #: What is in the way at the moment; None while nothing is.
        self.outage: str | None = None
        self._database = database
        self._bootstrap = bootstrap
        self._report = report
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"publisher of {database.source}", daemon=True
        )

    def start(self) -> None:
        """Begins to publish, or to wait for the broker."""
        self._thread.start()

    def stop(self) -> None:
        """Sends what is on its way and ends. What is left is sent after the next start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._publish_until_it_fails()
        except ViewsweepError as error:
            self._end(error)
        except Exception as error:
            self._end(SourceViolation(f"publishing ended: {type(error).__name__}: {error}"))

    def _publish_until_it_fails(self) -> None:
        try:
            begin = self._where_to_begin()
            delivery = _Delivery(self._database, self._bootstrap, self.topic, begin)
            delivery.run(self._stopping, self._set_outage)
        except Unreachable as error:
            self._set_outage(str(error))
            self._stopping.wait(_TRY_AGAIN_AFTER)

    def _where_to_begin(self) -> int:
        """The version after which to send; the topic is there when this returns."""
        ensure_topic(self._bootstrap, self.topic, _ANSWER_WITHIN)
        first, last = first_and_last(self._bootstrap, self.topic, _ANSWER_WITHIN)
        held = 0 if last is None else self._version_held(first, last)
        if held < self._database.published:
            self._report(
                f"source {self._database.source}: topic {self.topic} ends with version {held},"
                f" and had {self._database.published}: sending what it lost again"
            )
        return held

    def _version_held(self, first: bytes | None, last: bytes) -> int:
        """The last version that the topic has as a whole, from the records at its ends."""
        values = pl.Series([first, last], dtype=pl.Binary)
        try:
            heads = decode(values, self._database.catalog.relations).heads.rows(named=True)
        except BadRecord as error:
            raise SourceViolation(
                f"topic {self.topic} holds a record that is not ours: {error.reason}"
            ) from None
        end, source = heads[-1], self._database.source
        if first is not None and heads[0]["version"] > 1:
            raise SourceViolation(
                f"topic {self.topic} begins with version {heads[0]['version']} of source {source}:"
                " it was made anew while being written. Delete it, and it is filled from version 1"
            )
        if end["version"] > self._database.version:
            raise SourceViolation(
                f"topic {self.topic} has version {end['version']} of source {source}, which is at"
                f" {self._database.version}: the source was reset. Name a new topic, or delete this"
                " one, and make the views over this source anew"
            )
        return int(end["version"]) - int(end["order"] < end["count"])

    def _set_outage(self, reason: str | None) -> None:
        """Speaks once when publishing stops to work and once when it works again."""
        where = f"source {self._database.source}, broker {self._bootstrap}, topic {self.topic}"
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
    #: Records that are not acknowledged yet.
    left: int


class _Delivery:
    """One producer's life: sends what comes after `begin` until a record cannot be delivered."""

    def __init__(self, database: SourceDatabase, bootstrap: str, topic: str, begin: int) -> None:
        self._database = database
        self._topic = topic
        #: The last version handed to the producer.
        self._sent = begin
        #: The last version that is acknowledged together with all before it.
        self._acknowledged = begin
        #: Versions after that one, in order, and how many records they have altogether.
        self._on_their_way: deque[_Sent] = deque()
        self._in_flight = 0
        #: Where in the topic the last acknowledged record is.
        self._offset = -1
        self._failure: ViewsweepError | None = None
        self._suspicious = False
        self._marked_at = time.monotonic()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 2 * _IN_FLIGHT,
                "queue.buffering.max.kbytes": 1024 * 1024,
                "message.max.bytes": LARGEST_RECORD,
                "message.timeout.ms": 60_000,
                "allow.auto.create.topics": False,
                "topic.metadata.propagation.max.ms": 3_000,
                "reconnect.backoff.max.ms": 1_000,
                "error_cb": self._suspect,
            },
            logger=CLIENT_LOG,
        )

    def run(self, stopping: threading.Event, outage: Callable[[str | None], None]) -> None:
        """Unreachable: a new producer may have more luck. Any other error is for good."""
        outage(None)
        try:
            while not stopping.is_set():
                self._send()
                self._settle()
                outage(self._probe())
            self._producer.flush(_ANSWER_WITHIN)
        finally:
            # Messages that nobody waits for any more would be sent behind the next producer's back.
            self._producer.purge()
            self._producer.flush(_MOMENT)
            self._mark()

    def _send(self) -> None:
        """Hands over the next versions; waits a moment for a commit if there is none."""
        if self._in_flight >= _IN_FLIGHT or self._suspicious:
            return
        if self._in_flight == 0:
            self._database.wait_beyond(self._sent, _MOMENT)
        elif self._database.version <= self._sent:
            return
        for version, record in self._database.outbox(self._sent, _READ):
            if not self._on_their_way or self._on_their_way[-1].version != version:
                self._on_their_way.append(_Sent(version, 0))
            self._produce(self._on_their_way[-1], record)
            self._sent = version

    def _produce(self, sent: _Sent, record: bytes) -> None:
        sent.left += 1
        self._in_flight += 1
        try:
            self._producer.produce(
                self._topic,
                record,
                record_key(record, self._database.catalog),
                partition=0,
                on_delivery=partial(self._delivered, sent),
            )
        except KafkaException as error:
            self._failure = self._failed(error.args[0], sent.version)
            raise self._failure from None

    def _delivered(self, sent: _Sent, error: KafkaError | None, message: Any) -> None:
        """A record's fate. The one that failed, and all after it, remain unacknowledged."""
        self._in_flight -= 1
        if self._failure is not None:
            return
        if error is not None:
            self._failure = self._failed(error, sent.version)
        elif message.offset() <= self._offset:
            self._failure = Unreachable(f"topic {self._topic} was made anew")
        else:
            self._offset = message.offset()
            sent.left -= 1

    def _failed(self, error: KafkaError, version: int) -> ViewsweepError:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return SourceViolation(
                f"a record of version {version} is larger than topic {self._topic} takes;"
                " raise the topic's max.message.bytes and start again"
            )
        return Unreachable(f"version {version} was not delivered: {error.str()}")

    def _settle(self) -> None:
        """Lets the delivery reports in, moves the watermark, and ends on a failure."""
        self._producer.poll(_MOMENT / 20 if self._in_flight else 0)
        while self._on_their_way and self._on_their_way[0].left == 0:
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
        """librdkafka had trouble. It often is none, so `_probe` looks for itself."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._suspicious = True
        if error.fatal() and self._failure is None:
            self._failure = Unreachable(f"the producer gave up: {error.str()}")

    def _probe(self) -> str | None:
        """What is in the way, if something seemed to be and still is."""
        if self._suspicious:
            try:
                self._producer.list_topics(timeout=1)
            except KafkaException as error:
                return str(error.args[0].str())
            self._suspicious = False
        return None
