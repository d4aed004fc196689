"""One view kept by one job, without Spark: what happens to the records of a micro-batch.

    batch of records ─ feed ─> mailbox ─ order of delivery ─> protocol <─ waves ─> query servers
                        ^                                        |             lookahead ─ feed
                        └── lookahead completes cut transactions └─> one Delta commit

What the protocol asks and when is driven by `driving.py`. A part of a global transaction waits for
the others, and what is behind it at its source waits too, over batches and restarts if need be: it
is in no commit, and the standing's offsets stay before it.

Delta is the truth: the job starts from the standing in the last commit, whatever Spark's
checkpoint says. A batch that is there already delivers nothing; a batch that begins too late is
filled up by the lookahead.
"""

import datetime
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame, FrameLog, empty_frame
from protocols.checking.trace import JOINT
from protocols.errors import ProtocolBug, SourceViolation, WrongUse
from protocols.maintenance.deliveries import Deliveries
from protocols.maintenance.firststate import root_of, stretch
from protocols.maintenance.holdback import GlobalPart
from protocols.maintenance.mailbox import Group, Mailbox
from protocols.maintenance.protocol import Install
from protocols.maintenance.questions import Answer, Joint, Question
from protocols.maintenance.registry import Entry, protocol
from protocols.views.catalog import Catalog, relation_from_json
from protocols.views.sql import parse_view
from protocols.views.view import View
from streaming.asking import Sources, refuse_reset, versions_in
from streaming.configuration import Configuration, ViewSettings
from streaming.driving import Channel, Delivery, InTurn, Pieces, finish
from streaming.feed import Feed, Receiver, positions_of
from streaming.measuring import Measures
from streaming.topics import Lookahead, ends_of_topics, refuse_lost_records
from warehouse.staging import Staging, discard_pages
from warehouse.standing import Standing
from warehouse.tables import POSITION, PROGRESS, ViewTables
from warehouse.upkeep import Upkeep, UpkeepSettings

Report = Callable[[str], None]
#: Updates may keep a protocol busy for ever; what it has finished is committed at such intervals.
_COMMIT_SECONDS = 1.0


