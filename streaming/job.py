"""One view kept by one job, without Spark: what happens to the records of a micro-batch.

    batch of records ─ feed ─> mailbox ─ order of delivery ─> protocol <─ rounds ─> query servers
                        ^                                        |             lookahead ─ feed
                        └── lookahead completes cut transactions └─> one Delta commit

Delta is the truth: the job starts from the standing in the last commit, whatever Spark's
checkpoint says. A batch that is there already delivers nothing; a batch that begins too late is
filled up by the lookahead.
"""

import datetime
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame, FrameLog, empty_frame
from protocols.errors import SourceViolation, WrongUse
from protocols.maintenance.firststate import root_of, stretch
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.protocol import Install
from protocols.maintenance.questions import Answer, Maintenance, Query
from protocols.maintenance.registry import protocol
from protocols.views.catalog import Catalog, relation_from_json
from protocols.views.sql import parse_view
from protocols.views.view import View
from streaming.asking import Sources, refuse_reset, versions_in
from streaming.configuration import Configuration, SourceSettings, ViewSettings
from streaming.feed import Feed, positions_of
from streaming.measuring import Measures
from streaming.topics import Lookahead, ends_of_topics, refuse_lost_records
from warehouse.staging import Staging, discard_pages
from warehouse.standing import Standing
from warehouse.tables import POSITION, Delivered, ViewTables

T = TypeVar("T")
Report = Callable[[str], None]


