"""The views kept by one job, without Spark: what happens between two offsets of the topics.

    topics ─ lookahead ─> received <─────────────────────── waves ─> query servers
                             |  order of delivery  |
                             └─> mailbox ─> protocol ─> commits of each view's tables

Spark says how far a micro-batch reaches; the records themselves come through the lookahead, which
reads each once, for this batch or because an answer contains what it says. What the protocols ask
and when is decided by the driver (protocols/exchange/driver.py), as in the simulator; what belongs
to one view is in `keptview.py`.

Delta is the truth: every view starts from the standing in its last commit, whatever Spark's
checkpoint says. A batch that is there already delivers nothing.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial

from protocols.algebra.frame import Frame
from protocols.exchange.copying import Copying
from protocols.exchange.driver import Driver
from protocols.views.catalog import Relation
from sources.history import UNKNOWN
from streaming.figures.measuring import Measures
from streaming.figures.status import JobStatus, SourceStatus, status_of
from streaming.intake.asking import Sources, catalog_in, digests_in, refuse_reset, versions_in
from streaming.intake.firstvector import Beginnings
from streaming.intake.reading import Reading, nothing_received
from streaming.intake.resuming import Resuming
from streaming.intake.topics import ends_of_topics, refuse_lost
from streaming.job.commits import Commits
from streaming.job.keptview import KeptView
from streaming.job.sweeping import Cluster
from streaming.job.watching import Installed, Watching
from streaming.settings.configuration import Configuration, ViewSettings
from streaming.settings.declared import declared
from streaming.stopping import Stopped
from warehouse.standing import Standing

Report = Callable[[str], None]
#: Updates may keep a protocol busy for ever; what it has finished is committed at such intervals.
_COMMIT_SECONDS = 1.0
#: So long it is waited for executors before it is seen whether there is anything else to do.
_LOOK_SECONDS = 0.1


class Job:
    """The state of a running job: `check`, `prepare`, then `process` for each micro-batch."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Sequence[ViewSettings],
        report: Report,
        executors: Cluster | None = None,
    ) -> None:
        self._configuration = configuration
        self._settings = tuple(settings)
        self._report = report
        self._executors = executors
        self.measures = Measures()
        #: Set from outside to end the job; whatever waits for something then gives up.
        self.stopping = threading.Event()
        #: Set by `check`: per source its topic's ends and its version, asked in this order.
        self._sources: Sources
        self._ends: dict[str, tuple[int, int]]
        self._versions: dict[str, int]
        self._digests: dict[str, int]
        self._resuming: Resuming
        self._beginnings: Beginnings
        self.views: list[KeptView] = []
        #: Whether `prepare` has come to its end.
        self._running = False
        #: Set by `prepare`.
        self._reading: Reading
        self._driver: Driver[Frame]
        self._commits: Commits
        self._watching: Watching
        #: Source → how far all views are in its topic, as far as only this job's thread can tell.
        self._reached: dict[str, int] = {}
        self._next: dict[str, tuple[int, float]] = {}

    # -- before the first batch ------------------------------------------------------------------

    def check(self) -> None:
        """Checks everything that can be checked before any work is begun."""
        known = self._configuration
        used = {s.name: s for view in self._settings for s in known.sources_of(view).values()}
        patience, most = known.job.patience_seconds, known.job.answer_megabytes
        self._sources = Sources(used, patience, self._report, self.stopping, most)
        topics = {source.name: source.topic for source in used.values()}
        #: Asked before the versions: what is newer than those lies at or behind these offsets.
        self._ends = ends_of_topics(known.bootstrap, topics)
        statuses = self._sources.statuses()
        self._versions, self._digests = versions_in(statuses), digests_in(statuses)
        self._resuming = Resuming(known.bootstrap, topics, self._ends, self._sources, self._digests)
        self._beginnings = Beginnings(
            known, self._sources, self._ends, statuses, self._report, self.stopping
        )
        catalog = declared(catalog_in(statuses), known.sources)
        for source in used.values():
            source.refuse_unknown_copies(catalog)
        self.views = [
            KeptView(known, settings, catalog, self.measures, self._report)
            for settings in self._settings
        ]
        for view in self.views:
            view.refuse_copies(self._configuration)
            if view.tables.exists:
                view.standing = self._checked(view.tables.standing())

    def _checked(self, standing: Standing) -> Standing:
        """The standing, with the offsets from which on the topics have what comes after it."""
        refuse_reset(standing.vector, self._versions)
        return self._resuming.checked(standing)

    def prepare(self) -> None:
        """Every view goes on where it stands, or gets its first state if it has none."""
        for view in self.views:
            if view.tables.exists:
                view.resume()
            else:
                self.measures.phase = "first state"
                with self.measures.first_state():
                    view.standing = self._first_state(view)
        relations = [relation for view in self.views for relation in view.view.relations]
        start = _earliest([view.standing for view in self.views])
        self._reading = self._read(relations, start)
        for view in self.views:
            self._reading.seen(view.standing.vector)
            self._reading.expect(view.standing)
        self._commits = Commits()
        self._driver = Driver(self._reading.received, self._reading.router)
        for view in self.views:
            view.start(self._reading, self._commits, self._executors)
            self._driver.views.append(view.work)
        for relation in self._copied():
            page = self._configuration.job.page_rows
            Copying(self._driver, relation, page, partial(self._tell_of_copy, relation))
        self._running = True
        self._watching = Watching(
            self._configuration.bootstrap,
            {source: topic for topic, source in self.topics.items()},
            self._installed,
            self.measures,
            self._report,
            self.stopping,
        )
        self._watching.start(self._sources.watched())

    def _copied(self) -> list[Relation]:
        """The relations of which the configuration asks for a copy."""
        known = self._configuration.sources
        return [r for r in self._reading.received.logs if known[r.source].keeps_copy_of(r.name)]

    def _tell_of_copy(self, relation: Relation, rows: int, complete: bool) -> None:
        """How far a copy is; it answers as soon as it is complete."""
        if complete:
            self.measures.copies[str(relation)] = rows
            self._report(
                f"copy of {relation}: {rows:,} rows; it answers for the source from now on"
            )
        else:
            self._report(f"copy of {relation}: {rows:,} rows so far")

    def _first_state(self, view: KeptView) -> Standing:
        first = view.begin_first_state(partial(self._beginnings.of, view.view), self._checked)
        first.standing = self._checked(first.standing)
        # What it reads of the topics the protocol has to read anew, in its own way.
        self._reading = self._read(view.view.relations, first.standing)
        try:
            return first.read(self._reading, self._configuration.job.page_rows)
        finally:
            self._reading.close()

    def _read(self, relations: Iterable[Relation], start: Standing) -> Reading:
        return Reading(
            self._configuration,
            self._sources,
            nothing_received(self._configuration, relations, start),
            start,
            self.measures,
            self._report,
            self.stopping,
        )

    @property
    def topics(self) -> dict[str, str]:
        """Topic → source, of all views."""
        return {feed.topic: source for source, feed in self._reading.feeds.items()}

    def refuse_lost_topics(self) -> None:
        """SourceViolation if a topic no longer has what this job has read of it."""
        read = {feed.topic: feed.next_offset for feed in self._reading.feeds.values()}
        refuse_lost(self._configuration.bootstrap, read)

    @property
    def topic_ends(self) -> dict[str, tuple[int, int]]:
        """Topic → its first offset and its next one, as they were before the start."""
        return {topic: self._ends[source] for topic, source in self.topics.items()}

    @property
    def offsets(self) -> dict[str, int]:
        """Topic → the first offset that some view needs."""
        start = _earliest([view.standing for view in self.views])
        return {topic: start.offsets[source] for topic, source in self.topics.items()}

    # -- one micro-batch -------------------------------------------------------------------------

    def process(self, ends: Mapping[str, int]) -> int:
        """Takes up what begins below these offsets (by source); returns how many positions.

        When it returns, the protocols have nothing more to do, and what they have done is handed
        over to be committed; `settle` waits for that.
        """
        before = self._positions()
        with self.measures.step("decode"):
            self._reading.read_up_to(ends)
        # Memory grows with a sweep, not with the batch: what waits is swept next.
        while self._sweep(ends):
            pass
        return self._positions() - before

    def _sweep(self, ends: Mapping[str, int]) -> bool:
        """One sweep of every view; whether transactions below these offsets still wait for one."""
        with self.measures.step("order"):
            waiting = [view.enqueue_upto(ends) for view in self.views]
            self._note_first_waiting()
        self._work()
        for view in self.views:
            view.end_batch()
        self._driver.forget()
        self._reading.forget(_earliest([view.standing for view in self.views]).vector)
        return any(waiting)

    def _note_first_waiting(self) -> None:
        """Which transactions are next, for whoever wants to know how far behind the views are."""
        vector = _earliest([view.standing for view in self.views]).vector
        found = {source: self._reading.first_waiting(source, v) for source, v in vector.items()}
        self._next = {source: each for source, each in found.items() if each is not None}

    def _note_reached(self) -> None:
        """With nothing in work: what was read and brought nothing is done as well."""
        vector = _earliest([view.standing for view in self.views]).vector
        found = {source: self._reading.has_read_all(source, v) for source, v in vector.items()}
        self._reached = {source: each for source, each in found.items() if each is not None}

    def _installed(self) -> dict[str, Installed]:
        """How far all views are; any thread may ask."""
        offsets = _earliest([view.committed for view in self.views]).offsets
        reached, following = self._reached, self._next
        return {
            source: Installed(max(offset, reached.get(source, 0)), following.get(source))
            for source, offset in offsets.items()
        }

    def status(self) -> JobStatus:
        """All that is known at this moment; any thread may ask."""
        if not self._running:
            return status_of(self.measures, (), ())
        received, known = self._reading.received, self.measures
        sources = [
            SourceStatus(s, known.reachable.get(s), received.received(s), known.behind.get(s))
            for s in self._reading.feeds
        ]
        return status_of(known, sources, [view.status() for view in self.views])

    def settle(self) -> None:
        """Waits until all that was handed over is committed."""
        self._commits.settle()

    def _positions(self) -> int:
        return sum(view.standing.position for view in self.views)

    def _work(self) -> None:
        """Wave after wave until the protocols have nothing open and begin nothing."""
        committed = time.monotonic()
        with self.measures.step("sweep"):
            self._driver.begin()
        while self._driver.open:
            with self.measures.step("sweep"):
                self._wave()
            if time.monotonic() - committed > _COMMIT_SECONDS:
                for view in self.views:
                    view.install()
                committed = time.monotonic()

    def _wave(self) -> None:
        """All questions that have come up go out together; their answers go to who asked.

        Executors are waited for when nothing else is left to do.
        """
        if self.stopping.is_set():
            raise Stopped
        elsewhere = [work for view in self.views for work in view.sweep_elsewhere()]
        self.measures.note_wait("executors", bool(elsewhere))
        sent = self._driver.send()
        if not sent and not self._driver.holds_answers:
            wait(elsewhere, _LOOK_SECONDS, FIRST_COMPLETED)
            return
        answers = self._reading.ask([asked.question for asked in sent])
        for asked, answer in zip(sent, answers, strict=True):
            self._driver.answered(asked, answer)
        self._reading.catch_up(self._driver.missing())
        self._driver.hand_over_all()

    def tend(self) -> None:
        """Called between batches: what goes on beside them does not wait for the next one."""
        if self._driver.asking:
            self._wave()
        if self._commits.idle:
            self._note_reached()
            for view in self.views:
                view.tend()

    def finish(self) -> None:
        """Waits for what was handed over, and brings the `current` tables to the end."""
        self.settle()
        self._note_reached()
        self._watching.look_again()
        for view in self.views:
            view.finish()

    def close(self) -> None:
        """Lets go of all connections, also of those on which something is still waited for."""
        self.stopping.set()
        for view in self.views:
            view.close()
        for part in ("_commits", "_reading", "_sources"):
            if hasattr(self, part):
                getattr(self, part).close()


def _earliest(standings: Sequence[Standing]) -> Standing:
    """From where the topics have to be read so that no view misses anything."""
    vector: dict[str, int] = {}
    offsets: dict[str, int] = {}
    digests: dict[str, int] = {}
    for standing in standings:
        for source, version in standing.vector.items():
            place = version, standing.offsets[source]
            if source not in vector or place < (vector[source], offsets[source]):
                vector[source], offsets[source] = place
                digests[source] = standing.digests.get(source, UNKNOWN)
    return Standing(min(standing.position for standing in standings), vector, offsets, digests)
