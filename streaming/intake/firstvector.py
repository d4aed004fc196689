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

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from functools import partial

from confluent_kafka import Consumer, Message, TopicPartition

from protocols.errors import SourceViolation, Unreachable
from protocols.exchange.holdback import legal_below
from protocols.telling import Told
from protocols.views.tree import AnyView
from sources.partitions import Ends, Partition, Token, token_of
from sources.port import Description, Parts
from sources.topics import consumer
from streaming.intake.asking import Sources, versions_in
from streaming.intake.lookahead import by_partition, losses
from streaming.settings.configuration import Configuration
from streaming.stopping import Stopped
from warehouse.standing import Standing

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
        ends: Mapping[str, Ends],
        described: Mapping[str, Description],
        report: Callable[[str], None],
        stopping: threading.Event,
    ) -> None:
        """`ends`: source → the ends of its partitions, asked before the descriptions."""
        self._configuration = configuration
        self._sources = sources
        self._ends, self._described = ends, described
        self._versions = versions_in(described)
        self._report, self._stopping = report, stopping

    def of(self, view: AnyView) -> Standing:
        """The latest standing, at or below the sources' versions, at which a view can begin."""
        vector = {source: self._versions[source] for source in view.sources}
        tokens = {source: self._token(source) for source in vector}
        digests = {source: self._described[source].digest for source in vector}
        found = {source: self._parts(source) for source in vector}
        if len(vector) > 1:
            self._read(view.name, found.values())
            _refuse_unknown(view.name, found)
        below = legal_below(vector, {source: each.parts for source, each in found.items()})
        for source in sorted(vector):
            version = below[source]
            if version == vector[source]:
                continue
            tokens[source] = found[source].token_before(version + 1)
            digests[source] = self._sources.digests(source, [version])[version]
            words = (
                f"view {view.name}: begins at version {version} of source {source}, which stands at"
                f" {vector[source]}: version {version + 1} is a part of global transaction"
                f" {found[source].parts[version + 1].id!r}, which is not whole, or is mixed with"
                " one that is not"
            )
            self._report(Told(words, view=view.name, source=source))
        return Standing(0, below, tokens, digests)

    def _token(self, source: str) -> Token:
        """The token after the source's version: its own, or the ends of its partitions."""
        token = self._described[source].token
        ends = self._ends[source].items()
        return token or token_of({partition: high for partition, (_, high) in ends})

    def _parts(self, source: str) -> Parts:
        """The parts of a source, none of them read yet."""
        version, known = self._versions[source], self._described[source].last_global
        upto = version if known is None else min(version, known)
        kafka = self._configuration.kafka
        return self._sources.parts(kafka, source, self._ends[source], upto)

    def _read(self, view: str, found: Collection[Parts]) -> None:
        """Reads the parts of global transactions in the topics."""
        if all(each.is_read for each in found):
            return
        patience = self._configuration.job.patience_seconds
        looking = f"view {view}: looking for incomplete global transactions"
        with closing(consumer(self._configuration.kafka)) as reading:
            scan = _Scan(reading, found, patience, partial(_tell, self._report, looking))
            while scan.missing():
                if self._stopping.is_set():
                    raise Stopped
                scan.go_on()


class _Scan:
    """Reads sources side by side, each up to the last version that matters."""

    def __init__(
        self,
        reading: Consumer,
        found: Collection[Parts],
        patience: float,
        tell: Callable[[int], None],
    ) -> None:
        self._reading = reading
        self._found = list(found)
        self._partitions = {partition: each for each in found for partition in each.begin}
        self._patience, self._tell = patience, tell
        begin = [item for each in self.missing() for item in each.begin.items()]
        reading.assign([TopicPartition(*partition, offset) for partition, offset in begin])
        self._records = 0
        self._kept = _MANY
        now = time.monotonic()
        self._deadline, self._told = now + patience, now

    def missing(self) -> list[Parts]:
        """The sources whose parts are not read completely."""
        return [each for each in self._found if not each.is_read]

    def go_on(self) -> None:
        """Takes the records of a moment; Unreachable if none has come for too long."""
        messages = self._reading.consume(_AT_ONCE, _MOMENT)
        for loss in losses(messages):
            raise loss
        for partition, run in by_partition(messages).items():
            self._take(partition, run)
        self._forget_whole()
        now = time.monotonic()
        if now > self._told + _REPORT_EVERY:
            self._tell(self._records)
            self._told = now
        if now > self._deadline:
            self._give_up()

    def _take(self, partition: Partition, messages: Sequence[Message]) -> None:
        parts = self._partitions[partition]
        if parts.is_read:
            return
        values = ((int(m.offset() or 0), m.value()) for m in messages if m.error() is None)
        parts.take(partition, [(offset, value or b"") for offset, value in values])
        self._records += len(messages)
        self._deadline = time.monotonic() + self._patience
        if parts.is_read:
            self._reading.pause([TopicPartition(*each) for each in parts.begin])

    def _forget_whole(self) -> None:
        """Drops parts of transactions that are whole at or below the vector: they stay whole."""
        if sum(len(each.parts) for each in self._found) < self._kept:
            return
        known = {each.source: each.parts for each in self._found}
        read = {each.source: min(each.read, each.upto) for each in self._found}
        whole = legal_below(read, known)
        for each in self._found:
            each.forget(whole[each.source])
        left = sum(len(each.parts) for each in self._found)
        self._kept = max(_MANY, 2 * left)

    def _give_up(self) -> None:
        for each in self.missing():
            raise Unreachable(
                f"version {each.upto} of source {each.source} has not arrived in {_named(each)}"
                f" within {self._patience:.0f} s. Check that the source's publisher and the broker"
                " are running, then run the same command again"
            )


def _named(parts: Parts) -> str:
    """The topics of a source, for messages."""
    return " and ".join(f"topic {name!r}" for name in sorted({p.topic for p in parts.begin}))


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
                        f" part of global transaction {part.id!r}, and {_named(cut[other])}"
                        f" of source {other} has lost its first records, so nobody can tell"
                        " whether the other part was among them or has not come yet. If it has"
                        " not arrived yet, run the command again once it has. Otherwise delete that"
                        " topic: its source fills it again from version 1; and keep it for good"
                        " (retention.ms=-1)"
                    )
