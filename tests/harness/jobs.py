"""A small world for jobs without Spark: three real sources, and the truth about the view.

Each source is a database with its query server and its publisher, on a real broker. The test cuts
the records into batches for the job as it likes. The truth comes from DuckDB, which evaluates the
view's SQL over the relations as the test committed them; no code of viewsweep takes part in it.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Self
from unittest import mock

import duckdb
import polars as pl
from confluent_kafka import Consumer, TopicPartition

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import catalog_from_json
from protocols.views.tree import AnyView
from sources.partitions import Offsets, Partition, offsets_in
from sources.simulated.database import SourceDatabase
from sources.simulated.publisher import Publisher
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.topics import CLIENT_LOG
from sources.transaction import RowChange, Transaction
from streaming.job.job import Job
from streaming.job.keptview import KeptView
from streaming.job.sweeping import Cluster
from streaming.settings.configuration import Configuration, read_configuration
from tests.harness.waiting import eventually, patience
from warehouse.standing import Standing
from warehouse.tables import ViewTables

Row = tuple[Any, ...]
#: (relation, row, change of its count).
Change = tuple[str, Row, int]
#: (version, relation, row, change of its count).
Committed = tuple[int, str, Row, int]


@dataclass(frozen=True)
class Story:
    """The sources, the view over them, and a generator of rows to insert."""

    forms: Mapping[str, Any]
    sql: str
    #: (source, dice) → relation and row.
    row: Callable[[str, random.Random], tuple[str, Row]]
    first: Mapping[str, Change]


FORMS: dict[str, Any] = {
    "a": {"r": {"columns": {"id": "BIGINT", "x": "BIGINT", "t": "VARCHAR"}, "key": ["id"]}},
    "b": {
        "s": {"columns": {"x": "BIGINT", "y": "BIGINT"}},
        "unused": {"columns": {"n": "BIGINT"}},
    },
    "c": {"u": {"columns": {"y": "BIGINT", "z": "VARCHAR"}, "key": ["y"]}},
}
SQL = "SELECT r.id, r.t, s.y, u.z FROM a.r r JOIN b.s s ON r.x = s.x JOIN c.u u ON s.y = u.y"
Rows = Counter[tuple[Any, ...]]


def _any_row(source: str, dice: random.Random) -> tuple[str, Row]:
    """A row of few values, so that many rows match."""
    if source == "a":
        return "r", (dice.randint(1, 30), dice.choice([*range(6), None]), dice.choice("pq"))
    if source == "c":
        return "u", (dice.randint(1, 6), dice.choice(["k", "m", None]))
    if dice.random() < 0.2:
        return "unused", (dice.randint(1, 3),)
    return "s", (dice.choice([*range(6), None]), dice.randint(1, 6))


_FIRST: dict[str, Change] = {
    "a": ("r", (1, 1, "p"), 1),
    "b": ("s", (1, 1), 1),
    "c": ("u", (1, "k"), 1),
}
#: A bag in the middle, NULLs in links, a relation that the view does not read.
MIXED = Story(FORMS, SQL, _any_row, _FIRST)

_KEYED_RELATIONS: dict[str, Any] = {
    "r": {"columns": {"id": "BIGINT", "x": "BIGINT", "t": "VARCHAR"}, "key": ["id"]},
    "s": {"columns": {"id": "BIGINT", "x": "BIGINT", "y": "BIGINT"}, "key": ["id"]},
    "u": {"columns": {"y": "BIGINT", "z": "VARCHAR"}, "key": ["y"]},
}
_KEYED_SQL = (
    "SELECT r.id AS r_id, s.id AS s_id, u.y, r.t, u.z"
    " FROM {r}.r r JOIN {s}.s s ON r.x = s.x JOIN {u}.u u ON s.y = u.y WHERE r.t <> 'q'"
)


def _keyed_row(relation: str, dice: random.Random) -> tuple[str, Row]:
    if relation == "r":
        return "r", (dice.randint(1, 12), dice.choice([*range(4), None]), dice.choice("ppq"))
    if relation == "s":
        return "s", (dice.randint(1, 10), dice.choice([*range(4), None]), dice.randint(1, 5))
    return "u", (dice.randint(1, 5), dice.choice(["k", "m", None]))


_KEYED_FIRST = {"r": ("r", (1, 1, "p"), 1), "s": ("s", (1, 1, 1), 1), "u": ("u", (1, "k"), 1)}
#: Every relation has a key, and the view shows it.
KEYED = Story(
    {source: {name: _KEYED_RELATIONS[name]} for source, name in zip("abc", "rsu", strict=True)},
    _KEYED_SQL.format(r="a", s="b", u="c"),
    lambda source, dice: _keyed_row({"a": "r", "b": "s", "c": "u"}[source], dice),
    {source: _KEYED_FIRST[name] for source, name in zip("abc", "rsu", strict=True)},
)
#: The same relations at one source.
ONE_SOURCE = Story(
    {"a": _KEYED_RELATIONS},
    _KEYED_SQL.format(r="a", s="a", u="a"),
    lambda _source, dice: _keyed_row(dice.choice("rsu"), dice),
    {"a": _KEYED_FIRST["r"]},
)


class Source:
    """A source's database, query server and publisher, and a separate log of all commits."""

    def __init__(
        self,
        name: str,
        directory: Path,
        bootstrap: str,
        topic: str,
        story: Story = MIXED,
        partitions: int = 1,
    ) -> None:
        self.name = name
        self.story = story
        self.topic = topic
        self.partitions = partitions
        self.bootstrap = bootstrap
        self.catalog = catalog_from_json({name: {"relations": story.forms[name]}})
        self.database = SourceDatabase.create(directory / f"{name}.duckdb", name, self.catalog, {})
        self.server: QueryServer | None = QueryServer(self.database, topic=topic)
        self.address = self.server.address
        self.publisher: Publisher | None = None
        self.history: list[Committed] = []

    def publish(self) -> None:
        """Starts to publish in the background."""
        self.publisher = Publisher(
            self.database, self.bootstrap, self.topic, partitions=self.partitions
        )
        self.publisher.start()

    def commit(self, *changes: Change, part: GlobalPart | None = None) -> None:
        self.commit_many([changes], part)

    def commit_many(
        self, transactions: Sequence[Sequence[Change]], part: GlobalPart | None = None
    ) -> None:
        """Commits a group, one version per transaction."""
        first = self.database.version + 1
        grouped = [Transaction(tuple(RowChange(*c) for c in each), part) for each in transactions]
        assert self.database.commit_many(grouped) == first + len(grouped) - 1
        for version, changes in enumerate(transactions, first):
            self.history += [(version, *change) for change in changes]

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

    def wait_until_published(self) -> None:
        assert self.publisher is not None
        eventually(lambda: self.database.published == self.database.version, "all is published")
        assert self.publisher.error is None

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
        return {name: source.database.version for name, source in self.sources.items()}

    # -- the job -------------------------------------------------------------------------------

    def write_configuration(self, sql: str | None = None, **changes: Any) -> Path:
        """Writes `warehouse.toml`; changes are values for [job] and, under `toml`, replaced text.

        `copies` are relations (source.name) to keep copies of.
        """
        replaced: Mapping[str, str] = changes.pop("toml", {})
        copies = [relation.split(".") for relation in changes.pop("copies", ())]
        settings = {"patience_seconds": 60.0, "current_every_seconds": 0.001, **changes}
        (self.directory / "v.sql").write_text(self.story.sql if sql is None else sql)
        lines = ["[warehouse]", 'path = "tables"', "[kafka]", f'bootstrap = "{self.bootstrap}"']
        for source in self.sources.values():
            lines += [f"[sources.{source.name}]", f'address = "{source.address}"']
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
        self._assert_every_state(fresh, vector, groups)
        fresh.follow()
        assert fresh.rows() == sum(self.oracle().at(standing.vector).values())
        current = pl.read_delta(str(fresh.directory / "current"))
        assert _counted(current) == self.oracle().at(standing.vector)
        return standing.position

    def _assert_every_state(
        self,
        tables: ViewTables,
        vector: dict[str, int],
        groups: Mapping[int, list[tuple[int, str, int, bool]]],
    ) -> None:
        changes: dict[int, Rows] = {}
        for *row, count, position in tables.changes().collect().iter_rows():
            changes.setdefault(position, Counter())[tuple(row)] += count
        oracle, held = self.oracle(), changes.get(0, Counter())
        assert held == oracle.at(vector), "the first state"
        for position, group in groups.items():
            for _, source, version, _ in group:
                assert version == vector[source] + 1, f"position {position}"
                vector[source] = version
            held = _plus(held, changes.get(position, Counter()))
            if group[0][-1]:
                assert held == oracle.at(vector), f"position {position}"
            else:
                assert position not in changes, f"position {position} is not shown"

    def oracle(self) -> "Oracle":
        return Oracle(self.sources.values(), self.story.sql)


