"""The vector at which a view begins: it contains no global transaction in part.

A source's status has its current version. By then one part of a global transaction may be committed
and another not. A view that began there would show half of it; and the other part, once it came,
would wait for ever for the first, which the view has already. So the view begins before the first
part of each transaction that is not whole (`legal_below`). These are past versions of the sources,
which makes no difference, because answers are corrected to any vector.

    versions ─> topics, for parts only ─> legal_below ─> vector, offsets, digests

A part may have waited for its partner since the beginning, so the topics are read from their start.
A record is parsed only if it may be a part, and parts of leading whole transactions are dropped.
The topic of a source that has committed no part, as its status says (`last_global`), is not read.
Nobody knows what a topic has lost; if a transaction may be incomplete because of that, the view is
refused.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable
from protocols.exchange.holdback import GlobalPart, legal_below
from protocols.views.tree import AnyView
from sources.envelope import Place, place_of
from streaming.intake.asking import Sources, digests_in, versions_in
from streaming.intake.lookahead import by_topic, losses
from streaming.intake.topics import consumer
from streaming.settings.configuration import Configuration
from streaming.stopping import Stopped
from warehouse.standing import Standing

#: The record of a part contains this; names may also be written with escapes.
_MAY_BE_PART = re.compile(rb'"global"|\\u')
_AT_ONCE = 25_000
#: Parts of whole transactions are dropped once so many parts are kept.
_MANY = 50_000
_MOMENT = 0.1
_REPORT_EVERY = 5.0


class Beginnings:
    """The first vectors of views that have no state yet."""

    def __init__(
        self,
        configuration: Configuration,
        sources: Sources,
        ends: Mapping[str, tuple[int, int]],
        statuses: Mapping[str, Mapping[str, Any]],
        report: Callable[[str], None],
        stopping: threading.Event,
    ) -> None:
        """`ends`: source → its topic's first and next offset, asked before the statuses."""
        self._configuration = configuration
        self._sources = sources
        self._ends, self._statuses = ends, statuses
        self._versions, self._digests = versions_in(statuses), digests_in(statuses)
        self._report, self._stopping = report, stopping

    def of(self, view: AnyView) -> Standing:
        """The latest standing, at or below the sources' versions, at which a view can begin."""
        vector = {source: self._versions[source] for source in view.sources}
        offsets = {source: self._ends[source][1] for source in vector}
        digests = {source: self._digests[source] for source in vector}
        found = {source: self._parts(source) for source in vector}
        if len(vector) > 1:
            self._read(view.name, found.values())
            _refuse_unknown(view.name, found)
        below = legal_below(vector, {source: each.parts for source, each in found.items()})
        for source in sorted(vector):
            version = below[source]
            if version == vector[source]:
                continue
            offsets[source] = found[source].offsets[version + 1]
            digests[source] = self._sources.digests(source, [version])[version]
            self._report(
                f"view {view.name}: begins at version {version} of source {source}, which stands at"
                f" {vector[source]}: version {version + 1} is a part of global transaction"
                f" {found[source].parts[version + 1].id!r}, which is not whole, or is mixed with"
                " one that is not"
            )
        return Standing(0, below, offsets, digests)

    def _parts(self, source: str) -> "Parts":
        """The parts of a source, none of them read yet."""
        version, (low, _) = self._versions[source], self._ends[source]
        upto = min(version, self._statuses[source].get("last_global", version))
        return Parts(source, self._configuration.sources[source].topic, low, upto)

    def _read(self, view: str, topics: Collection["Parts"]) -> None:
        """Reads the parts of global transactions in the topics."""
        if all(topic.is_read for topic in topics):
            return
        patience = self._configuration.job.patience_seconds
        looking = f"view {view}: looking for incomplete global transactions"
        with closing(consumer(self._configuration.bootstrap)) as reading:
            scan = _Scan(reading, topics, patience, partial(_tell, self._report, looking))
            while scan.missing():
                if self._stopping.is_set():
                    raise Stopped
                scan.go_on()


