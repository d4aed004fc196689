"""Questions to the sources: a round goes out in parallel, and a dead server is asked again.

Asking twice does no harm: a question reads the source as it is now, and the mailbox corrects the
answer to the same rows, whatever its version.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeVar

from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation, Unreachable, WrongUse
from protocols.exchange.questions import Answer, Joint, Question
from protocols.views.catalog import Catalog, relation_from_json
from sources.history import digest_from_text
from sources.wire.client import Limits, SourceClient
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
    ) -> None:
        self._patience = patience
        self._stopping = stopping
        self._report = report
        limits = Limits(answer_megabytes, min(_ANSWER_SECONDS, patience))
        self._clients = {name: _client(source, limits) for name, source in settings.items()}
        self._threads = ThreadPoolExecutor(max(4, len(settings)), "question")

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for client in self._clients.values():
            client.close()

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
        client = self._clients[query.source]
        answer = self._insisting(query.source, lambda: client.ask(query))
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
            except Unreachable as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Unreachable(
                        f"{error}. Tried for {self._patience:.0f} s; nothing is lost, and the same"
                        " command goes on when the source is back"
                    ) from None
                if pause == _FIRST_PAUSE:
                    self._report(f"{error}; trying again for {self._patience:g} s")
                if self._stopping.wait(min(pause, left)):
                    raise Stopped from None
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if pause > _FIRST_PAUSE:
                    self._report(f"source {source} answers again")
                return result

    def watched(self) -> dict[str, Callable[[float], object]]:
        """Source → a call that asks for its status once, and gives up after so many seconds."""
        return {name: client.status for name, client in self._clients.items()}

    def digests(self, source: str, versions: Sequence[int]) -> dict[int, int]:
        """Version → the digest of the source's history up to it; unknown where it keeps none."""
        client = self._clients[source]
        return self._insisting(source, lambda: client.digests(versions))

    # -- before the start ------------------------------------------------------------------------

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Each source's status, asked in parallel."""

        def ask(name: str) -> dict[str, Any]:
            status = self._insisting(name, self._clients[name].status)
            if status["source"] != name:
                raise WrongUse(
                    f"sources.{name}.address: the source there calls itself {status['source']!r}"
                )
            return status

        return dict(zip(self._clients, self._side_by_side(ask, self._clients), strict=True))


def versions_in(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The current version of each source."""
    return {source: int(status["version"]) for source, status in statuses.items()}


def digests_in(statuses: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The digest of each source's history up to that version; unknown if its status has none."""
    return {source: digest_from_text(status["history"]) for source, status in statuses.items()}


def catalog_in(statuses: Mapping[str, Mapping[str, Any]]) -> Catalog:
    """All relations of all configured sources."""
    relations = (
        relation_from_json(source, name, form)
        for source, status in statuses.items()
        for name, form in status["relations"].items()
    )
    catalog = Catalog(tuple(relations))
    if not catalog.relations:
        raise WrongUse("the configured sources hold no relations at all")
    catalog.refuse_impossible_references(whole=False)
    return catalog


def refuse_reset(vector: Mapping[str, int], versions: Mapping[str, int]) -> None:
    """SourceViolation when a source is at an earlier version than the view has seen."""
    for source, version in vector.items():
        if versions[source] < version:
            raise SourceViolation(
                f"source {source} stands at version {versions[source]}, and the view has already"
                f" seen version {version}: the source was reset or restored from a backup. Restore"
                " it, or remove the view's directory to recreate the view"
            )


def _client(settings: SourceSettings, limits: Limits) -> SourceClient:
    token = None
    if settings.token_env is not None:
        token = os.environ.get(settings.token_env)
        if not token:
            raise WrongUse(
                f"sources.{settings.name}.token_env: the environment variable"
                f" {settings.token_env} is not set"
            )
    roots = None
    if settings.tls_roots is not None:
        try:
            roots = settings.tls_roots.read_bytes()
        except OSError as error:
            raise WrongUse(f"sources.{settings.name}.tls_roots: {error}") from None
    try:
        return SourceClient(settings.address, token, roots, settings.name, limits)
    except WrongUse as error:
        raise WrongUse(f"sources.{settings.name}.address: {error}") from None
