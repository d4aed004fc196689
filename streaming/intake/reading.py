"""A job's reading of its sources: their changes from a vector on, and answers to questions.

All views of a job share one reading: each record is fetched and decoded once. The driver
(protocols/exchange/driver.py) decides which questions go out, and when each view gets its answers.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog, Room
from protocols.errors import ProtocolBug, SourceViolation, about
from protocols.exchange.copies import Router
from protocols.exchange.correction import came_too_late, snapshot
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Answer, Question, Snapshot
from protocols.exchange.sharing import Shared
from protocols.views.catalog import Relation
from sources.history import UNKNOWN, differ, other_past, parting
from sources.partitions import Offsets, Partition, Token, more_in, offsets_in
from sources.port import Changes
from streaming.figures.measuring import Measures
from streaming.intake.asking import Sources
from streaming.intake.lookahead import Awaited, Lookahead
from streaming.intake.spilling import spill
from streaming.settings.configuration import Configuration
from streaming.stopping import Stopped
from warehouse.standing import Standing

_MEGABYTE = 2**20
#: The pause before a source that lacks an update of its own topic is asked again.
_MOMENT = 0.02


def nothing_received(
    configuration: Configuration, relations: Iterable[Relation], standing: Standing
) -> Received[Frame]:
    """The empty logs of these relations, which share the mailbox's room, from a standing on."""
    each = list(dict.fromkeys(relations))
    share = configuration.job.mailbox_megabytes * _MEGABYTE // len(each)
    logs = {relation: FrameLog(Room(share, spill)) for relation in each}
    return Received(logs, standing.vector)