class Job:
    """The state of a running job: `check`, `prepare`, then `process` for each micro-batch."""

    def __init__(
        self, configuration: Configuration, settings: ViewSettings, report: Report
    ) -> None:
        self._configuration = configuration
        self._settings = settings
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
        self._feeds: dict[str, Feed]
        self._lookahead: Lookahead
        #: Questions asked so far in this batch, by position.
        self._asked: dict[int, list[dict[str, Any]]] = {}
        self._followed = 0.0

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

    def _resume(self) -> None:
        standing = self.tables.standing()
        discard_pages(self.tables)
        self._start_from(standing)
        self.tables.recover_progress()
        self.tables.follow()
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
        self._start_from(staging.standing)
        while not staging.finished:
            limit = self._configuration.job.page_rows
            part = self._drive(stretch(self.view, self._mailbox, staging.last_key, limit))
            staging.add(None if part.rows is None else part.rows.data, part.last_key)
            self._report(f"view {self.view.name}: first state, {_rows(staging)} from {root} so far")
        staging.finish()
        self.tables.follow()

    def _start_from(self, standing: Standing) -> None:
        self.standing = standing
        used: dict[str, SourceSettings] = {
            source: self._configuration.sources[source] for source in self.view.sources
        }
        logs = {relation: FrameLog() for relation in self.view.relations}
        self._mailbox = Mailbox(logs, standing.vector, standing.position)
        self._feeds = {
            source: Feed(
                source,
                settings.topic,
                self.view.relations_of(source),
                self._mailbox,
                standing.offsets[source],
            )
            for source, settings in used.items()
        }
        entry = protocol(self._settings.protocol)
        self._protocol = entry.start(self.view, self._mailbox, self._contents)
        patience = self._configuration.job.patience_seconds
        self._lookahead = Lookahead(
            self._configuration.bootstrap, self._feeds, patience, self._report, self.stopping
        )

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
        """Installs what a micro-batch (topic, offset, value) brings; returns how many updates."""
        with self.measures.step("decode"):
            ends = self._take(records)
        with self.measures.step("order"):
            positions = self._deliver(ends)
        if not positions:
            return 0
        with self.measures.step("sweep"):
            installs = []
            while (work := self._protocol.begin()) is not None:
                installs += self._drive(work)
        self._install(positions, installs)
        return len(positions)

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

    def _deliver(self, ends: Mapping[str, int]) -> list[int]:
        """Gives the batch's transactions their positions."""
        batch = {}
        for source, end in ends.items():
            feed = self._feeds[source]
            self._read_until(feed, partial(feed.is_whole_up_to, end))
            after = self._mailbox.version_at(source, self._mailbox.last_position)
            batch[source] = (after, max(after, feed.version_up_to(end)))
        order = positions_of(batch, self._feeds)
        return [self._mailbox.deliver(update) for update in order]

    def _read_until(self, feed: Feed, done: Callable[[], bool]) -> None:
        what = f"the rest of a transaction in topic {feed.topic!r}"
        self._lookahead.read_until(done, what)

    def _install(self, positions: list[int], installs: list[Install[Frame]]) -> None:
        first, last = positions[0], positions[-1]
        vector = self._mailbox.vector_at(last)
        standing = Standing(last, vector, self._offsets(vector))
        order = [update for position in positions for update in self._mailbox.at(position)]
        changes = _placed(self.view, installs)
        with self.measures.step("commit"):
            self.tables.install(changes, standing, order)
        now = time.time() * 1000
        self.standing = standing
        committed = [self._feeds[s].committed_at(v) for s, v in order]
        self.measures.freshness.extend(now - at for at in committed)
        self._count(installs, changes)
        with self.measures.step("progress"):
            skipped = {install.position: install.skipped for install in installs}
            self.tables.record(
                [
                    Delivered(p, s, v, _moment(at), skipped.get(p, 0), self._asked.get(p, []))
                    for p, (s, v), at in zip(range(first, last + 1), order, committed, strict=True)
                ]
            )
        self._asked.clear()
        self._mailbox.forget(last)
        for source, feed in self._feeds.items():
            feed.forget(vector[source])
        self.follow_now_and_then()

    def follow_now_and_then(self, force: bool = False) -> None:
        """Lets `current` follow, at most as often as configured."""
        pause = self._configuration.job.current_every_seconds
        if force or time.monotonic() - self._followed >= pause:
            with self.measures.step("current"):
                self.tables.follow()
            self._followed = time.monotonic()

    def _offsets(self, vector: Mapping[str, int]) -> dict[str, int]:
        """Behind each version of the vector; unchanged where the source brought nothing."""
        offsets = dict(self.standing.offsets)
        for source, version in vector.items():
            if version > self.standing.vector[source]:
                offsets[source] = self._feeds[source].offset_behind(version)
        return offsets

    def _count(self, installs: list[Install[Frame]], changes: pl.DataFrame) -> None:
        measures = self.measures
        measures.position = self.standing.position
        measures.updates += len(installs)
        measures.batches += 1
        measures.skipped += sum(install.skipped for install in installs)
        measures.view_rows += int(changes[COUNT].sum())

    # -- driving a protocol ----------------------------------------------------------------------

    def _drive(self, task: Maintenance[Frame, T]) -> T:
        """Asks round after round; an answer is handed on when the mailbox has caught up with it."""
        try:
            queries = next(task)
            while True:
                with self.measures.step("asking"):
                    answers = self._sources.ask(queries)
                with self.measures.step("lookahead"):
                    for query, answer in zip(queries, answers, strict=True):
                        self._catch_up(query, answer)
                queries = task.send(answers)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _catch_up(self, query: Query[Frame], answer: Answer[Frame]) -> None:
        source, version = query.relation.source, answer.version
        wanted = self._mailbox.version_at(source, query.position)
        if version < self.standing.vector[source]:
            raise SourceViolation(
                f"source {source} answered at version {version}, and the view has already seen"
                f" version {self.standing.vector[source]}: the source was reset, or a replica"
                " answers that lags too far behind"
            )
        self._lookahead.read_until(
            lambda: self._mailbox.caught_up(source, version),
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
        for part in ("_lookahead", "_sources"):
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


def _question(query: Query[Frame], answer: Answer[Frame]) -> dict[str, Any]:
    keys = sum(part.data.height for part in query.keys or ())
    return {
        "source": query.relation.source,
        "relation": query.relation.name,
        "keys": keys,
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
