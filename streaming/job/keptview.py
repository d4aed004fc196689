"""One view that a job keeps: its tables, its order of delivery, its running protocol.

    queued transactions ─> mailbox ─> protocol ─> installs ─> one Delta commit

The views of a job share topics and answers (`reading.py`); each has positions of its own. A part of
a global transaction waits for the others, and later transactions of its source wait too, over
batches and restarts if need be: no commit has them, and the standing's offsets stay before them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame, empty_frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.errors import ProtocolBug, WrongUse
from protocols.exchange.correction import ahead
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.exchange.delivery import Channel, Delivery
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.maintained import Maintained, Wanted
from protocols.exchange.protocol import Install
from protocols.exchange.questions import Answer, Query, Question, Snapshot
from protocols.exchange.together import finish
from protocols.maintenance.firststate import next_stretch, root_of
from protocols.maintenance.registry import Entry, protocol
from protocols.operators.memory import Memories
from protocols.views.catalog import Catalog, Relation
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView
from sources.history import UNKNOWN
from streaming.figures.heldback import held_back
from streaming.figures.measuring import Measures
from streaming.figures.noting import noted
from streaming.figures.status import ViewStatus
from streaming.intake.reading import Reading
from streaming.job.commits import Commits
from streaming.job.slices import Batch, batch_of
from streaming.job.sweeping import Cluster, Done, Sweeping
from streaming.settings.configuration import Configuration, ViewSettings
from warehouse.files import WrittenFile
from warehouse.mending import mend
from warehouse.progress import QUESTION
from warehouse.staging import Staging, discard_pages, staging_of
from warehouse.standing import Standing
from warehouse.tables import ViewTables
from warehouse.upkeep import Upkeep, UpkeepSettings

Report = Callable[[str], None]


class KeptView:
    """The state of one view in a running job."""

    def __init__(
        self,
        configuration: Configuration,
        settings: ViewSettings,
        catalog: Catalog,
        measures: Measures,
        report: Report,
    ) -> None:
        self._configuration = configuration
        self.entry: Entry = protocol(settings.protocol)
        self.view = parse_view(settings.name, settings.sql, catalog)
        self.entry.refuse_view(self.view)
        mend(configuration.warehouse, self.view, report)
        self.tables = ViewTables(configuration.warehouse, self.view, report)
        self.tables.allows_too_few = self.entry.control
        self._upkeep_settings = UpkeepSettings(
            configuration.job.current_every_seconds,
            configuration.job.upkeep_every_seconds,
            configuration.job.readers_minutes,
            settings.history_hours,
        )
        self._records_per_sweep = configuration.job.records_per_sweep
        self._measures = measures
        self._report = report
        #: The standing of the view, with the commits that were handed over and are not made yet.
        self.standing: Standing
        #: The standing that is committed and visible to readers.
        self.committed: Standing
        #: The view as its running protocol maintains it.
        self.work: Maintained[Frame]
        self._reading: Reading
        self._mailbox: Mailbox[Frame]
        self._delivery: Delivery[Frame]
        self._commits: Commits
        #: None if this process sweeps everything.
        self._sweeping: Sweeping | None = None
        #: The memories of the tree's operators; empty after a restart.
        self._memories = Memories()
        #: Questions asked and not committed yet, by position.
        self._asked: dict[int, list[dict[str, Any]]] = {}
        #: Changes that executors have written, not committed yet.
        self._written: list[WrittenFile] = []
        self._upkeep: Upkeep
        #: Rows of the view, those included that are handed over to be committed.
        self._rows = 0
        #: When it was last committed, in seconds since the epoch.
        self._committed_at: float | None = None

    # -- before the first batch ------------------------------------------------------------------

    def refuse_copies(self, known: Configuration) -> None:
        """WrongUse if a copy would answer questions of a protocol that counts on FIFO."""
        copied = (r for r in self.view.relations if known.sources[r.source].keeps_copy_of(r.name))
        relation = next(copied, None) if self.entry.fifo else None
        if relation is not None:
            raise WrongUse(
                f"{known.file}: sources.{relation.source}.keep.{relation.name} is 'full', and view"
                f" {self.view.name} reads it by protocol {self.entry.name}, which needs answers in"
                " order with updates; those of a copy are not. Leave the key out, or choose a"
                " protocol such as batched-sweep"
            )

    def resume(self) -> None:
        """Goes on from the tables' standing, which was checked."""
        discard_pages(self.tables)
        self.tables.recover_progress()
        self.tables.follow()
        self._report(f"view {self.view.name}: going on from position {self.standing.position}")

    def begin_first_state(
        self, begins: Callable[[], Standing], refuse: Callable[[Standing], object]
    ) -> "FirstState":
        """The first state, at the vector of an earlier attempt if there is one and `refuse` does
        not raise, else at the vector of `begins`."""
        root = root_of(self.view)
        key = () if root is None else tuple(root.type_of(column) for column in root.key)
        staging = staging_of(self.tables, key, refuse, self._report)
        return FirstState(
            self.view, self.tables, staging, begins, self._memories, self._measures, self._report
        )

    def start(
        self,
        reading: Reading,
        commits: Commits,
        executors: Cluster | None = None,
    ) -> None:
        """Starts the protocol on the updates after the view's state."""
        self._reading, self._commits = reading, commits
        view, standing = self.view, self.standing
        self.committed = standing
        self._rows = self.tables.rows()
        channel = None
        if self.entry.fifo:
            logs = {relation: FrameLog() for relation in view.relations}
            self._mailbox = Mailbox(logs, standing.vector, standing.position)
            channel = Channel(reading.received, self._mailbox, _as_received)
        else:
            self._mailbox = Mailbox(reading.received, standing.vector, standing.position)
        self._delivery = Delivery(
            self._mailbox, view.sources, reading, self.entry.refuse_global, channel
        )
        least_rows = self._configuration.job.executor_rows
        if executors is not None and least_rows:
            self._sweeping = Sweeping(view, self._mailbox, executors, least_rows)
        self.work = Maintained(
            view.name,
            self._mailbox,
            self._delivery,
            self.entry.fifo,
            self._told,
            None if self._sweeping is None else self._sweeping.wants,
        )
        self.work.start(self.entry.begin_with(view, self._mailbox, self._contents, self._memories))
        self._upkeep = Upkeep(self.tables, self._upkeep_settings, self._report)

    def _contents(self) -> Frame:
        """The rows of the view at its standing."""
        rows = self.tables.changes().select(*self.view.schema, COUNT).collect()
        return Frame(rows).consolidated()

    # -- one micro-batch -------------------------------------------------------------------------

    def enqueue_upto(self, ends: Mapping[str, int]) -> bool:
        """Enqueues transactions that begin below these offsets, as many as one sweep may have.

        Returns whether more of them wait.
        """
        feeds = self._reading.feeds
        upto = {s: feeds[s].version_up_to(ends[s]) for s in ends.keys() & set(self.view.sources)}
        return self.work.enqueue_upto(upto, self._records_per_sweep)

    def _told(self, wanted: Wanted[Frame], answer: Answer[Frame], found: Snapshot[Frame]) -> None:
        """Remembers for `progress` the questions of a position."""
        question = wanted.question
        if answer.copied:
            self._measures.answers_of_copies += 1
            return
        self._measures.corrected += ahead(self._mailbox, question, found) > 0
        if question.position:
            said = noted(question, answer, found.version)
            self._asked.setdefault(question.position, []).append(said)

    def sweep_elsewhere(self) -> list[Future[Done]]:
        """Takes stretches that executors have swept, and hands out those that they may sweep.

        Returns the futures to wait for.
        """
        if self._sweeping is None:
            return []
        for stretch, done in self._sweeping.take_done():
            self._note_swept(done)
            self.work.swept(stretch, None)
        for stretch in self.work.take_stretches():
            self._sweeping.begin(stretch, self._batch())
        return self._sweeping.at_work

    def _batch(self) -> Batch:
        """Everything that executors need to sweep a part of the batch."""
        received = {source: self._mailbox.received(source) for source in self.view.sources}
        self._reading.router.advance()
        return batch_of(
            self._configuration,
            self.view,
            self.entry.name,
            self._mailbox,
            self._reading.received.logs,
            self._reading.router.copies.values(),
            self._offsets(received),
            self._digests(received),
        )

    def _note_swept(self, done: Done) -> None:
        """Notes the files that executors have written, for the next commit, and the figures."""
        slices = done.slices
        for each in slices:
            self._asked.setdefault(each.slice.last, []).extend(each.questions)
            self._measures.swept_elsewhere(each.executor, each.queries, each.bytes, each.seconds)
            self._measures.corrected += each.corrected
            self._measures.answers_of_copies += each.answers_of_copies
            if each.file is not None:
                self._written.append(each.file)
        self._measures.batches_on_executors += 1
        self._measures.executor_batches.append(
            {
                "positions": slices[-1].slice.last - slices[0].slice.first + 1,
                "seconds": done.seconds,
                "slices": [
                    {"executor": each.executor, "ready": each.ready, "seconds": each.seconds}
                    for each in slices
                ],
            }
        )
        self._report(
            f"view {self.view.name}: positions {slices[0].slice.first} to {slices[-1].slice.last}"
            f" swept in {len(slices)} slices by {len({each.executor for each in slices})} executors"
            f" in {done.seconds:.1f} s"
        )

    def status(self) -> ViewStatus:
        """What is known of it; any thread may ask."""
        committed = self.committed
        return ViewStatus(
            name=self.view.name,
            protocol=self.entry.name,
            position=committed.position,
            vector=dict(committed.vector),
            backlog=max(0, self._mailbox.last_position - committed.position),
            at_work=self.work.open,
            rows=self._rows,
            committed_at=self._committed_at,
            held_back=self._measures.held_back.get(self.view.name),
        )

    def end_batch(self) -> None:
        """Installs the rest. Updates that are not installed then wait for a missing part."""
        self.install()
        self._note_what_waits()
        self.work.validate()
        self._mailbox.forget(self.standing.position)

    def _note_what_waits(self) -> None:
        """Notes parts of global transactions that wait over batches, so that the job says so."""
        name = self.view.name
        held = held_back(name, self._delivery.held, self._reading.committed_at)
        if held is None:
            self._measures.held_back.pop(name, None)
        else:
            self._measures.held_back[name] = held

    def install(self) -> None:
        """Hands over all finished installs as one commit."""
        installs = self.work.take_installs()
        if not installs:
            return
        order = self._order_of(installs)
        last = installs[-1].position
        vector = self._mailbox.vector_at(last)
        standing = Standing(last, vector, self._offsets(vector), self._digests(vector))
        changes = _placed(self.view, installs)
        written, self._written = self._written, []
        shown = _shown(installs, len(np.unique(order.position)))
        delivered = self._delivered(order, installs, shown)
        self.standing = standing
        self._reading.seen(vector)
        self._count(len(order), installs, changes)
        self._rows += sum(file.growth for file in written)
        self._commits.hand_over(
            partial(self._commit, changes, written, standing, order, shown, delivered)
        )

    def _order_of(self, installs: Sequence[Install[Frame]]) -> Deliveries:
        """The transactions of these states, which have to follow the installed ones."""
        after, last = self.standing.position, installs[-1].position
        if not after < installs[0].position <= last <= self._mailbox.last_position:
            raise ProtocolBug(
                f"positions {installs[0].position} to {last} were to be installed, {after + 1} to"
                f" {self._mailbox.last_position} are there"
            )
        return self._mailbox.deliveries(after, last)

    def _commit(
        self,
        changes: pl.DataFrame,
        written: Sequence[WrittenFile],
        standing: Standing,
        order: Deliveries,
        shown: Numbers | None,
        delivered: pl.DataFrame,
    ) -> None:
        """Runs in the thread of the commits: `changes` first, then what is derived from it."""
        with self._measures.step("commit"):
            self.tables.install(changes, standing, order, shown, written)
        self._measures.freshness.installed(delivered["committed_at"])
        with self._measures.step("progress"):
            self.tables.record(delivered)
        self.committed = standing
        self._committed_at = time.time()
        self._upkeep.look(quiet=False)

    def _delivered(
        self, order: Deliveries, installs: Sequence[Install[Frame]], shown: Numbers | None
    ) -> pl.DataFrame:
        """The rows of `progress`, one for each transaction.

        At a position with several transactions, the first row has the questions and skips.
        """
        times = np.empty(len(order), np.int64)
        for number, source in enumerate(order.sources):
            mine = order.source == number
            if mine.any():
                versions = order.version[mine]
                feed = self._reading.feeds[source]
                times[mine] = feed.times(int(versions[0]) - 1, int(versions[-1]))
        skipped = np.zeros(len(order), np.int64)
        for install in installs:
            if install.skipped:
                skipped[np.searchsorted(order.position, install.position)] += install.skipped
        names = pl.Series(order.sources, dtype=pl.String)
        return pl.DataFrame(
            {
                "position": order.position,
                "source": names.gather(order.source),
                "version": order.version,
                "committed_at": pl.Series(times).cast(pl.Datetime("ms")).cast(pl.Datetime("us")),
                "skipped": skipped,
                "questions": self._questions(order.position),
                "shown": np.ones(len(order), bool)
                if shown is None
                else np.isin(order.position, shown),
            }
        )

    def _questions(self, positions: Numbers) -> pl.Series:
        """The questions of these positions, each list where its position comes first, else null."""
        first, last = positions[0], positions[-1]
        asked = sorted(position for position in self._asked if first <= position <= last)
        said = [None, *(self._asked.pop(position) for position in asked)]
        which = np.zeros(len(positions), np.int64)
        which[np.searchsorted(positions, asked)] = np.arange(1, len(said))
        return pl.Series("questions", said, pl.List(QUESTION)).gather(which)

    def _offsets(self, vector: Mapping[str, int]) -> dict[str, int]:
        """The offset after each version of the vector; unchanged where a source had no update."""
        offsets = dict(self.standing.offsets)
        for source, version in vector.items():
            if version > self.standing.vector[source]:
                offsets[source] = self._reading.feeds[source].offset_behind(version)
        return offsets

    def _digests(self, vector: Mapping[str, int]) -> dict[str, int]:
        """The digest of each source's history up to the vector."""
        return {
            source: self._reading.feeds[source].digest_at(version)
            if version > self.standing.vector[source]
            else self.standing.digests.get(source, UNKNOWN)
            for source, version in vector.items()
        }

    def _count(
        self, updates: int, installs: Sequence[Install[Frame]], changes: pl.DataFrame
    ) -> None:
        self._measures.updates += updates
        self._measures.batches += 1
        self._measures.skipped += sum(install.skipped for install in installs)
        self._rows += int(changes[COUNT].sum())

    # -- beside the batches ----------------------------------------------------------------------

    def tend(self) -> None:
        """Lets `current` follow and the upkeep run, when they are due."""
        self._commits.hand_over(self._look)

    def _look(self) -> None:
        """Runs in the thread of the commits, and brings its handles of the tables up to date."""
        self._upkeep.look(quiet=True)

    def finish(self) -> None:
        """Brings `current` to the last position, after the last commit."""
        if hasattr(self, "_upkeep"):
            self._upkeep.close()
            self.tables.catch_up()
            self.tables.follow()
            self._measures.steps["current"] = self._upkeep.following.total
            self._measures.steps["upkeep"] = self._upkeep.tidying.total

    def close(self) -> None:
        """Ends the executors' sweeps and the upkeep."""
        if self._sweeping is not None:
            self._sweeping.close()
        if hasattr(self, "_upkeep"):
            self._upkeep.close()


