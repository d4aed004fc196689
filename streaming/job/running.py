"""The views kept by one job, without Spark: from the ends of a batch to commits.

    topics ─ lookahead ─> received <─────────────────────── waves ─> query servers
                             |  order of delivery  |
                             └─> mailbox ─> protocol ─> commits of each view's tables

Spark says how far a micro-batch reaches; the records themselves come through the lookahead, which
reads each once, for this batch or because an answer contains its update. As in the simulator, the
driver (protocols/exchange/driver.py) decides which questions go out and when. The state of one view
is in `keptview.py`.

Delta is the truth: every view starts from the standing in its last commit, whatever Spark's
checkpoint says. A batch that is already installed delivers nothing.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain

from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation
from protocols.exchange.copying import Copying
from protocols.exchange.driver import Driver
from protocols.operators.memory import Memories
from protocols.telling import Told
from protocols.views.catalog import Relation
from sources.history import UNKNOWN
from sources.partitions import Ends, Offsets, Token
from sources.topics import refuse_lost
from streaming.figures.answers import AnswerFigures
from streaming.figures.status import SourceStatus, ViewStatus
from streaming.intake.reading import Reading, nothing_received, offsets_from
from streaming.job.audits import Audits
from streaming.job.checked import Checked
from streaming.job.context import Context
from streaming.job.firststate import FirstState
from streaming.job.keptview import KeptView
from streaming.job.storedview import StoredView
from streaming.job.sweeping import Cluster
from streaming.job.views import Views
from streaming.job.watching import Installed, Watching
from streaming.stopping import Stopped
from warehouse.standing import Standing

#: Updates may keep a protocol busy for ever; its finished installs are committed at this interval.
_COMMIT_SECONDS = 1.0
#: While executors sweep, the job looks for other work at this interval.
_LOOK_SECONDS = 0.1


class Running:
    """The running views of a job: `process` is for each micro-batch, `tend` between them."""

    def __init__(self, context: Context, checked: Checked, executors: Cluster | None) -> None:
        """Lets every view go on from its standing, or gives it its first state."""
        self._context = context
        self._checked = checked
        #: Source → the number of records with which all views are done. Only this job's thread can
        #: compute it, when nothing is in work.
        self._reached: dict[str, int] = {}
        #: Source → its first waiting transaction: the number of records up to its end, and its
        #: commit time.
        self._next: dict[str, tuple[int, float]] = {}
        ready = [(stored, *self._state_of(stored)) for stored in checked.views]
        relations = [relation for stored, *_ in ready for relation in stored.view.relations]
        with ExitStack() as made:
            self._reading = self._read(relations, earliest([s for _, s, _ in ready]))
            made.enter_context(closing(self._reading))
            for _, standing, _ in ready:
                self._reading.seen(standing.vector)
                self._reading.expect(standing)
            self._driver: Driver[Frame] = Driver(self._reading.received, self._reading.router)
            views: list[KeptView] = []
            for each in ready:
                view = KeptView(context, *each, self._reading, executors)
                made.callback(view.close)
                views.append(view)
                self._driver.views.append(view.work)
            self._views = Views(views, self._driver, context.report)
            for relation in self._copied():
                page = context.configuration.job.page_rows
                Copying(self._driver, relation, page, partial(self._tell_of_copy, relation))
            self._watching = Watching(
                context.configuration.kafka,
                self._reading.partitions,
                self._installed,
                context.measures,
                context.report,
                context.stopping,
            )
            self._watching.start(checked.sources.watched())
            every = context.configuration.job.audit_every
            if every is not None:
                Audits(context, every, self._kept_now).start()
            self._made = made.pop_all()

    # -- before the first batch ------------------------------------------------------------------

    def _state_of(self, stored: StoredView) -> tuple[Standing, Memories]:
        """A view's standing, and the memories of its operators."""
        memories, name = Memories(), stored.view.name
        standing = self._checked.standings.get(name)
        if standing is not None:
            stored.resume()
            words = f"view {name}: going on from position {standing.position}"
            self._context.report(Told(words, view=name, position=standing.position))
            return standing, memories
        self._context.measures.phase = "first state"
        with self._context.measures.first_state():
            return self._first_state(stored, memories), memories

    def _first_state(self, stored: StoredView, memories: Memories) -> Standing:
        checked, context = self._checked, self._context
        begins = partial(checked.beginnings.of, stored.view)
        first = FirstState(
            stored, begins, checked.standing, memories, context.measures, context.report
        )
        standing = checked.standing(first.standing)
        # The protocol reads the same part of the topics again, in a reading of its own.
        with closing(self._read(stored.view.relations, standing)) as reading:
            first.read(reading, context.configuration.job.page_rows)
        return standing

    def _read(self, relations: Iterable[Relation], start: Standing) -> Reading:
        context = self._context
        return Reading(
            context.configuration,
            self._checked.sources,
            nothing_received(context.configuration, relations, start),
            start,
            self._checked.ends,
            context.measures,
            context.report,
            context.stopping,
        )

    def _copied(self) -> list[Relation]:
        """The relations that the configuration wants copies of."""
        known = self._context.configuration.sources
        return [r for r in self._reading.received.logs if known[r.source].keeps_copy_of(r.name)]

    def _tell_of_copy(self, relation: Relation, rows: int, complete: bool) -> None:
        """Reports the progress of a copy, which answers as soon as it is complete."""
        if complete:
            self._context.measures.copies[str(relation)] = rows
            words = f"copy of {relation}: {rows:,} rows; it answers for the source from now on"
        else:
            words = f"copy of {relation}: {rows:,} rows so far"
        self._context.report(Told(words, source=relation.source, rows=rows))

    @property
    def views(self) -> Sequence[KeptView]:
        """All views, also those that have failed."""
        return self._views.all

    def _kept_now(self) -> list[str]:
        """The names of the views that have not failed; any thread may ask."""
        return [view.view.name for view in self._views.kept]

    @property
    def failure(self) -> BaseException | None:
        """The error of the first view that failed."""
        return self._views.failure

    @property
    def _earliest(self) -> Standing:
        """The standing up to which all views that are kept have come."""
        return earliest([view.standing for view in self._views.kept])

    def refuse_lost_topics(self) -> None:
        """SourceViolation if a topic has lost records that this job has read."""
        changes = self._reading.changes.values()
        read = {p: offset for each in changes for p, offset in each.next.items()}
        refuse_lost(self._context.configuration.kafka, read)

    @property
    def partition_ends(self) -> Ends:
        """The ends of all partitions before the start."""
        return {
            p: self._checked.ends[s][p]
            for s, each in self._reading.partitions.items()
            for p in each
        }

    @property
    def offsets(self) -> Offsets:
        """Partition → the first offset that some view needs; the next one if none reads its
        source."""
        needed = self._earliest.tokens
        return {
            partition: offset
            for source, changes in self._reading.changes.items()
            for partition, offset in (
                self._offsets(source, needed[source]) if source in needed else changes.next
            ).items()
        }

    def by_source(self, offsets: Offsets) -> dict[str, Offsets]:
        """Offsets of all partitions, by source; SourceViolation for an unknown partition."""
        found: dict[str, Offsets] = {
            source: {p: offsets[p] for p in partitions if p in offsets}
            for source, partitions in self._reading.partitions.items()
        }
        known = {partition for each in found.values() for partition in each}
        for partition in offsets.keys() - known:
            raise SourceViolation(
                f"{partition} was added while the job was running. Start the job again: it will"
                " read all partitions and resume where the views are"
            )
        return found

    def _offsets(self, source: str, token: Token) -> Offsets:
        return offsets_from(token, self._reading.partitions[source])

    def _records(self, source: str, token: Token) -> int:
        """A token as a number of records, by which progress is measured."""
        return sum(self._offsets(source, token).values())

    # -- one micro-batch -------------------------------------------------------------------------

    def process(self, ends: Mapping[str, Offsets]) -> int:
        """Processes transactions with a record below these offsets (by source).

        Returns the number of new positions. By then the protocols are done, and their installs are
        handed over to be committed; `settle` waits for the commits.
        """
        before = self._positions()
        with self._context.measures.step("decode"):
            self._views.without_faulty_sources(
                lambda: self._reading.read_up_to(self._ends_of_read_sources(ends))
            )
        # Memory grows with a sweep, not with the batch: the rest is left to further sweeps.
        while self._sweep(ends):
            pass
        return self._positions() - before

    def _ends_of_read_sources(self, ends: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """The end offsets of those sources that at least one view reads."""
        read = {source for view in self._views.kept for source in view.view.sources}
        return {source: each for source, each in ends.items() if source in read}

    def _sweep(self, ends: Mapping[str, Offsets]) -> bool:
        """Does one sweep of every view; True if transactions below these offsets still wait."""
        with self._context.measures.step("order"):
            waiting = self._views.each(lambda view: view.enqueue_upto(ends))
            self._note_first_waiting()
        self._work()
        self._views.each(KeptView.end_batch)
        self._driver.forget()
        received = {
            source: self._driver.received.received(source) for source in self._reading.changes
        }
        self._reading.forget({**received, **self._earliest.vector})
        return any(waiting)

    def _note_first_waiting(self) -> None:
        """Notes the first waiting transaction of each source, to compute the backlog."""
        vector = self._earliest.vector
        found = {source: self._reading.first_waiting(source, v) for source, v in vector.items()}
        self._next = {
            source: (self._records(source, each[0]), each[1])
            for source, each in found.items()
            if each is not None
        }

    def _note_reached(self) -> None:
        """Counts read records that bring no update as done; called when nothing is in work."""
        vector = self._earliest.vector
        found = {source: self._reading.has_read_all(source, v) for source, v in vector.items()}
        self._reached = {s: sum(read.values()) for s, read in found.items() if read is not None}

    def _installed(self) -> dict[str, Installed]:
        """The progress of all views in each topic; any thread may call it."""
        kept = self._views.kept
        tokens = earliest([view.committed for view in kept]).tokens if kept else {}
        reached, following = self._reached, self._next
        return {
            source: Installed(
                max(self._records(source, token), reached.get(source, 0)), following.get(source)
            )
            for source, token in tokens.items()
        }

    def status(self) -> tuple[list[SourceStatus], list[ViewStatus]]:
        """The state of sources and views at this moment; any thread may call it."""
        received, known = self._reading.received, self._context.measures
        sources = [
            SourceStatus(
                s,
                known.reachable.get(s),
                received.received(s),
                known.behind.get(s),
                self._checked.reads[s],
                known.answers.figures.get(s, AnswerFigures()),
            )
            for s in self._reading.changes
        ]
        return sources, [view.status() for view in self.views]

    def settle(self) -> None:
        """Waits until all installs handed over are committed."""
        self._views.each(KeptView.settle)

    def _positions(self) -> int:
        return sum(view.standing.position for view in self.views)

    def _work(self) -> None:
        """Runs wave after wave until the protocols have nothing open and begin nothing."""
        committed = time.monotonic()
        with self._context.measures.step("sweep"):
            self._driver.begin()
        while self._driver.open:
            with self._context.measures.step("sweep"):
                self._wave()
            if time.monotonic() - committed > _COMMIT_SECONDS:
                self._views.each(KeptView.install)
                committed = time.monotonic()

    def _wave(self) -> None:
        """Sends all new questions together, and hands their answers to the views that asked.

        Waits for executors when nothing else is left to do.
        """
        if self._context.stopping.is_set():
            raise Stopped
        elsewhere = list(chain.from_iterable(self._views.each(KeptView.sweep_elsewhere)))
        self._context.measures.note_wait("executors", bool(elsewhere))
        if not self._driver.send() and not self._driver.holds_answers:
            wait(elsewhere, _LOOK_SECONDS, FIRST_COMPLETED)
            return
        self._views.without_faulty_sources(self._ask)
        self._views.without_faulty_sources(lambda: self._reading.catch_up(self._driver.missing()))
        self._driver.hand_over_all()

    def _ask(self) -> None:
        """Asks all questions that were sent; asking again does no harm."""
        sent = self._driver.unanswered
        answers = self._reading.ask([asked.question for asked in sent])
        for asked, answer in zip(sent, answers, strict=True):
            self._driver.answered(asked, answer)

    def tend(self) -> None:
        """Called between batches: goes on with open questions and the upkeep."""
        if self._driver.asking:
            self._wave()
        if all(view.idle for view in self._views.kept):
            self._note_reached()
        self._views.each(KeptView.tend)

    def finish(self) -> None:
        """Waits for the last commits, and brings the `current` tables to the end."""
        self.settle()
        self._note_reached()
        self._watching.look_again()
        self._views.each(KeptView.finish)

    def close(self) -> None:
        """Ends the threads of the views, the commits and the lookahead."""
        self._made.close()


def earliest(standings: Sequence[Standing]) -> Standing:
    """The standing from which the topics have to be read so that no view misses an update."""
    vector: dict[str, int] = {}
    tokens: dict[str, Token] = {}
    digests: dict[str, int] = {}
    for standing in standings:
        for source, version in standing.vector.items():
            place = version, standing.tokens[source]
            if source not in vector or place < (vector[source], tokens[source]):
                vector[source], tokens[source] = place
                digests[source] = standing.digests.get(source, UNKNOWN)
    return Standing(min(standing.position for standing in standings), vector, tokens, digests)