def start(job: Job) -> None:
    job.check()
    job.prepare()


def _plus(held: Rows, changes: Rows) -> Rows:
    held = held.copy()
    held.update(changes)
    return Counter({row: count for row, count in held.items() if count})


def _counted(frame: pl.DataFrame) -> Rows:
    return Counter({tuple(row): count for *row, count in frame.iter_rows()})


class Oracle:
    """The view at any vector: its SQL in DuckDB over the rows that the sources committed."""

    def __init__(self, sources: Iterable[Source], sql: str) -> None:
        self._sql = sql
        self._db = duckdb.connect(":memory:", config={"threads": 1})
        for source in sources:
            self._db.execute(f"CREATE SCHEMA {source.name}")
            for relation in source.catalog:
                self._load(source, relation.name, relation.columns)

    def _load(self, source: Source, relation: str, columns: Sequence[tuple[str, Any]]) -> None:
        names = ", ".join(name for name, _ in columns)
        types = ", ".join(f"{name} {type_.name}" for name, type_ in columns)
        log = f"{source.name}.{relation}_log"
        self._db.execute(f"CREATE TABLE {log} ({types}, _version BIGINT, _n BIGINT)")
        rows = [(*row, v, n) for v, name, row, n in source.history if name == relation]
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT INTO {log} VALUES ({places})", rows)
        self._db.execute(
            f"CREATE VIEW {source.name}.{relation} AS SELECT {names} FROM ("
            f"SELECT {names}, unnest(range(copies)) FROM (SELECT {names}, sum(_n)::BIGINT AS copies"
            f" FROM {log} WHERE _version <= getvariable('at_{source.name}') GROUP BY ALL))"
        )

    def at(self, vector: Mapping[str, int]) -> Rows:
        for source, version in vector.items():
            self._db.execute(f"SET VARIABLE at_{source} = {version}")
        return Counter(self._db.execute(self._sql).fetchall())