class Reading:
    """The changes of sources, the lookahead and the received updates, from a standing on."""

    def __init__(
        self,
        configuration: Configuration,
        sources: Sources,
        received: Received[Frame],
        standing: Standing,
        partitions: Mapping[str, Collection[Partition]],
        measures: Measures,
        report: Callable[[str], None],
        stopping: threading.Event,
    ) -> None:
        """`partitions`: source → where it publishes."""
        self._sources = sources
        self.partitions = {source: tuple(partitions[source]) for source in standing.tokens}
        self._measures = measures
        #: Source → the latest version of it that a view has seen; no answer may be older.
        self._seen = dict(standing.vector)
        self._patience = configuration.job.patience_seconds
        self._stopping = stopping
        #: Source → since when all of its answers have lacked an update that is dropped here.
        self._lacking: dict[str, float] = {}
        #: The updates up to the standing, and those that come after it.
        self.received = received
        #: The copies that answer for sources.
        self.router: Router[Frame] = Router()
        self.changes = {source: self._changes(source, standing) for source in standing.tokens}
        self._lookahead = Lookahead(
            configuration.kafka, self.changes, self._patience, report, stopping
        )

    def _changes(self, source: str, standing: Standing) -> Changes:
        """The changes of a source after a standing."""
        token, partitions = standing.tokens[source], self.partitions[source]
        return self._sources.changes(
            source,
            [relation for relation in self.received.logs if relation.source == source],
            self.received,
            offsets_from(token, partitions),
            more_in(token, partitions),
            standing.digests.get(source, UNKNOWN),
        )

    def close(self) -> None:
        """Ends the lookahead."""
        self._lookahead.close()

    # -- topics --------------------------------------------------------------------------------

    def read_up_to(self, ends: Mapping[str, Offsets]) -> None:
        """Reads until every transaction with a record below these offsets is complete."""
        wanted = {}
        for source, offsets in ends.items():
            topics = " and ".join(sorted({repr(partition.topic) for partition in offsets}))
            done = partial(self.changes[source].is_whole_up_to, offsets)
            wanted[source] = Awaited(done, f"the rest of a transaction in topic {topics}")
        with self._measures.waiting_for("the rest of a batch in the topics"):
            self._lookahead.read(wanted)

    def times(self, source: str, after: int, upto: int) -> Numbers:
        """The commit times of the received versions in (after, upto]."""
        return self.changes[source].times(after, upto)

    def sizes(self, source: str, after: int, upto: int) -> Numbers:
        """The numbers of records of the received versions in (after, upto]."""
        return self.changes[source].sizes(after, upto)

    def first_waiting(self, source: str, version: int) -> tuple[Token, float] | None:
        """The first received transaction after a version: the token after it, and its commit time
        in seconds since the epoch."""
        if self.received.received(source) <= version:
            return None
        token = self.changes[source].token_after(version + 1)
        return token, self.committed_at(source, version + 1) / 1000

    def has_read_all(self, source: str, version: int) -> Offsets | None:
        """The offsets after all records read if this version is the last of them, else None.

        Repetitions after it are not waiting updates.
        """
        read = dict(self.changes[source].next)
        whole = self.changes[source].is_whole_up_to(read)
        return read if whole and self.received.received(source) == version else None

    def committed_at(self, source: str, version: int) -> int:
        """The commit time of a received version, in milliseconds since the epoch."""
        return int(self.changes[source].times(version - 1, version)[0])

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        return self.changes[source].part_of(version)

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        """Whether any of these received versions is a part of a global transaction."""
        return self.changes[source].has_parts(after, upto)

    # -- questions -----------------------------------------------------------------------------

    def ask(self, questions: Sequence[Question[Frame]]) -> list[Answer[Frame]]:
        """The answers; they may contain updates that are not received yet."""
        if not questions:
            return []
        sources = " and ".join(sorted({question.source for question in questions}))
        with self._measures.step("asking"), self._measures.waiting_for(f"answers of {sources}"):
            answers = self._sources.ask(list(questions))
        for question, answer in zip(questions, answers, strict=True):
            with about(question.source):
                self._refuse_older(question.source, answer.newest)
                self._refuse_fork(question.source, answer.inclusion.version, answer.digest)
                self._bear_with(question, answer)
        self._measures.queries += len(answers)
        self._measures.bytes += sum(a.bytes_sent + a.bytes_received for a in answers)
        return answers

    def catch_up(self, versions: Mapping[str, int]) -> None:
        """Reads until these versions of the sources are received, because answers contain them."""
        if not versions:
            return
        words = f"updates of {' and '.join(sorted(versions))} that answers contain"
        with self._measures.step("lookahead"), self._measures.waiting_for(words):
            self._lookahead.read(
                {
                    source: Awaited(
                        partial(self._has, source, version),
                        f"version {version} of source {source}, which an answer contains,",
                    )
                    for source, version in versions.items()
                }
            )

    def look_up(
        self, questions: Sequence[Question[Frame]]
    ) -> list[tuple[Answer[Frame], Snapshot[Frame]]]:
        """For a caller without a driver: each answer, with the snapshot that it becomes.

        Equal questions go out once, as the driver ensures for the views of a job.
        """
        shared = Shared(questions)
        answers = self._answers(shared.questions)
        newest: dict[str, int] = {}
        for question, answer in zip(shared.questions, answers, strict=True):
            newest[question.source] = max(answer.newest, newest.get(question.source, 0))
        self.catch_up(newest)
        told = (answers[place] for place in shared.places)
        return [self._found(q, a) for q, a in zip(questions, told, strict=True)]

    def _answers(self, questions: Sequence[Question[Frame]]) -> list[Answer[Frame]]:
        """The answers of copies, and of the sources where there is no copy."""
        here = [self.router.answer(question) for question in questions]
        left = [q for q, answer in zip(questions, here, strict=True) if answer is None]
        asked = iter(self.ask(left))
        return [next(asked) if answer is None else answer for answer in here]

    def _found(
        self, question: Question[Frame], answer: Answer[Frame]
    ) -> tuple[Answer[Frame], Snapshot[Frame]]:
        while came_too_late(self.received, question, answer):
            [answer] = self.ask([question])
            self.catch_up({question.source: answer.newest})
        return answer, snapshot(self.received, question, answer)

    def _bear_with(self, question: Question[Frame], answer: Answer[Frame]) -> None:
        """Pauses before an answer that came too late is asked for again; gives up after a while."""
        source, now = question.source, time.monotonic()
        if not came_too_late(self.received, question, answer):
            self._lacking.pop(source, None)
        elif now - self._lacking.setdefault(source, now) > self._patience:
            raise SourceViolation(
                f"source {source}: for {self._patience:g} s, its answers have lacked an update"
                " that it has published and that a view already contains. None of these answers was"
                " used. Repair the query server, then run the same command again"
            )
        elif self._stopping.wait(_MOMENT):
            raise Stopped

    def _refuse_older(self, source: str, version: int) -> None:
        if version < self._seen[source]:
            raise SourceViolation(
                f"source {source} answered at version {version}, although the later version"
                f" {self._seen[source]} was seen before, in its status, an answer or its topic: the"
                " source was reset, or the answer is from a replica that lags too far behind"
            )

    def expect(self, standing: Standing) -> None:
        """Compares the digests of a view's standing, which may be ahead of the received updates."""
        for source, digest in standing.digests.items():
            self._refuse_fork(source, standing.vector[source], digest)

    def _refuse_fork(self, source: str, version: int, digest: int) -> None:
        """SourceViolation when the topic has another history than the source itself, or a view."""
        changes = self.changes[source]
        if changes.agrees(version, digest):
            return

        def same(version: int) -> bool:
            return not differ(
                changes.digest_at(version), self._sources.digests(source, [version])[version]
            )

        raise SourceViolation(other_past(source, *parting(same, changes.confirmed, version)))

    def _has(self, source: str, version: int) -> bool:
        return self.received.received(source) >= version

    def seen(self, vector: Mapping[str, int]) -> None:
        """Notes the vector that a view has reached."""
        for source, version in vector.items():
            self._seen[source] = max(self._seen[source], version)

    def forget(self, vector: Mapping[str, int]) -> None:
        """Drops what is remembered of records up to this vector, which all views have reached."""
        for source, version in vector.items():
            self.changes[source].forget(version)


def offsets_from(token: Token, partitions: Collection[Partition]) -> Offsets:
    """The offsets of a checked token."""
    offsets = offsets_in(token, partitions)
    if offsets is None:
        raise ProtocolBug(f"a token is about other partitions than {sorted(partitions)}")
    return offsets
