"""Planted defects: adapters of the simulated sources that each break some rules."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.inclusion import Prefix
from protocols.exchange.questions import Answer, Query, Question
from protocols.views.catalog import Relation
from protocols.views.statistics import Statistics
from sources.envelope.chunks import Chunk, Decoded, Heads
from sources.envelope.feed import Feed
from sources.history import UNKNOWN
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Partition, Token, offsets_in, token_of
from sources.port import Changes, Description, Receiver
from sources.simulated.source import SimulatedSource

# -- of changes ----------------------------------------------------------------------------------


def reading(kind: type[Feed]) -> type[SimulatedSource]:
    """An adapter with this feed."""

    class Reading(SimulatedSource):
        def changes(
            self,
            relations: Sequence[Relation],
            receiver: Receiver,
            offsets: Offsets,
            _more: Sequence[int],
            digest: int,
        ) -> Changes:
            return kind(self.name, relations, receiver, offsets, digest)

    return Reading


class DropsNoRepetitions(Feed):
    def _not_repeated(self, heads: Heads, _last: Any) -> Any:
        return np.full(len(heads), True)


class ForgetsTheBeginning(Feed):
    """Of a transaction that comes in two pieces."""

    def _keep_open(self, fresh: Chunk) -> None:
        super()._keep_open(replace(fresh, rows={}))


class TokenTooLate(Feed):
    """It passes over one record."""

    def token_after(self, version: int) -> Token:
        first, offset, *others = super().token_after(version)
        return first, offset + 1, *others


class TokenOfTheWrongPartition(Feed):
    """Each partition has the offset of another one."""

    def token_after(self, version: int) -> Token:
        offsets = offsets_in(super().token_after(version), self.next) or {}
        ordered = sorted(offsets)
        turned = zip(ordered, [*ordered[1:], ordered[0]], strict=True)
        return token_of({partition: offsets[other] for partition, other in turned})


class ByArrival(Feed):
    """It takes the records of several partitions in the order in which they arrive."""

    def _in_order(self, fresh: Chunk) -> Chunk:
        return fresh

    def _up_to_a_gap(self, fresh: Chunk) -> Chunk:
        return fresh


class DoesNotWait(Feed):
    """It misses records that another partition will bring."""

    def _may_come(self, _heads: Heads, _record: int) -> bool:
        return False


class WaitsForEver(Feed):
    """It never misses a record."""

    def _may_come(self, _heads: Heads, _record: int) -> bool:
        return True


class SwallowsGaps(Feed):
    def _gaps(self, _heads: Heads) -> Any:
        return np.empty(0, np.int64)


class SkipsDamagedRecords(Feed):
    def decode(self, partition: Partition, offsets: Numbers, values: pl.Series) -> Decoded:
        found = super().decode(partition, offsets, values)
        return replace(found, fault=None, next_offset=int(offsets[-1]) + 1)


class GoesOnAfterALoss(Feed):
    def lost(self, partition: Partition, _loss: SourceViolation) -> Decoded:
        return super().decode(partition, np.array([0]), pl.Series([None], dtype=pl.Binary))


class WholeTooEarly(Feed):
    """What it has read it calls whole."""

    def is_whole_up_to(self, ends: Offsets) -> bool:
        return all(self.next[partition] >= end for partition, end in ends.items())


class TellsTheLastVersion(Feed):
    """Wherever the last record is."""

    def version_up_to(self, _ends: Offsets) -> int:
        return self._ledger.last


class TimesInSeconds(Feed):
    def times(self, after: int, upto: int) -> Numbers:
        return super().times(after, upto) // 1000


class NoParts(Feed):
    def part_of(self, _version: int) -> GlobalPart | None:
        return None


class _Emptying:
    """A receiver in front of another one: NULL becomes the empty text."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def received(self, source: str) -> int:
        return self._receiver.received(source)

    def receive(self, source: str, version: int, changes: Mapping[Relation, pl.DataFrame]) -> None:
        filled = {
            relation: rows.with_columns(pl.col(pl.String).fill_null(""))
            for relation, rows in changes.items()
        }
        self._receiver.receive(source, version, filled)


class NullBecomesEmpty(SimulatedSource):
    def changes(
        self,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        more: Sequence[int],
        digest: int,
    ) -> Changes:
        return super().changes(relations, _Emptying(receiver), offsets, more, digest)