def whole_topic(bootstrap: str, topic: str) -> pl.DataFrame:
    """All records of a topic of one partition."""
    return records(bootstrap, {Partition(topic): 0})


def records(bootstrap: str, offsets: Offsets) -> pl.DataFrame:
    """The records in the partitions from these offsets on, as Spark returns them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
    }
    found: list[tuple[str | None, int | None, int | None, bytes | None]] = []
    with closing(Consumer(settings, logger=CLIENT_LOG)) as consumer:
        # Without this, the first request for each topic waits half a second for its leader.
        consumer.list_topics(timeout=30)
        for partition, offset in offsets.items():
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), 30)
            consumer.assign([TopicPartition(*partition, offset)])
            wanted = len(found) + max(0, end - offset)
            until = time.monotonic() + patience()
            while len(found) < wanted:
                assert time.monotonic() < until
                messages = consumer.consume(wanted - len(found), 0.2)
                found += [
                    (m.topic(), m.partition(), m.offset(), m.value())
                    for m in messages
                    if not m.error()
                ]
    schema = {"topic": pl.String, "partition": pl.Int64, "offset": pl.Int64, "value": pl.Binary}
    return pl.DataFrame(found, schema=schema, orient="row")


def ends(batch: pl.DataFrame) -> dict[Partition, int]:
    """The offsets after the last of these records."""
    last = batch.group_by("topic", "partition").agg(pl.col("offset").max() + 1)
    return {Partition(topic, number): end for topic, number, end in last.iter_rows()}


def cut(batch: pl.DataFrame, dice: random.Random, batches: int) -> list[pl.DataFrame]:
    """Cuts the records into batches, each with a stretch of every partition (or none of it)."""
    parts: list[list[pl.DataFrame]] = [[] for _ in range(batches)]
    for part in batch.partition_by("topic", "partition", maintain_order=True):
        edges = sorted(dice.randint(0, part.height) for _ in range(batches - 1))
        borders = [0, *edges, part.height]
        for number in range(batches):
            parts[number].append(part[borders[number] : borders[number + 1]])
    return [pl.concat(dice.sample(part, len(part))) for part in parts]