class FirstState:
    """Reads a view at one vector while the sources go on committing; can be interrupted."""

    def __init__(
        self,
        view: AnyView,
        tables: ViewTables,
        staging: Staging,
        begins: Callable[[], Standing],
        memories: Memories,
        measures: Measures,
        report: Report,
    ) -> None:
        self._view, self._tables, self._report = view, tables, report
        self._memories = memories
        self._measures = measures
        root = root_of(view)
        self._from = "all of its relations" if root is None else str(root)
        self._staging = staging
        if staging.standing is None:
            staging.begin(begins())
        else:
            report(f"view {view.name}: going on with the first state, {self._rows}")
        assert self._staging.standing is not None
        #: The vector that it is read at.
        self.standing = self._staging.standing

    def read(self, reading: Reading, limit: int) -> Standing:
        """Reads page by page, until the first state is complete and visible."""
        staging = self._staging
        self._check(reading)
        self._tables.define()
        mailbox = Mailbox(reading.received, self.standing.vector, self.standing.position)
        ask = partial(self._ask, reading, mailbox)
        while not staging.finished:
            task = next_stretch(self._view, mailbox, staging.last_key, limit, self._memories)
            part = finish(task, ask)
            staging.add(None if part.rows is None else part.rows.data, part.last_key)
            self._report(f"view {self._view.name}: first state, {self._rows} so far")
        staging.finish()
        self._tables.follow()
        return self.standing

    def _check(self, reading: Reading) -> None:
        """Asks each source for no rows, before the vector from its status is kept.

        The answer's version has to be the vector's, or one that comes after the vector's offsets.
        """
        asked = {relation.source: relation for relation in self._view.relations}
        reading.look_up([_for_nothing(relation) for relation in asked.values()])

    def _ask(
        self, reading: Reading, mailbox: Mailbox[Frame], questions: list[Question[Frame]]
    ) -> list[Snapshot[Frame]]:
        found = [rows for _, rows in reading.look_up(questions)]
        for question, rows in zip(questions, found, strict=True):
            self._measures.corrected += ahead(mailbox, question, rows) > 0
        return found

    @property
    def _rows(self) -> str:
        return f"{self._staging.rows:,} rows from {self._from}"