class Parts:
    """The parts of global transactions in one source's topic."""

    def __init__(self, source: str, topic: str, first_offset: int, upto: int) -> None:
        self.source, self.topic, self.first_offset = source, topic, first_offset
        #: The last version that matters; 0 if none does.
        self.upto = upto
        #: The last version that was read.
        self.read = 0
        #: Version → the global transaction that it is part of, and the offset of its first record.
        self.parts: dict[int, GlobalPart] = {}
        self.offsets: dict[int, int] = {}
        #: Whether the topic has lost the source's first records.
        self.is_cut = False
        self._begun = False
        self._last = 0

    @property
    def is_read(self) -> bool:
        return self.read >= self.upto

    def take(self, records: Sequence[tuple[int, bytes]]) -> None:
        """Takes the next records of the topic, each with its offset.

        A record that cannot be read is skipped: the feed reports it if the view needs it.
        """
        for offset, record in records:
            if _MAY_BE_PART.search(record):
                self._note(offset, record)
        if not self._begun:
            self._begin(records)
        if last := self._first_place(reversed(records)):
            self.read = max(self.read, last.version)

    def _begin(self, records: Sequence[tuple[int, bytes]]) -> None:
        if first := self._first_place(records):
            self._begun = True
            self.is_cut = (first.version, first.order) > (1, 1)

    def _first_place(self, records: Iterable[tuple[int, bytes]]) -> Place | None:
        """The place of the first of these records that can be read."""
        places = (place_of(record, self.source) for _, record in records)
        return next((place for place in places if place is not None), None)

    def _note(self, offset: int, record: bytes) -> None:
        place = place_of(record, self.source)
        # A part whose first records are lost is as good as lost.
        if place is None or place.part is None or place.order != 1 or place.version <= self._last:
            return
        self._last = place.version
        self.parts[place.version] = place.part
        self.offsets[place.version] = offset

    def forget(self, version: int) -> None:
        """Drops the parts of versions up to this one."""
        self.parts = {v: part for v, part in self.parts.items() if v > version}
        self.offsets = {v: offset for v, offset in self.offsets.items() if v > version}


class _Scan:
    """Reads topics side by side, each up to the last version that matters."""

    def __init__(
        self,
        reading: Consumer,
        topics: Collection[Parts],
        patience: float,
        tell: Callable[[int], None],
    ) -> None:
        self._reading = reading
        self._topics = {each.topic: each for each in topics}
        self._patience, self._tell = patience, tell
        unread = [each for each in topics if not each.is_read]
        reading.assign([TopicPartition(each.topic, 0, each.first_offset) for each in unread])
        self._records = 0
        self._kept = _MANY
        now = time.monotonic()
        self._deadline, self._told = now + patience, now

    def missing(self) -> list[Parts]:
        """The sources whose parts are not read completely."""
        return [each for each in self._topics.values() if not each.is_read]

    def go_on(self) -> None:
        """Takes the records of a moment; Unreachable if none has come for too long."""
        messages = self._reading.consume(_AT_ONCE, _MOMENT)
        for loss in losses(messages):
            raise loss
        for topic, run in by_topic(messages).items():
            self._take(self._topics[topic], run)
        self._forget_whole()
        now = time.monotonic()
        if now > self._told + _REPORT_EVERY:
            self._tell(self._records)
            self._told = now
        if now > self._deadline:
            self._give_up()

    def _take(self, parts: Parts, messages: Sequence[Message]) -> None:
        if parts.is_read:
            return
        values = ((int(m.offset() or 0), m.value()) for m in messages if m.error() is None)
        parts.take([(offset, value) for offset, value in values if value is not None])
        self._records += len(messages)
        self._deadline = time.monotonic() + self._patience
        if parts.is_read:
            self._reading.pause([TopicPartition(parts.topic, 0)])

    def _forget_whole(self) -> None:
        """Drops parts of transactions that are whole at or below the vector: they stay whole."""
        if sum(len(each.parts) for each in self._topics.values()) < self._kept:
            return
        known = {each.source: each.parts for each in self._topics.values()}
        read = {each.source: min(each.read, each.upto) for each in self._topics.values()}
        whole = legal_below(read, known)
        for each in self._topics.values():
            each.forget(whole[each.source])
        left = sum(len(each.parts) for each in self._topics.values())
        self._kept = max(_MANY, 2 * left)

    def _give_up(self) -> None:
        for each in self.missing():
            raise Unreachable(
                f"version {each.upto} of source {each.source} has not come in topic"
                f" {each.topic!r} for {self._patience:.0f} s; is the source's publisher alive, and"
                " the broker? The same command goes on when it is back"
            )


def _tell(report: Callable[[str], None], looking: str, records: int) -> None:
    report(f"{looking}: {records:,} records so far")


def _refuse_unknown(view: str, found: Mapping[str, Parts]) -> None:
    """SourceViolation for a part whose partner is in no topic, and may have been in one."""
    cut = {each.source: each for each in found.values() if each.is_cut}
    ids = {source: {part.id for part in each.parts.values()} for source, each in cut.items()}
    for each in found.values():
        for version, part in each.parts.items():
            for other in sorted(part.participants & cut.keys()):
                if version <= each.upto and part.id not in ids[other]:
                    raise SourceViolation(
                        f"view {view} cannot begin: version {version} of source {each.source} is a"
                        f" part of global transaction {part.id!r}, and topic {cut[other].topic!r}"
                        f" of source {other} has lost its first records, so nobody can tell"
                        " whether the other part was among them or has not come yet. If it has"
                        " not, start again when it has. Otherwise delete that topic: its source"
                        " fills it again from version 1; and keep it for good (retention.ms=-1)"
                    )
