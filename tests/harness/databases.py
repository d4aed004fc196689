"""A small world over real databases: PostgreSQL, MariaDB or both, Debezium, a topic for each one.

The history of a database comes from its log (pgoutput.py, binlog.py), not from the topic.
"""

import itertools
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import polars as pl

from infra.localconnect import LocalConnect
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.kafka import Kafka
from sources.topics import ensure_topic
from tests.cases.stories import Change, Row, Story
from tests.harness.records import whole_topic
from tests.harness.world import OneView, RandomCommits, World, start

_numbers = itertools.count()
#: Relation, row, change of its count.
RowCount: TypeAlias = tuple[str, tuple[Any, ...], int]


class RealDatabase(RandomCommits, ABC):
    """One database, which begins without rows."""

    #: What a restarted connector goes on with: stored offsets, or what the database has kept.
    keeps_offsets: ClassVar[bool]

    def __init__(
        self, name: str, directory: Path, bootstrap: str, topic: str, story: Story
    ) -> None:
        super().__init__(name, story)
        self.topic, self.bootstrap = topic, bootstrap
        #: The transactions before the first one that has a number.
        self.base = self.version = 0
        self.database = f"{name}_{os.getpid()}_{next(_numbers)}"
        self._file = directory / f"{name}.address"
        self._file.write_text(self.address)

    @property
    @abstractmethod
    def address(self) -> str:
        """Its address for the job."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The line of its address in warehouse.toml."""

    @abstractmethod
    def connector(self) -> dict[str, str]:
        """The configuration of its connector."""

    @abstractmethod
    def create(self) -> None:
        """Its empty tables."""

    @abstractmethod
    def drop(self) -> None:
        """Drops it."""

    @abstractmethod
    def _logged(self) -> list[list[RowCount]]:
        """The transactions in its log, in the order of their commits."""

    @abstractmethod
    def wait_for_the_topic(self) -> None:
        """Returns when everything that is committed now is in the topic."""

    @abstractmethod
    def _commit(self, changes: list[list[Change]]) -> None:
        """Commits transactions."""

    @abstractmethod
    def _execute(self, transaction: Sequence[tuple[str, Row]]) -> None:
        """Commits some statements; OSError if the database ends meanwhile."""

    @abstractmethod
    def _put(self, relation: Relation) -> str:
        """The statement that inserts a row, or replaces the one with its key."""

    def write(self, dice: random.Random) -> None:
        """Commits a transaction, if the database runs, without knowing its rows.

        What became of it, its log tells (`settle`).
        """
        relations = {relation.name: relation for relation in self.catalog}
        transaction: list[tuple[str, Row]] = []
        for _ in range(dice.randint(1, 3)):
            name, row = self.story.row(self.name, dice)
            if dice.random() < 0.7:
                transaction.append((self._put(relations[name]), row))
            else:
                [key] = relations[name].key
                transaction.append((f"DELETE FROM {name} WHERE {key} = %s", row[:1]))
        with suppress(OSError):
            self._execute(transaction)

    def commit_many(self, transactions: Any, part: GlobalPart | None = None) -> None:
        assert part is None
        self._commit(transactions)
        self.history += [(0, *change) for changes in transactions for change in changes]

    def settle(self) -> None:
        """Takes the history from the database's log; the rows of the test's writers go."""
        found = self._logged()
        self.history = [
            (max(0, number - self.base), *change)
            for number, changes in enumerate(found, 1)
            for change in changes
        ]
        self.version = len(found) - self.base

    def wait_until_published(self) -> None:
        """Returns when everything that is committed now is in the topic and in the history."""
        self.wait_for_the_topic()
        self.settle()


class DatabaseWorld(World):
    """A world whose sources are databases."""

    def on(self, *servers: Any) -> Self:
        """On these servers, in turn."""
        self._servers = servers
        return self

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.reports: list[str] = []
        self.databases: dict[str, Any] = {}
        for name, server in zip(self.story.forms, itertools.cycle(self._servers), strict=False):
            database = _of(server)(
                name, self.directory, self.bootstrap, f"{self.prefix}-{name}", self.story, server
            )
            self._stack.callback(database.drop)
            database.create()
            ensure_topic(Kafka(self.bootstrap), database.topic, 30.0)
            self.databases[name] = database
        self.sources = self.databases
        return self

    def number_from_here(self) -> None:
        """The next transactions are those that a job will number from 1."""
        self.wait_until_published()
        for database in self.databases.values():
            database.base += database.version
            database.settle()

    def topic_of(self, name: str) -> pl.DataFrame:
        """All records in the topic of a database."""
        return whole_topic(self.bootstrap, self.databases[name].topic)

    @property
    def connect(self) -> LocalConnect:
        """The only Connect process."""
        [connect] = self.connects.values()
        return connect

    def publish(self) -> None:
        #: Whether they keep offsets → the Connect process of such databases.
        self.connects: dict[bool, LocalConnect] = {}
        for keeps in {each.keeps_offsets for each in self.databases.values()}:
            connectors = {
                name: each.connector()
                for name, each in self.databases.items()
                if each.keeps_offsets == keeps
            }
            connect = LocalConnect(self.bootstrap, connectors, lambda _said: None, keeps)
            self.connects[keeps] = self._stack.enter_context(connect)
        # A connector that was just started may begin after the first rows.
        self.wait_until_published()
        for name, database in self.databases.items():
            database.commit(self.story.first[name])
        self.wait_until_published()


@contextmanager
def while_they_write(world: DatabaseWorld, job: OneView, each: int) -> Iterator[None]:
    """The job begins, then takes what comes while each database commits; in the end, all of it."""
    start(job)
    with ThreadPoolExecutor(len(world.databases)) as threads:
        writers = [
            threads.submit(database.commit_at_random, random.Random(number), each)
            for number, database in enumerate(world.databases.values())
        ]
        while not all(writer.done() for writer in writers):
            job.take(world.records_after(job))
        for writer in writers:
            writer.result()
    world.wait_until_published()
    job.take(world.records_after(job))
    yield


def _of(server: Any) -> type[Any]:
    """The class for the databases of a server; its packages are loaded only here."""
    if type(server).__name__ == "LocalPostgres":
        from tests.harness.postgres import PostgresDatabase

        return PostgresDatabase
    from tests.harness.mariadb import MariaDBDatabase

    return MariaDBDatabase