def _as_received(_: Relation, changes: Frame, version: int) -> pl.DataFrame:
    """The changes of a version, in the form of a log."""
    return changes.data.with_columns(pl.lit(version, pl.Int64).alias(VERSION))


def _for_nothing(relation: Relation) -> Question[Frame]:
    """A question with an empty set of keys, which no row of the relation matches."""
    (name, type_), *_ = relation.columns
    return Query(relation, (name,), keys=(empty_frame({name: type_}),))


def _placed(view: AnyView, installs: Sequence[Install[Frame]]) -> pl.DataFrame:
    """All changes of a batch in one frame, each with its position."""
    parts = [
        install.change.data
        if install.first is not None
        else install.change.data.with_columns(pl.lit(install.position, pl.Int64).alias(POSITION))
        for install in installs
        if install.change is not None
    ]
    columns = [*view.schema, COUNT, POSITION]
    if not parts:
        nothing = empty_frame(view.schema).data
        return nothing.with_columns(pl.lit(0, pl.Int64).alias(POSITION)).select(columns)
    return pl.concat(part.select(columns) for part in parts)


def _shown(installs: Sequence[Install[Frame]], positions: int) -> Numbers | None:
    """The positions that have a state of their own; None if all of them have one."""
    spans = [(i.position if i.first is None else i.first, i.position) for i in installs]
    if sum(last - first + 1 for first, last in spans) == positions:
        return None
    return np.concatenate([np.arange(first, last + 1) for first, last in spans])
