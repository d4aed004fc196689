"""A job watches its broker and its sources, also while it has no question for them.

A thread for each of them looks every few seconds, so one that hangs does not hide another. A change
is reported once. The ends of the topics tell how far the views are behind.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from protocols.errors import Unreachable, ViewsweepError
from protocols.telling import Told
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.topics import consumer
from streaming.figures.heldback import HeldBack
from streaming.figures.measuring import Behind, Measures

_EVERY_SECONDS = 2.0
#: How long an answer may take.
_ANSWER_SECONDS = 5.0
#: Silence is reported after so long.
_SILENT_SECONDS = 4.0
#: Updates held back are reported after so long: usually the missing parts come at once.
_HELD_SECONDS = 10.0
_NO_ANSWER = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    # The password or a certificate was changed at the broker.
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
)
Report = Callable[[str], None]


class Presence:
    """Reports once that something does not answer, and once that it does again.

    Only after some seconds: a source that restarts is away for a moment.
    """

    def __init__(
        self,
        name: str,
        consequence: str,
        report: Report,
        clock: Callable[[], float] = time.time,
        source: str | None = None,
    ) -> None:
        """`source`: the one that it is about, if it is about one."""
        self._source = source
        self._name = name
        self._consequence = consequence
        self._report = report
        self._clock = clock
        #: The start of the first attempt without an answer.
        self._since: float | None = None
        self._said = False

    def attempt(self, ask: Callable[[], object]) -> bool:
        """Asks, and reports a change; False if the call raised Unreachable."""
        began = self._clock()
        try:
            ask()
        except Unreachable:
            self._failed(began)
            return False
        self._answered()
        return True

    def _failed(self, began: float) -> None:
        if self._since is None:
            self._since = began
        if not self._said and self._clock() - self._since >= _SILENT_SECONDS:
            self._said = True
            since = time.strftime("%H:%M:%S", time.localtime(self._since))
            words = f"{self._name} does not answer since {since}; {self._consequence}"
            self._report(Told(words, source=self._source))

    def _answered(self) -> None:
        if self._since is not None and self._said:
            away = self._clock() - self._since
            words = f"{self._name} answers again after {away:.0f} s"
            self._report(Told(words, source=self._source))
        self._since, self._said = None, False


@dataclass(frozen=True)
class Installed:
    """The progress of the views over a source, in records: offsets, added over its partitions."""

    #: So many are installed in every view, or not needed.
    records: int
    #: The first transaction that waits, if it is received: the records up to its end, and its
    #: commit time (seconds since the epoch).
    next: tuple[int, float] | None = None


class Backlog:
    """The records that the topics have and the views have not."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        #: Source → (time, its published records), one entry each time these had grown.
        self._ends: dict[str, deque[tuple[float, int]]] = {}

    def seen(self, source: str, end: int) -> None:
        """Notes the number of records that a source has published."""
        ends = self._ends.setdefault(source, deque())
        if not ends or ends[-1][1] != end:
            ends.append((self._clock(), end))

    def behind(self, installed: Mapping[str, Installed]) -> dict[str, Behind]:
        """How far the views are behind each source whose topic's end is known."""
        return {
            source: self._behind(self._ends[source], at)
            for source, at in installed.items()
            if source in self._ends
        }

    def _behind(self, ends: deque[tuple[float, int]], at: Installed) -> Behind:
        while len(ends) > 1 and ends[0][1] <= at.records:
            ends.popleft()
        records = max(0, ends[-1][1] - at.records)
        if not records:
            return Behind(0, 0.0)
        since = ends[0][0]
        if at.next is not None and at.next[0] > at.records:
            since = min(since, at.next[1])
        return Behind(records, max(0.0, self._clock() - since))


class Watching:
    """The threads that look, from `start` to the end of the job."""

    def __init__(
        self,
        kafka: Kafka,
        partitions: Mapping[str, Sequence[Partition]],
        installed: Callable[[], Mapping[str, Installed]],
        measures: Measures,
        report: Report,
        stopping: threading.Event,
    ) -> None:
        """`partitions`: source → where it publishes."""
        self._kafka = kafka
        self._partitions = dict(partitions)
        self._installed = installed
        self._measures = measures
        self._report = report
        self._stopping = stopping
        self._backlog = Backlog()
        #: View → the updates it holds back, since when unchanged, and whether that was reported.
        self._held: dict[str, tuple[HeldBack, float, bool]] = {}

    def start(self, statuses: Mapping[str, Callable[[float], object]]) -> None:
        """`statuses`: source → a call that asks it, giving up after so many seconds."""
        for source, status in statuses.items():
            name, consequence = f"source {source}", "its updates wait"
            presence = Presence(name, consequence, self._report, source=source)
            ask = partial(self._ask, source, status)
            self._begin(f"watching {source}", partial(self._look_at, source, presence, ask))
        self._begin("watching the broker", self._look_at_broker)

    def _begin(self, name: str, look: Callable[[], None]) -> None:
        threading.Thread(target=look, name=name, daemon=True).start()

    def _look_at(self, source: str, presence: Presence, ask: Callable[[], object]) -> None:
        while not self._stopping.wait(_EVERY_SECONDS):
            self._measures.reachable[source] = presence.attempt(ask)

    def _ask(self, source: str, status: Callable[[float], object]) -> None:
        """Asks for a status; a wrong answer is an answer too, and its users will report it."""
        try:
            status(_ANSWER_SECONDS)
        except ViewsweepError as error:
            if isinstance(error, Unreachable):
                self._measures.answers.failed(source, str(error))
                raise

    def _look_at_broker(self) -> None:
        broker = Presence(
            f"the broker at {self._kafka.bootstrap}",
            "no update arrives until it does",
            self._report,
        )
        with closing(consumer(self._kafka)) as asking:
            while True:
                known = broker.attempt(partial(self._ask_ends, asking))
                self._measures.behind = self._backlog.behind(self._installed()) if known else {}
                self._say_what_is_held(time.monotonic())
                if self._stopping.wait(_EVERY_SECONDS):
                    return

    def _ask_ends(self, asking: Consumer) -> None:
        for source, partitions in self._partitions.items():
            try:
                ends = [
                    asking.get_watermark_offsets(TopicPartition(*each), _ANSWER_SECONDS)
                    for each in partitions
                ]
            except KafkaException as error:
                if error.args[0].code() in _NO_ANSWER:
                    raise Unreachable(error.args[0].str()) from None
            else:
                self._backlog.seen(source, sum(end for _, end in ends))

    def look_again(self) -> None:
        """Computes the backlog again, with the present standings and the ends as last seen."""
        if self._measures.behind:
            self._measures.behind = self._backlog.behind(self._installed())

    def _say_what_is_held(self, now: float) -> None:
        held = dict(self._measures.held_back)
        for view in self._held.keys() - held.keys():
            _, _, said = self._held.pop(view)
            if said:
                self._report(Told(f"view {view} holds nothing back any more", view=view))
        for view, what in held.items():
            before, since, said = self._held.get(view, (what, now, False))
            if before.transactions != what.transactions:
                since, said = now, False
            if not said and now - since >= _HELD_SECONDS:
                self._report(Told(str(what), view=view))
                said = True
            self._held[view] = what, since, said