class Job:
    """The state of a running job: `check`, `prepare`, then `process` for each micro-batch."""

    def __init__(
        self, configuration: Configuration, settings: ViewSettings, report: Report
    ) -> None:
        self._configuration = configuration
        self._settings = settings
        self._entry: Entry = protocol(settings.protocol)
        self._report = report
        self.measures = Measures()
        #: Set from outside to end the job; whatever waits for something then gives up.
        self.stopping = threading.Event()
        #: Set by `check`: per source its topic's ends and its version, asked in this order.
        self._sources: Sources
        self._ends: dict[str, tuple[int, int]]
        self._versions: dict[str, int]
        self.view: View
        self.tables: ViewTables
        #: Set by `prepare`.
        self.standing: Standing
        self._mailbox: Mailbox[Frame]
        #: Where the feeds put what they have read: the mailbox, or a channel in front of it.
        self._receiver: Receiver
        self._feeds: dict[str, Feed]
        self._lookahead: Lookahead
        self._delivery: Delivery
        self._pieces: Pieces
        #: Sources of which a batch has brought something since the start.
        self._heard: set[str] = set()
        #: Questions asked so far in this batch, by position.
        self._asked: dict[int, list[dict[str, Any]]] = {}

    # -- before the first batch ------------------------------------------------------------------

    def check(self) -> None:
        """Checks everything that can be checked before any work is begun."""
        known = self._configuration
        used = known.sources_of(self._settings)
        self._sources = Sources(used, known.job.patience_seconds, self._report, self.stopping)
        topics = {source.name: source.topic for source in used.values()}
        #: Asked before the versions: what is newer than those lies at or behind these offsets.
        self._ends = ends_of_topics(known.bootstrap, topics)
        statuses = self._sources.statuses()
        self._versions = versions_in(statuses)
        self.view = parse_view(self._settings.name, self._settings.sql, _catalog(statuses))
        self._entry.refuse_view(self.view)
        self.tables = ViewTables(known.warehouse, self.view)
        if self.tables.exists:
            self._refuse_lost(self.tables.standing())

    def _refuse_lost(self, standing: Standing) -> None:
        """Whether sources and topics still have everything that comes after the standing."""
        refuse_reset(standing.vector, self._versions)
        for source, offset in standing.offsets.items():
            topic = self._configuration.sources[source].topic
            refuse_lost_records(source, topic, offset, self._ends[source])

    def prepare(self) -> None:
        """Goes on where the view stands, or makes its first state if there is none."""
        if self.tables.exists:
            self._resume()
        else:
            self._first_state()
        self.measures.position = self.standing.position
        self.measures.view_rows = self.tables.rows()
        job = self._configuration.job
        settings = UpkeepSettings(
            job.current_every_seconds,
            job.upkeep_every_seconds,
            job.readers_minutes,
            self._settings.history_hours,
        )
        self._upkeep = Upkeep(self.tables, settings, self._report)

    def _resume(self) -> None:
        standing = self.tables.standing()
        discard_pages(self.tables)
        self.tables.recover_progress()
        self.tables.follow()
        self._begin_to_maintain(standing)
        self._report(f"view {self.view.name}: going on from position {standing.position}")

    def _first_state(self) -> None:
        """Reads the view at one vector while the sources go on committing; can be interrupted."""
        root = root_of(self.view).relation
        self.tables.define()
        staging = Staging(self.tables, tuple(root.type_of(column) for column in root.key))
        if staging.standing is None:
            vector = {source: self._versions[source] for source in self.view.sources}
            offsets = {source: self._ends[source][1] for source in self.view.sources}
            staging.begin(Standing(0, vector, offsets))
        else:
            self._report(f"view {self.view.name}: going on with the first state, {_rows(staging)}")
        assert staging.standing is not None
        self._refuse_lost(staging.standing)
        self._start_from(staging.standing, in_turn=False)
        while not staging.finished:
            limit = self._configuration.job.page_rows
            part = finish(stretch(self.view, self._mailbox, staging.last_key, limit), self._ask)
            staging.add(None if part.rows is None else part.rows.data, part.last_key)
            self._report(f"view {self.view.name}: first state, {_rows(staging)} from {root} so far")
        staging.finish()
        self.tables.follow()
        # The protocol has to see the updates since in its own way, so they are read anew.
        reading = self._lookahead
        self._begin_to_maintain(staging.standing)
        reading.close()

    def _start_from(self, standing: Standing, in_turn: bool) -> None:
        """Mailbox, feeds and lookahead for what comes after the standing."""
        self.standing = standing
        logs = {relation: FrameLog() for relation in self.view.relations}
        self._mailbox = Mailbox(logs, standing.vector, standing.position)
        channel = Channel(self._mailbox, self.view.relations) if in_turn else None
        self._receiver = channel or self._mailbox
        self._feeds = {
            source: Feed(
                source,
                self._configuration.sources[source].topic,
                self.view.relations_of(source),
                self._receiver,
                standing.offsets[source],
            )
            for source in self.view.sources
        }
        self._delivery = Delivery(
            self._entry, self._mailbox, self.view.sources, self._part_of, channel
        )
        patience = self._configuration.job.patience_seconds
        self._lookahead = Lookahead(
            self._configuration.bootstrap, self._feeds, patience, self._report, self.stopping
        )

    def _part_of(self, source: str, version: int) -> GlobalPart | None:
        return self._feeds[source].part_of(version)

    def _begin_to_maintain(self, standing: Standing) -> None:
        """The view has its first state, so the protocol can start."""
        self._start_from(standing, self._entry.fifo)
        maintaining = self._entry.start(self.view, self._mailbox, self._contents)
        if self._entry.fifo:
            self._pieces = InTurn(maintaining, self._ask, self.stopping, self._delivery)
        else:
            self._pieces = Pieces(maintaining, self._ask, self.stopping)

    def _contents(self) -> Frame:
        """The rows of the view at its standing."""
        rows = self.tables.changes().select(*self.view.schema, COUNT).collect()
        return Frame(rows).consolidated()

    @property
    def topics(self) -> dict[str, str]:
        """Topic → source, of the view's sources."""
        return {feed.topic: source for source, feed in self._feeds.items()}

    # -- one micro-batch -------------------------------------------------------------------------

    def process(self, records: pl.DataFrame) -> int:
        """Installs what a micro-batch (topic, offset, value) brings; returns by how many positions.

        When it returns, the protocol has nothing more to do. What is not installed then waits for
        a part of a global transaction that no batch has brought yet.
        """
        before = self.standing.position
        with self.measures.step("decode"):
            ends = self._take(records)
        with self.measures.step("order"):
            self._line_up(ends)
        self._work()
        self._install(self._pieces.take_installs())
        if self._mailbox.last_position > self.standing.position and not self._delivery.waiting:
            raise ProtocolBug(
                f"protocol {self._entry.name} has nothing more to do at position"
                f" {self._mailbox.last_position} and has installed {self.standing.position}"
            )
        self._mailbox.forget(self.standing.position)
        if self.standing.position > before:
            self.follow_now_and_then()
        return self.standing.position - before

    def _work(self) -> None:
        """Wave after wave until the protocol has nothing open and begins nothing."""
        committed = time.monotonic()
        with self.measures.step("sweep"):
            self._pieces.begin()
        while self._pieces.open:
            with self.measures.step("sweep"):
                self._pieces.wave()
            if time.monotonic() - committed > _COMMIT_SECONDS:
                self._install(self._pieces.take_installs())
                committed = time.monotonic()

    def _take(self, records: pl.DataFrame) -> dict[str, int]:
        """Feeds the records in; returns how far the batch reaches in each source's topic."""
        ends = {}
        for (topic,), part in records.partition_by("topic", as_dict=True).items():
            source = self.topics[str(topic)]
            feed, ordered = self._feeds[source], part.sort("offset")
            first, last = int(ordered["offset"][0]), int(ordered["offset"][-1])
            if first > feed.next_offset:
                self._read_until(feed, partial(feed.has_read_up_to, first))
            feed.take(ordered["offset"], ordered["value"])
            ends[source] = last + 1
        return ends

    def _line_up(self, ends: Mapping[str, int]) -> None:
        """Gives the batch's transactions their positions, unless they wait for a partner."""
        self._heard |= ends.keys()
        self._get_in_line(ends)
        if self._delivery.waiting:
            # What Spark has fed before a restart it does not feed again, and a part that waited
            # then may be what is missing. A source without news has fed all it had at the start.
            silent = self._feeds.keys() - self._heard
            self._heard |= silent
            self._get_in_line({source: self._ends[source][1] for source in sorted(silent)})

    def _get_in_line(self, ends: Mapping[str, int]) -> None:
        """All transactions that begin below these offsets, in the order of their commits."""
        batch = {}
        for source, end in ends.items():
            feed = self._feeds[source]
            self._read_until(feed, partial(feed.is_whole_up_to, end))
            after = self._delivery.in_line[source]
            batch[source] = (after, max(after, feed.version_up_to(end)))
        for source, version in positions_of(batch, self._feeds):
            self._delivery.get_in_line(source, version)

    def _read_until(self, feed: Feed, done: Callable[[], bool]) -> None:
        what = f"the rest of a transaction in topic {feed.topic!r}"
        self._lookahead.read_until(done, what)

    def _install(self, installs: list[Install[Frame]]) -> None:
        """Makes states visible: everything up to the last of their positions, in one commit."""
        if not installs:
            return
        first, last = self.standing.position + 1, installs[-1].position
        if not first <= installs[0].position <= last <= self._mailbox.last_position:
            raise ProtocolBug(
                f"positions {installs[0].position} to {last} were to be installed, {first} to"
                f" {self._mailbox.last_position} are there"
            )
        order = [self._mailbox.at(position) for position in range(first, last + 1)]
        vector = self._mailbox.vector_at(last)
        standing = Standing(last, vector, self._offsets(vector))
        changes = _placed(self.view, installs)
        shown = {install.position: install.skipped for install in installs}
        with self.measures.step("commit"):
            places = np.fromiter(shown, np.int64)
            self.tables.install(changes, standing, _in_columns(order, first), places)
        now = time.time() * 1000
        entries = list(self._delivered(order, shown))
        self.measures.freshness.extend(now - at for at, _ in entries)
        self.standing = standing
        self._count(entries, installs, changes)
        with self.measures.step("progress"):
            columns = {name: PROGRESS[name] for name in PROGRESS if name != "installed_at"}
            self.tables.record(pl.DataFrame([row for _, row in entries], columns, orient="row"))
        for source, feed in self._feeds.items():
            feed.forget(vector[source])

    def _delivered(
        self, order: Sequence[Group], shown: Mapping[int, int]
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """(when it was committed, what `progress` says) of each transaction after the standing."""
        for position, group in enumerate(order, self.standing.position + 1):
            # What was asked for a position is said once, beside its first transaction.
            skipped, asked = shown.get(position, 0), self._asked.pop(position, [])
            for source, version in group:
                at, here = self._feeds[source].committed_at(version), position in shown
                moment = _moment(at)
                yield at, (position, source, version, moment, skipped, asked, here)
                skipped, asked = 0, []

    def follow_now_and_then(self, force: bool = False) -> None:
        """Lets `current` follow in the background, or here and now."""
        self._upkeep.look()
        if force:
            with self.measures.step("current"):
                self.tables.follow()

    def _offsets(self, vector: Mapping[str, int]) -> dict[str, int]:
        """Behind each version of the vector; unchanged where the source brought nothing."""
        offsets = dict(self.standing.offsets)
        for source, version in vector.items():
            if version > self.standing.vector[source]:
                offsets[source] = self._feeds[source].offset_behind(version)
        return offsets

    def _count(
        self, entries: Sequence[object], installs: Sequence[Install[Frame]], changes: pl.DataFrame
    ) -> None:
        measures = self.measures
        measures.position = self.standing.position
        measures.updates += len(entries)
        measures.batches += 1
        measures.skipped += sum(install.skipped for install in installs)
        measures.view_rows += int(changes[COUNT].sum())

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, questions: list[Question[Frame]]) -> list[Answer[Frame]]:
        """The answers, when the lookahead has caught up with their versions."""
        with self.measures.step("asking"):
            answers = self._sources.ask(questions)
        with self.measures.step("lookahead"):
            for question, answer in zip(questions, answers, strict=True):
                self._catch_up(question, answer)
        return answers

    def _catch_up(self, query: Question[Frame], answer: Answer[Frame]) -> None:
        source, version = query.source, answer.version
        wanted = self._mailbox.version_at(source, query.position)
        if version < self.standing.vector[source]:
            raise SourceViolation(
                f"source {source} answered at version {version}, and the view has already seen"
                f" version {self.standing.vector[source]}: the source was reset, or a replica"
                " answers that lags too far behind"
            )
        self._lookahead.read_until(
            lambda: self._receiver.received(source) >= version,
            f"version {version} of source {source}, which an answer contains,",
        )
        self.measures.queries += 1
        self.measures.corrected += version > wanted
        self.measures.bytes += answer.bytes_sent + answer.bytes_received
        if query.position:
            self._asked.setdefault(query.position, []).append(_question(query, answer))

    def close(self) -> None:
        """Lets go of all connections, also of those on which something is still waited for."""
        self.stopping.set()
        for part in ("_upkeep", "_lookahead", "_sources"):
            if hasattr(self, part):
                getattr(self, part).close()


