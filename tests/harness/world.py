"""A small world for jobs without Spark: three real sources, and the truth about the view.

Each source is a database with its query server and its publisher, on a real broker. The test cuts
the records into batches for the job as it likes (records.py), and the view is compared with DuckDB
at every position (truth.py).
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Self
from unittest import mock

import polars as pl

from protocols.checking.checker import check
from protocols.checking.tracereading import read_trace
from protocols.checking.verdict import Verdict
from protocols.exchange.holdback import GlobalPart
from protocols.maintenance.registry import PROTOCOLS
from protocols.views.catalog import catalog_from_json
from protocols.views.tree import AnyView
from sources.kafka import Kafka
from sources.partitions import Offsets, offsets_in
from sources.simulated.database import SourceDatabase
from sources.simulated.publisher import Publisher
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.transaction import RowChange, Transaction
from streaming.job.job import Job
from streaming.job.keptview import KeptView
from streaming.job.sweeping import Cluster
from streaming.settings.configuration import Configuration, read_configuration
from streaming.tracing import write_live_trace
from tests.cases.stories import MIXED, Change, Row, Story
from tests.harness.records import ends, records
from tests.harness.truth import Committed, Oracle, assert_every_state, counted
from tests.harness.waiting import eventually
from warehouse.standing import Standing
from warehouse.tables import ViewTables


class RandomCommits:
    """A source that commits as a story has it, and a separate log of all its commits."""

    def __init__(self, name: str, story: Story) -> None:
        self.name = name
        self.story = story
        self.catalog = catalog_from_json({name: {"relations": story.forms[name]}})
        self.history: list[Committed] = []

    def commit(self, *changes: Change, part: GlobalPart | None = None) -> None:
        """Commits one transaction."""
        self.commit_many([changes], part)

    def commit_many(
        self, transactions: Sequence[Sequence[Change]], part: GlobalPart | None = None
    ) -> None:
        """Commits a group, one version per transaction."""
        raise NotImplementedError

    def commit_at_random(self, dice: random.Random, transactions: int) -> None:
        """Each transaction inserts, deletes or modifies up to three rows of few values."""
        held = self.rows()
        found = (self._changes(dice, held) for _ in range(transactions))
        self.commit_many([changes for changes in found if changes])

    def _changes(self, dice: random.Random, held: Counter[tuple[str, Row]]) -> list[Change]:
        """The net changes of one transaction, also applied to `held`."""
        net: Counter[tuple[str, Row]] = Counter()
        for _ in range(dice.randint(1, 3)):
            new = self.story.row(self.name, dice)
            there = [row for row, count in held.items() if count > 0]
            gone = [row for row in there if self._same_key(row, new)]
            if not gone and there and dice.random() < 0.4:
                gone = [dice.choice(there)]
            for row, count in [(new, 1), *((row, -1) for row in gone)]:
                net[row] += count
                held[row] += count
        return [(*row, count) for row, count in net.items() if count]

    def _same_key(self, row: tuple[str, Row], new: tuple[str, Row]) -> bool:
        relation = self.catalog.find(self.name, new[0])
        assert relation is not None
        return bool(relation.key) and row[0] == new[0] and row[1][0] == new[1][0]

    def rows(self) -> Counter[tuple[str, tuple[Any, ...]]]:
        """Its present rows."""
        held: Counter[tuple[str, tuple[Any, ...]]] = Counter()
        for _, relation, row, count in self.history:
            held[relation, row] += count
        return +held


class Source(RandomCommits):
    """A source's database, query server and publisher, and a separate log of all commits."""

    def __init__(
        self,
        name: str,
        directory: Path,
        bootstrap: str,
        topic: str,
        story: Story = MIXED,
        partitions: int = 1,
        kafka: Kafka | None = None,
    ) -> None:
        super().__init__(name, story)
        self.topic = topic
        self.partitions = partitions
        self.bootstrap = bootstrap
        self._kafka = kafka or Kafka(bootstrap)
        self.database = SourceDatabase.create(directory / f"{name}.duckdb", name, self.catalog, {})
        self.server: QueryServer | None = QueryServer(self.database, topic=topic)
        self.address = self.server.address
        self.publisher: Publisher | None = None

    @property
    def place(self) -> str:
        """Where it is asked, for the configuration."""
        return f'address = "{self.address}"'

    @property
    def version(self) -> int:
        """The number of its last transaction."""
        return self.database.version

    def publish(self) -> None:
        """Starts to publish in the background."""
        self.publisher = Publisher(
            self.database, self._kafka, self.topic, partitions=self.partitions
        )
        self.publisher.start()

    def commit_many(
        self, transactions: Sequence[Sequence[Change]], part: GlobalPart | None = None
    ) -> None:
        """Commits a group, one version per transaction."""
        first = self.database.version + 1
        grouped = [Transaction(tuple(RowChange(*c) for c in each), part) for each in transactions]
        assert self.database.commit_many(grouped) == first + len(grouped) - 1
        for version, changes in enumerate(transactions, first):
            self.history += [(version, *change) for change in changes]

    def wait_until_published(self) -> None:
        eventually(self._is_published, "all is published")

    def _is_published(self) -> bool:
        assert self.publisher is not None
        if self.publisher.error is not None:
            raise self.publisher.error
        return self.database.published == self.database.version

    def restart_server(self) -> None:
        """Restarts the query server at the same address."""
        port = int(self.address.rpartition(":")[2])
        self.server = QueryServer(self.database, Endpoint(port=port), self.topic)

    def stop_publisher(self) -> None:
        if self.publisher is not None:
            self.publisher.stop()
            self.publisher = None

    def stop_server(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def close(self) -> None:
        self.stop_server()
        self.stop_publisher()
        self.database.close()


class OneView(Job):
    """A job with a single view, fed with the records that Spark would put into its batches."""

    @property
    def views(self) -> Sequence[KeptView]:
        return self.running.views

    @property
    def offsets(self) -> Offsets:
        """Partition → the offset after the standing."""
        if self._running is not None:
            return self.running.offsets
        tokens, ends = self.standing.tokens, self.checked.ends
        found = (offsets_in(token, ends[source]) for source, token in tokens.items())
        return {p: offset for each in found if each for p, offset in each.items()}

    @property
    def view(self) -> AnyView:
        return self.checked.views[0].view

    @property
    def tables(self) -> ViewTables:
        return self.checked.views[0].tables

    @property
    def standing(self) -> Standing:
        """The standing of the view."""
        if self._running is None:
            return self.checked.standings["v"]
        return self.views[0].standing

    def take(self, records: pl.DataFrame) -> int:
        """Takes and commits a micro-batch of these records; returns its number of positions."""
        positions = self.running.process(self.running.by_source(ends(records)))
        self.running.settle()
        return positions


@dataclass
class World:
    """The sources, the configuration that names them, and the truth about the view."""

    directory: Path
    bootstrap: str
    prefix: str
    story: Story = MIXED
    #: The partitions of each source's topic.
    partitions: int = 1
    #: How sources and jobs reach the broker; as the tests do, by its plain listener, if None.
    kafka: Kafka | None = None

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        # Tests wait for the watermark, which otherwise moves only once a second.
        self._stack.enter_context(mock.patch("sources.simulated.publisher._MARK_EVERY", 0.02))
        self.sources = {
            name: Source(
                name,
                self.directory,
                self.bootstrap,
                f"{self.prefix}-{name}",
                self.story,
                self.partitions,
                self.kafka,
            )
            for name in self.story.forms
        }
        self.reports: list[str] = []
        for source in self.sources.values():
            self._stack.callback(source.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- the sources ---------------------------------------------------------------------------

    def publish(self) -> None:
        """Starts all publishers, and returns when their topics exist."""
        for source in self.sources.values():
            source.publish()
        for source in self.sources.values():
            if source.database.version == 0:
                source.commit(self.story.first[source.name])
        self.wait_until_published()

    def commit_at_random(self, dice: random.Random, transactions: int) -> None:
        """Commits in short runs of one source after the other."""
        left = transactions
        while left:
            run = dice.randint(1, min(6, left))
            self.sources[dice.choice(list(self.sources))].commit_at_random(dice, run)
            left -= run

    def wait_until_published(self) -> None:
        for source in self.sources.values():
            source.wait_until_published()

    @property
    def versions(self) -> dict[str, int]:
        return {name: source.version for name, source in self.sources.items()}

    # -- the job -------------------------------------------------------------------------------

    def write_configuration(self, sql: str | None = None, **changes: Any) -> Path:
        """Writes `warehouse.toml`; changes are values for [job] and, under `toml`, replaced text.

        `copies` are relations (source.name) to keep copies of.
        """
        replaced: Mapping[str, str] = changes.pop("toml", {})
        copies = [relation.split(".") for relation in changes.pop("copies", ())]
        settings = {"patience_seconds": 60.0, "current_every_seconds": 0.001, **changes}
        (self.directory / "v.sql").write_text(self.story.sql if sql is None else sql)
        lines = ["[warehouse]", 'path = "tables"', "[kafka]"]
        given = vars(self.kafka or Kafka(self.bootstrap)).items()
        lines += [f'{key} = "{value}"' for key, value in given if value is not None]
        for source in self.sources.values():
            lines += [f"[sources.{source.name}]", source.place]
            lines += [f'topic = "{source.topic}"']
            lines += [f'keep.{name} = "full"' for at, name in copies if at == source.name]
        lines += ["[views.v]", 'sql = "v.sql"', "[job]"]
        lines += [f"{key} = {value}" for key, value in settings.items()]
        text = "\n".join(lines)
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        file = self.directory / "warehouse.toml"
        file.write_text(text)
        return file

    def job(
        self,
        configuration: Configuration | None = None,
        report: Callable[[str], None] | None = None,
        protocol: str = "sweep",
        executors: Cluster | None = None,
        **changes: Any,
    ) -> "closing[OneView]":
        """A new job that has neither checked nor prepared anything."""
        known = configuration or read_configuration(self.write_configuration(**changes))
        view = known.view("v").with_protocol(protocol)
        return closing(OneView(known, [view], report or self.reports.append, executors))

    def go_on(self, **changes: Any) -> None:
        """Starts a job that installs everything in the topics, and checks that it is complete."""
        self.wait_until_published()
        with self.job(**changes) as job:
            start(job)
            job.take(self.records_after(job))
            self.assert_complete(job.tables)
            assert job.standing.vector == self.versions

    def records_after(self, job: "OneView") -> pl.DataFrame:
        """All records in the topics after the job's standing."""
        return records(self.bootstrap, job.offsets)

    # -- the truth -----------------------------------------------------------------------------

    def assert_complete(self, tables: ViewTables) -> int:
        """Checks that the view is right at every position, without gaps; returns how many."""
        fresh = ViewTables(tables.directory.parent, tables.view)
        assert fresh.progress()["shown"].all()
        return self.assert_right(tables)

    def assert_right(self, tables: ViewTables) -> int:
        """Checks that the view is right at every position that it shows; returns how many."""
        fresh = ViewTables(tables.directory.parent, tables.view)
        standing, progress = fresh.standing(), fresh.progress()
        entries = list(progress.select("position", "source", "version", "shown").iter_rows())
        groups = {
            position: list(group) for position, group in groupby(entries, key=lambda e: int(e[0]))
        }
        assert list(groups) == list(range(1, standing.position + 1))
        vector = dict(standing.vector)
        for _, source, *_ in entries:
            vector[source] -= 1
        oracle = self.oracle()
        assert_every_state(fresh, oracle, vector, groups)
        fresh.follow()
        truth = oracle.at(standing.vector)
        assert fresh.rows() == sum(truth.values())
        current = pl.read_delta(str(fresh.directory / "current"))
        assert counted(current) == truth
        return standing.position

    def trace(self, protocol: str) -> Path:
        """Writes the trace of the view so far."""
        configuration = read_configuration(self.directory / "warehouse.toml")
        trace = self.directory / "trace.jsonl"
        write_live_trace(configuration, configuration.view("v").with_protocol(protocol), trace)
        return trace

    def verdict(self, protocol: str) -> Verdict:
        """The checker's, on the trace of the view so far."""
        with self.trace(protocol).open("rb") as lines:
            return check(read_trace(lines), PROTOCOLS[protocol].level)

    def oracle(self) -> Oracle:
        return Oracle(self.sources.values(), self.story.sql)


def start(job: Job) -> None:
    job.check()
    job.prepare()
