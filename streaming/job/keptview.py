"""One view that a job keeps: its tables, its order of delivery, its running protocol.

    queued transactions ─> mailbox ─> protocol ─> installs ─> one Delta commit

The views of a job share topics and answers (`reading.py`); each has positions of its own. A part of
a global transaction waits for the others, and later transactions of its source wait too, over
batches and restarts if need be: no commit has them, and the standing's tokens stay before them.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.errors import ProtocolBug
from protocols.exchange.correction import ahead
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.exchange.delivery import Channel, Delivery
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.maintained import Maintained, WantedAnswer
from protocols.exchange.protocol import Install
from protocols.exchange.questions import Answer, Snapshot
from protocols.failures import as_ours
from protocols.operators.memory import Memories
from protocols.telling import Told
from protocols.views.catalog import Relation
from sources.history import UNKNOWN
from sources.partitions import Offsets, Token
from streaming.figures.heldback import held_back
from streaming.figures.noting import noted
from streaming.figures.status import ViewStatus
from streaming.intake.reading import Reading
from streaming.job.context import Context
from streaming.job.installs import placed, shown_in
from streaming.job.recording import RecordedAnswer
from streaming.job.slices import Batch, batch_of
from streaming.job.storedview import StoredView
from streaming.job.storing import Commit, Storing
from streaming.job.sweeping import Cluster, Done, Sweeping
from warehouse.files import WrittenFile
from warehouse.progress import QUESTION
from warehouse.standing import Standing

Report = Callable[[str], None]


class KeptView:
    """The state of one view in a running job."""

    def __init__(
        self,
        context: Context,
        stored: StoredView,
        standing: Standing,
        memories: Memories,
        reading: Reading,
        executors: Cluster | None,
    ) -> None:
        """Starts the protocol on the updates after the standing, which is that of the tables.

        `memories`: of the tree's operators, filled by the first state if this job has read it.
        """
        self._configuration = context.configuration
        self.entry, self.view, self.tables = stored.entry, stored.view, stored.tables
        self._reading = reading
        self._measures = context.measures
        self._report = context.report
        self._recording = context.recording
        #: The error that ended the view; none while it is kept.
        self.failure: BaseException | None = None
        #: The standing of the view, with the commits that were handed over and are not made yet.
        self.standing = standing
        #: Questions asked and not committed yet, by position.
        self._asked: dict[int, list[dict[str, Any]]] = {}
        #: Changes that executors have written, not committed yet.
        self._written: list[WrittenFile] = []
        #: Rows of the view, with those that are handed over and not committed yet.
        self._rows = self.tables.rows()
        self._mailbox, channel = self._mailbox_and_channel()
        self._delivery = Delivery(
            self._mailbox, self.view.sources, reading, self.entry.refuse_global, channel
        )
        #: None if this process sweeps everything.
        self._sweeping = self._by_executors(executors)
        #: The view as its running protocol maintains it.
        self.work = self._maintained(memories)
        self._storing = Storing(stored, standing, context.measures, context.report)

    def _mailbox_and_channel(self) -> tuple[Mailbox[Frame], Channel[Frame] | None]:
        """The mailbox; a protocol that counts on FIFO has one of its own, behind a channel."""
        received, standing = self._reading.received, self.standing
        if not self.entry.fifo:
            return Mailbox(received, standing.vector, standing.position), None
        logs = {relation: FrameLog() for relation in self.view.relations}
        mailbox = Mailbox(logs, standing.vector, standing.position)
        return mailbox, Channel(received, mailbox, _as_received)

    def _by_executors(self, executors: Cluster | None) -> Sweeping | None:
        least_rows = self._configuration.job.executor_rows
        if executors is None or not least_rows or self._asks_a_database():
            return None
        return Sweeping(self.view, self._mailbox, executors, least_rows)

    def _asks_a_database(self) -> bool:
        """Whether a source is a database itself: only this process knows its numbers."""
        known = self._configuration.sources
        return any(known[source].database is not None for source in self.view.sources)

    def _maintained(self, memories: Memories) -> Maintained[Frame]:
        """The view with its protocol, which begins after the standing."""
        work = Maintained(
            self.view.name,
            self._mailbox,
            self._delivery,
            self.entry.fifo,
            self._told,
            None if self._sweeping is None else self._sweeping.wants,
        )
        work.start(self.entry.begin_with(self.view, self._mailbox, self._contents, memories))
        return work

    def _contents(self) -> Frame:
        """The rows of the view at its standing."""
        rows = self.tables.changes().select(*self.view.schema, COUNT).collect()
        return Frame(rows).consolidated()

    # -- one micro-batch -------------------------------------------------------------------------

    def enqueue_upto(self, ends: Mapping[str, Offsets]) -> bool:
        """Enqueues transactions with a record below these offsets, as many as one sweep may have.

        Returns whether more of them wait.
        """
        changes = self._reading.changes
        upto = {s: changes[s].version_up_to(ends[s]) for s in ends.keys() & set(self.view.sources)}
        return self.work.enqueue_upto(upto, self._configuration.job.records_per_sweep)

    def _told(
        self, wanted: WantedAnswer[Frame], answer: Answer[Frame], found: Snapshot[Frame]
    ) -> None:
        """Notes the questions asked for a position, to be written to `progress`."""
        question = wanted.question
        if self._recording is not None:
            self._recording.answered(self.view.name, RecordedAnswer(question, answer, found))
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
            self._reading.partitions,
            self._tokens(received),
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
        words = (
            f"view {self.view.name}: positions {slices[0].slice.first} to {slices[-1].slice.last}"
            f" swept in {len(slices)} slices by {len({each.executor for each in slices})} executors"
            f" in {done.seconds:.1f} s"
        )
        self._report(Told(words, view=self.view.name, position=slices[-1].slice.last))

    def status(self) -> ViewStatus:
        """The state of the view; any thread may call it."""
        committed = self.committed
        return ViewStatus(
            name=self.view.name,
            protocol=self.entry.name,
            position=committed.position,
            vector=dict(committed.vector),
            backlog=max(0, self._mailbox.last_position - committed.position),
            at_work=self.work.open,
            rows=self._rows,
            committed_at=self._storing.committed_at,
            held_back=None if self.failed else self._measures.held_back.get(self.view.name),
            failed=self.failed,
            audit=self._measures.audits.get(self.view.name),
        )

    @property
    def failed(self) -> str | None:
        """The reason why it is kept no longer; any thread may ask."""
        return None if self.failure is None else str(as_ours(self.failure))

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
        standing = Standing(last, vector, self._tokens(vector), self._digests(vector))
        changes = placed(self.view, installs)
        written, self._written = self._written, []
        if self._recording is not None:
            logs = {r: self._reading.received.logs[r] for r in self.view.relations}
            self._recording.installed(self.view.name, self.standing.vector, order, logs)
        shown = shown_in(installs, len(np.unique(order.position)))
        delivered = self._delivered(order, installs, shown)
        self.standing = standing
        self._reading.seen(vector)
        self._count(len(order), installs, changes)
        self._rows += sum(file.growth for file in written)
        self._storing.hand_over(Commit(changes, written, standing, order, shown, delivered))

    def _order_of(self, installs: Sequence[Install[Frame]]) -> Deliveries:
        """The transactions of these states, which have to follow the installed ones."""
        after, last = self.standing.position, installs[-1].position
        if not after < installs[0].position <= last <= self._mailbox.last_position:
            raise ProtocolBug(
                f"positions {installs[0].position} to {last} were to be installed, {after + 1} to"
                f" {self._mailbox.last_position} are there"
            )
        return self._mailbox.deliveries(after, last)

    def _delivered(
        self, order: Deliveries, installs: Sequence[Install[Frame]], shown: Numbers | None
    ) -> pl.DataFrame:
        """The rows of `progress`, one for each transaction.

        If a position has several transactions, only its first row holds the questions asked and the
        number of questions skipped.
        """
        times = np.empty(len(order), np.int64)
        for number, source in enumerate(order.sources):
            mine = order.source == number
            if mine.any():
                versions = order.version[mine]
                times[mine] = self._reading.times(source, int(versions[0]) - 1, int(versions[-1]))
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

    def _tokens(self, vector: Mapping[str, int]) -> dict[str, Token]:
        """The token after each version of the vector; unchanged where a source had no update."""
        tokens = dict(self.standing.tokens)
        for source, version in vector.items():
            if version > self.standing.vector[source]:
                tokens[source] = self._reading.changes[source].token_after(version)
        return tokens

    def _digests(self, vector: Mapping[str, int]) -> dict[str, int]:
        """The digest of each source's history up to the vector."""
        return {
            source: self._reading.changes[source].digest_at(version)
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

    @property
    def committed(self) -> Standing:
        """The standing of the last commit that readers see; any thread may call this."""
        return self._storing.committed

    @property
    def idle(self) -> bool:
        """Whether all installs handed over are committed."""
        return self._storing.idle

    def settle(self) -> None:
        """Waits until all installs handed over are committed."""
        self._storing.settle()

    def tend(self) -> None:
        """Lets `current` follow and the upkeep run, when they are due; raises their errors."""
        self._storing.tend()

    def finish(self) -> None:
        """Brings `current` to the last position, after the last commit."""
        self._storing.finish()

    def fail(self, error: BaseException) -> None:
        """Ends the view with an error; nothing more of it is handed over to be committed."""
        self.failure = error
        if self._sweeping is not None:
            self._sweeping.cancel()

    def close(self) -> None:
        """Ends the executors' sweeps and the threads that write the tables."""
        if self._sweeping is not None:
            self._sweeping.close()
        self._storing.close()


def _as_received(_: Relation, changes: Frame, version: int) -> pl.DataFrame:
    """The changes of a version, in the form of a log."""
    return changes.data.with_columns(pl.lit(version, pl.Int64).alias(VERSION))