# -- of answers ----------------------------------------------------------------------------------


class ClaimsLater(SimulatedSource):
    """An answer contains one transaction less than it says."""

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        answer = super().ask(question)
        return replace(answer, inclusion=Prefix(answer.inclusion.version + 1), digest=UNKNOWN)


class ClaimsEarlier(SimulatedSource):
    """It asks for the version before it asks for the rows: under load they do not fit."""

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        before = self.describe()
        answer = super().ask(question)
        return replace(answer, inclusion=Prefix(before.version), digest=before.digest)


class PromisesVersions(SimulatedSource):
    """It promises answers of one version each, and describes them as prefixes with exceptions."""

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        answer = super().ask(question)
        version = answer.inclusion.version
        return replace(answer, inclusion=Prefix(version - 1, besides=(version,)), digest=UNKNOWN)


class AnswersLate(SimulatedSource):
    """It gives the same answer for a while."""

    _given: dict[Question[Frame], Answer[Frame]]

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        self._given = getattr(self, "_given", {})
        return self._given.setdefault(question, super().ask(question))


class FirstPages(SimulatedSource):
    """It begins each page at the first key."""

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        if isinstance(question, Query) and question.page is not None:
            return super().ask(replace(question, page=replace(question.page, after=None)))
        return super().ask(question)


class LosesMicroseconds(SimulatedSource):
    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        answer = super().ask(question)
        rows = answer.rows.data.with_columns(pl.col(pl.Datetime).dt.truncate("1ms"))
        return replace(answer, rows=Frame(rows))


# -- of everything else --------------------------------------------------------------------------


class NoticesNoReset(SimulatedSource):
    """It goes on wherever it was, whatever the history is."""

    def describe(self, timeout: float = 10.0) -> Description:
        return replace(super().describe(timeout), digest=UNKNOWN)

    def digests(self, versions: Sequence[int], timeout: float = 10.0) -> dict[int, int]:
        return dict.fromkeys(super().digests(versions, timeout), UNKNOWN)

    def changes(
        self,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        more: Sequence[int],
        _digest: int,
    ) -> Changes:
        return super().changes(relations, receiver, offsets, more, UNKNOWN)


class NoticesNoEmptyTopic(SimulatedSource):
    """It waits at the beginning of whatever is there."""

    def resumed(self, kafka: Kafka, ends: Ends, version: int, token: Token, digest: int) -> Token:
        try:
            return super().resumed(kafka, ends, version, token, digest)
        except SourceViolation as refusal:
            if "not been refilled yet" not in str(refusal):
                raise
            return token_of({partition: low for partition, (low, _) in ends.items()})


class GoesOnAfterACut(SimulatedSource):
    """It goes on with what comes next, if what it should go on with is gone."""

    def resumed(self, kafka: Kafka, ends: Ends, version: int, token: Token, digest: int) -> Token:
        offsets = offsets_in(token, ends)
        if offsets is not None and any(offset < ends[p][0] for p, offset in offsets.items()):
            return token_of({partition: high for partition, (_, high) in ends.items()})
        return super().resumed(kafka, ends, version, token, digest)


class OldLakesRefused(SimulatedSource):
    """It does not know the token of version 0.1."""

    def resumed(self, kafka: Kafka, ends: Ends, version: int, token: Token, digest: int) -> Token:
        if len(token) == 1:
            raise SourceViolation(f"source {self.name}: no token: {token}")
        return super().resumed(kafka, ends, version, token, digest)


class OtherStatistics(SimulatedSource):
    """Each relation has the numbers of the one before it."""

    def statistics(self, timeout: float = 10.0) -> Mapping[str, Statistics]:
        found = super().statistics(timeout)
        names = list(found)
        return {
            name: replace(found[name], rows=found[names[place - 1]].rows)
            for place, name in enumerate(names)
        }


class NoForeignKeys(SimulatedSource):
    def describe(self, timeout: float = 10.0) -> Description:
        found = super().describe(timeout)
        bare = {name: replace(each, references=()) for name, each in found.relations.items()}
        return replace(found, relations=bare)


