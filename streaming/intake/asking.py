"""Questions to the sources: a round goes out in parallel, and a dead server is asked again.

Asking twice does no harm: a question reads the source as it is now, and the mailbox corrects the
answer to the same rows, whatever its version.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TypeVar

from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation, Unreachable, ViewsweepError, WrongUse, about
from protocols.exchange.questions import Answer, Joint, Question
from protocols.telling import Told
from protocols.views.catalog import Catalog, Relation
from protocols.views.statistics import Statistics
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Token
from sources.port import Changes, Description, Known, Parts, Receiver
from streaming.figures.answers import AnswersBySource
from streaming.intake.factory import opened
from streaming.settings.configuration import JobSettings, SourceSettings
from streaming.stopping import Stopped

S = TypeVar("S")
T = TypeVar("T")
_LOOK_UP_SECONDS = 0.5
#: How long one answer may take; less where patience is shorter.
_ANSWER_SECONDS = 30.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Sources:
    """Connections to the query servers of all sources of a view."""

    def __init__(
        self,
        settings: Mapping[str, SourceSettings],
        patience: float,
        report: Callable[[str], None],
        stopping: threading.Event,
        answer_megabytes: int = JobSettings.answer_megabytes,
        figures: AnswersBySource | None = None,
    ) -> None:
        self._patience = patience
        self._stopping = stopping
        self._report = report
        self._figures = figures or AnswersBySource()
        seconds = min(_ANSWER_SECONDS, patience)
        self._sources = {
            name: opened(source, answer_megabytes, seconds) for name, source in settings.items()
        }
        self._threads = ThreadPoolExecutor(max(4, len(settings)), "question")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for source in self._sources.values():
            source.close()

    def ask(self, questions: list[Question[Frame]]) -> list[Answer[Frame]]:
        """The answers in the order of the questions."""
        if len(questions) == 1:
            return [self._ask(questions[0])]
        return self._side_by_side(self._ask, questions)

    def _side_by_side(self, call: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """All results in order; ends at the first error, or with Stopped when the job has to stop.

        It wakes up now and then: an endless wait might sleep through a Ctrl-C that another thread
        received.
        """
        futures = [self._threads.submit(call, item) for item in items]
        try:
            while wait(futures, _LOOK_UP_SECONDS, FIRST_EXCEPTION).not_done:
                if self._stopping.is_set():
                    raise Stopped
                for future in futures:
                    if future.done():
                        future.result()
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _ask(self, query: Question[Frame]) -> Answer[Frame]:
        if self._stopping.is_set():
            raise Stopped
        source, began = self._sources[query.source], time.monotonic()
        with about(query.source):
            answer = self._insisting(query.source, lambda: source.ask(query))
        size = answer.bytes_sent + answer.bytes_received
        self._figures.answered(query.source, time.monotonic() - began, size)
        page = None if isinstance(query, Joint) else query.page
        if isinstance(query, Joint) or page is None or answer.rows.data.height < page.limit:
            return answer
        last = answer.rows.data.tail(1).select(query.relation.key).row(0)
        return replace(answer, last_key=last)

    def _insisting(self, source: str, attempt: Callable[[], T]) -> T:
        """Tries again with growing pauses for as long as patience lasts."""
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                result = attempt()
            except ViewsweepError as error:
                self._figures.failed(source, str(error))
                if not isinstance(error, Unreachable):
                    raise
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Unreachable(
                        f"{error}. Tried for {self._patience:.0f} s; nothing is lost: run the same"
                        " command again when the source is back"
                    ) from None
                if pause == _FIRST_PAUSE:
                    words = f"{error}; trying again for {self._patience:g} s"
                    self._report(Told(words, source=source))
                if self._stopping.wait(min(pause, left)):
                    raise Stopped from None
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if pause > _FIRST_PAUSE:
                    self._report(Told(f"source {source} answers again", source=source))
                return result

    def watched(self) -> dict[str, Callable[[float], object]]:
        """Source → a call that asks it once for its description, and waits so many seconds."""
        return {name: source.describe for name, source in self._sources.items()}

    def digests(self, source: str, versions: Sequence[int]) -> dict[int, int]:
        """Version → the digest of the source's history up to it; unknown where it keeps none."""
        return self._insisting(source, lambda: self._sources[source].digests(versions))

    # -- before the start ------------------------------------------------------------------------

    def begin(self, kafka: Kafka, ends: Mapping[str, Ends], known: Mapping[str, Known]) -> None:
        """Prepares the sources for questions, in parallel.

        `known`: source → the latest version that the lake has of it, with its token.
        """

        def begin(name: str) -> None:
            source = self._sources[name]
            self._insisting(name, lambda: source.begin(kafka, ends[name], known.get(name)))

        self._side_by_side(begin, self._sources)

    def described(self) -> dict[str, Description]:
        """Each source's description, asked in parallel."""

        def describe(name: str) -> Description:
            return self._insisting(name, self._sources[name].describe)

        return dict(zip(self._sources, self._side_by_side(describe, self._sources), strict=True))

    def statistics(self, source: str) -> Mapping[str, Statistics]:
        """The sizes of a source's relations."""
        return self._insisting(source, self._sources[source].statistics)

    def parts(self, kafka: Kafka, source: str, ends: Ends, upto: int) -> Parts:
        """The parts of global transactions of a source up to a version, none of them read yet."""
        return self._insisting(source, lambda: self._sources[source].parts(kafka, ends, upto))

    def resumed(
        self, kafka: Kafka, source: str, ends: Ends, version: int, token: Token, digest: int
    ) -> Token:
        """The checked token for reading a source on after a version."""
        there = self._sources[source]
        return self._insisting(source, lambda: there.resumed(kafka, ends, version, token, digest))

    def changes(
        self,
        source: str,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        more: Sequence[int],
        digest: int,
    ) -> Changes:
        """The changes of a source after the receiver's version."""
        return self._sources[source].changes(relations, receiver, offsets, more, digest)


def versions_in(described: Mapping[str, Description]) -> dict[str, int]:
    """The current version of each source."""
    return {source: each.version for source, each in described.items()}


def catalog_in(described: Mapping[str, Description]) -> Catalog:
    """All relations of all configured sources."""
    left_out = {
        f"{source}.{what}": reason
        for source, each in described.items()
        for what, reason in each.left_out.items()
    }
    relations = tuple(r for each in described.values() for r in each.relations.values())
    catalog = Catalog(relations, left_out)
    if not catalog.relations:
        raise WrongUse("the configured sources hold no relations at all")
    catalog.refuse_impossible_references(whole=False)
    return catalog


def refuse_reset(vector: Mapping[str, int], versions: Mapping[str, int]) -> None:
    """SourceViolation when a source is at an earlier version than the view has seen."""
    for source, version in vector.items():
        if versions[source] < version:
            raise SourceViolation(
                f"source {source} is at version {versions[source]}, but the view has already"
                f" seen version {version}: the source was reset or restored from a backup. Restore"
                " it, or remove the view's directory to recreate the view"
            )