def _catalog(statuses: Mapping[str, Mapping[str, Any]]) -> Catalog:
    """All relations of all configured sources."""
    relations = (
        relation_from_json(source, name, form)
        for source, status in statuses.items()
        for name, form in status["relations"].items()
    )
    catalog = Catalog(tuple(relations))
    if not catalog.relations:
        raise WrongUse("the configured sources hold no relations at all")
    return catalog


def _placed(view: View, installs: list[Install[Frame]]) -> pl.DataFrame:
    """All changes of a batch in one frame, each with its position."""
    changes = [(i.change, i.position) for i in installs if i.change is not None]
    return pl.concat(
        change.data.with_columns(pl.lit(position, pl.Int64).alias(POSITION))
        for change, position in changes or [(empty_frame(view.schema), 0)]
    )


def _in_columns(order: Sequence[Group], first: int) -> Deliveries:
    groups = enumerate(order, first)
    rows = [(position, *part) for position, group in groups for part in group]
    sources = tuple(sorted({source for _, source, _ in rows}))
    numbers = [(position, sources.index(source), version) for position, source, version in rows]
    return Deliveries(sources, *np.array(numbers, np.int64).T)


def _question(query: Question[Frame], answer: Answer[Frame]) -> dict[str, Any]:
    if isinstance(query, Joint):
        sent, relation = [rows for term in query.terms for rows in term.values()], JOINT
    else:
        sent, relation = list(query.keys or ()), query.relation.name
    return {
        "source": query.source,
        "relation": relation,
        "keys": sum(part.data.height for part in sent),
        "bytes": answer.bytes_sent,
        "version": answer.version,
        "rows": answer.rows.data.height,
        "answer_bytes": answer.bytes_received,
    }


def _moment(milliseconds: int) -> datetime.datetime:
    utc = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return utc.replace(tzinfo=None)


def _rows(staging: Staging) -> str:
    return f"{staging.rows:,} rows"