class RemembersItsDescription(SimulatedSource):
    """It describes itself as it was, also when it is down."""

    _described: Description

    def describe(self, timeout: float = 10.0) -> Description:
        if not hasattr(self, "_described"):
            self._described = super().describe(timeout)
        return self._described


class LeavesAThread(SimulatedSource):
    def close(self) -> None:
        super().close()
        threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()


# -- and what the suite has to say of them -------------------------------------------------------

WHOLE = "transactions come whole, once and in order"
TIMES = "commit times and sizes are told"
PARTS = "parts of global transactions are told"
TOKENS = "a token goes on after its version"
RESTARTS = "a restart goes on after its version"
PIECES = "pieces, repetitions and interleaving change nothing"
UP_TO = "what is whole is told"
LOST = "a lost record is found"
DAMAGED = "a damaged record is found"
ANSWERS = "answers contain what they say"
VALUES = "values survive"
TOPICS = "a topic that was replaced is noticed"
PASTS = "another past is noticed"
DESCRIBES = "a source describes itself"
STATISTICS = "statistics are near"
DOWN = "a source that is down is unreachable"
CLOSED = "nothing is left when it is closed"


@dataclass(frozen=True)
class Defect:
    """An adapter with a defect, and the rules that it breaks."""

    kind: type[SimulatedSource]
    rules: frozenset[str]
    partitions: int = 1
    #: Rules that it breaks or not, as it happens.
    maybe: frozenset[str] = frozenset()


def _reads(kind: type[Feed], *rules: str, partitions: int = 1, maybe: str = "") -> Defect:
    return Defect(reading(kind), frozenset(rules), partitions, frozenset({maybe} - {""}))


def _is(kind: type[SimulatedSource], *rules: str) -> Defect:
    return Defect(kind, frozenset(rules))


#: All that shows the rows of changes.
_ROWS = (WHOLE, PARTS, TOKENS, RESTARTS, PIECES, LOST, DAMAGED, VALUES)
DEFECTS: dict[str, Defect] = {
    "drops no repetitions": _reads(DropsNoRepetitions, TOKENS, PIECES),
    "forgets half a transaction": _reads(ForgetsTheBeginning, PIECES),
    "a token that is too late": _reads(TokenTooLate, TOKENS, PIECES),
    "a token of the wrong partition": _reads(
        TokenOfTheWrongPartition, TOKENS, PIECES, partitions=3
    ),
    "merges by arrival": _reads(ByArrival, *_ROWS, TIMES, partitions=3, maybe=UP_TO),
    "does not wait for a partition": _reads(DoesNotWait, *_ROWS, TIMES, partitions=3),
    "waits for ever": _reads(WaitsForEver, LOST, partitions=3),
    "swallows a gap": _reads(SwallowsGaps, LOST),
    "skips damaged records": _reads(SkipsDamagedRecords, DAMAGED),
    "goes on after a loss": _reads(GoesOnAfterALoss, DAMAGED),
    "calls whole what it has read": _reads(WholeTooEarly, UP_TO),
    "tells the last version wherever": _reads(TellsTheLastVersion, UP_TO),
    "times in seconds": _reads(TimesInSeconds, TIMES),
    "no parts": _reads(NoParts, PARTS),
    "NULL becomes the empty text": _is(NullBecomesEmpty, *_ROWS),
    "claims a later version": _is(ClaimsLater, ANSWERS),
    "claims an earlier version under load": _is(ClaimsEarlier, ANSWERS),
    "breaks its promise": _is(PromisesVersions, ANSWERS),
    "answers as before": _is(AnswersLate, ANSWERS, VALUES),
    "begins each page at the first key": _is(FirstPages, ANSWERS),
    "loses microseconds": _is(LosesMicroseconds, VALUES),
    "notices no reset": _is(NoticesNoReset, PASTS),
    "notices no empty topic": _is(NoticesNoEmptyTopic, TOPICS),
    "goes on after a cut": _is(GoesOnAfterACut, TOPICS),
    "does not know old tokens": _is(OldLakesRefused, RESTARTS),
    "statistics of another relation": _is(OtherStatistics, STATISTICS),
    "no foreign keys": _is(NoForeignKeys, DESCRIBES),
    "describes itself when it is down": _is(RemembersItsDescription, DOWN),
    "leaves a thread": _is(LeavesAThread, CLOSED),
}
