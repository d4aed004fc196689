"""A small world over real databases: PostgreSQL, Debezium, a topic for each database.

The history of a database comes from its log (pgoutput.py), not from the topic.
"""

import itertools
import os
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import polars as pl
import psycopg

from infra.localconnect import LocalConnect
from infra.localpostgres import LocalPostgres
from protocols.algebra.types import ColumnType
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Catalog, Relation
from sources.postgres.connector import connector
from sources.topics import ends_of, ensure_topic
from tests.cases.stories import Change, Story
from tests.harness.pgoutput import history, row_of
from tests.harness.records import records, whole_topic
from tests.harness.waiting import eventually
from tests.harness.world import RandomCommits, World

_numbers = itertools.count()
_SQL_TYPES = {"VARCHAR": "text", "DOUBLE": "float8"}


class PostgresDatabase(RandomCommits):
    """One database, which begins without rows."""

    def __init__(
        self,
        name: str,
        server: LocalPostgres,
        directory: Path,
        bootstrap: str,
        topic: str,
        story: Story,
    ) -> None:
        super().__init__(name, story)
        self.topic, self.bootstrap = topic, bootstrap
        self._server = server
        #: The transactions before the first one that has a number.
        self.base = self.version = 0
        self.database = f"{name}_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(server.dsn(), autocommit=True) as created:
            created.execute(f"CREATE DATABASE {self.database}")
        self._file = directory / f"{name}.dsn"
        self._file.write_text(self.dsn)
        with self.connected() as connection:
            for relation in self.catalog:
                connection.execute(table(relation))
                connection.execute(f"ALTER TABLE {relation.name} REPLICA IDENTITY FULL")
            connection.execute("CREATE PUBLICATION viewsweep FOR ALL TABLES")
            connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._judge,)
            )

    @property
    def _judge(self) -> str:
        """The slot from which the history is taken."""
        return f"judge_{self.database}"

    @property
    def dsn(self) -> str:
        return self._server.dsn(self.database)

    @property
    def place(self) -> str:
        return f'postgres_file = "{self._file.name}"'

    def connected(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True)

    def drop(self) -> None:
        """Drops the database, and with it its slots: a server has a limited number of them."""
        active = "SELECT count(*) FROM pg_replication_slots WHERE active AND database = %s"
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            eventually(
                lambda: connection.execute(active, (self.database,)).fetchone() == (0,),
                "the slots are inactive",
            )
            connection.execute(f"DROP DATABASE {self.database} WITH (FORCE)")

    def connector(self) -> dict[str, str]:
        """The configuration of its connector."""
        return connector(self.name, self.topic, self.dsn, slot=f"s_{self.database}")

    def commit_many(
        self, transactions: Sequence[Sequence[Change]], part: GlobalPart | None = None
    ) -> None:
        assert part is None
        with self.connected() as connection:
            for changes in transactions:
                with connection.transaction():
                    change_rows(connection, self.catalog, self.name, changes)
                self.history += [(0, *change) for change in changes]

    def settle(self) -> None:
        """Takes the history from the database's log; the rows of the test's writers go."""
        relations = {relation.name: relation for relation in self.catalog}
        with self.connected() as connection:
            found = history(connection, self._judge)
        self.history = [
            (max(0, number - self.base), relation, row_of(row, relations[relation]), count)
            for number, each in enumerate(found, 1)
            for relation, row, count in each.net()
        ]
        self.version = len(found) - self.base

    def wait_until_published(self) -> None:
        """Returns when a message of ours, written now, is in the topic."""
        with self.connected() as connection:
            wait_until_published(connection, self.bootstrap, self.topic)
        self.settle()


def change_rows(
    connection: psycopg.Connection, catalog: Catalog, source: str, changes: Sequence[Change]
) -> None:
    """Updates rows that are replaced under their key; then the other changes, deletions first."""
    relations = {relation.name: relation for relation in catalog if relation.source == source}
    left = sorted(changes, key=lambda change: change[2])
    gone = {(name, row[0]): (name, row, count) for name, row, count in left if count == -1}
    for new in [change for change in left if change[2] == 1]:
        relation, old = relations[new[0]], gone.pop((new[0], new[1][0]), None)
        if relation.key and old is not None:
            names = ", ".join(f"{name} = %s" for name in relation.column_names)
            key = relation.column_names[0]
            update = f"UPDATE {new[0]} SET {names} WHERE {key} = %s"
            connection.execute(update, (*new[1], new[1][0]))
            left = [change for change in left if change not in (old, new)]
    for name, row, count in left:
        for _ in range(abs(count)):
            _insert(connection, name, row) if count > 0 else _delete(
                connection, relations[name], row
            )


def _insert(connection: psycopg.Connection, name: str, row: tuple[Any, ...]) -> None:
    connection.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)


def _delete(connection: psycopg.Connection, relation: Relation, row: tuple[Any, ...]) -> None:
    """Deletes one of the rows that are equal to this one."""
    same = " AND ".join(f"{name} IS NOT DISTINCT FROM %s" for name in relation.column_names)
    one = f"SELECT ctid FROM {relation.name} WHERE {same} LIMIT 1"
    gone = connection.execute(f"DELETE FROM {relation.name} WHERE ctid = ({one})", row)
    assert gone.rowcount == 1, (relation, row)


def table(relation: Relation) -> str:
    """The statement that creates the table of a relation."""
    parts = [
        f"{name} {_sql(type_)}{' NOT NULL' if name in relation.never_null else ''}"
        for name, type_ in relation.columns
    ]
    parts += [f"PRIMARY KEY ({', '.join(relation.key)})"] if relation.key else []
    parts += [f"UNIQUE ({', '.join(key)})" for key in relation.further_keys]
    parts += [
        f"FOREIGN KEY ({', '.join(each.columns)}) REFERENCES {each.target}"
        for each in relation.references
    ]
    return f"CREATE TABLE {relation.name} ({', '.join(parts)})"


def _sql(type_: ColumnType) -> str:
    return _SQL_TYPES.get(type_.name, type_.name)


def wait_until_published(connection: psycopg.Connection, bootstrap: str, topic: str) -> None:
    """Returns when a message of ours, written now, is in the topic."""
    text = f"judge-{os.getpid()}-{next(_numbers)}"
    connection.execute("SELECT pg_logical_emit_message(true, 'judge', %s)", (text,))
    wanted = b64encode(text.encode())

    def has_come() -> bool:
        [(partition, (low, _))] = ends_of(bootstrap, {"": [topic]})[""].items()
        found = records(bootstrap, {partition: low})["value"]
        return any(wanted in value for value in found if value is not None)

    eventually(has_come, "the topic has everything")


class PostgresWorld(World):
    """A world whose sources are databases of one PostgreSQL server."""

    server: LocalPostgres

    def on(self, server: LocalPostgres) -> Self:
        self.server = server
        return self

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.reports: list[str] = []
        where = self.server, self.directory, self.bootstrap
        self.databases = {
            name: PostgresDatabase(name, *where, f"{self.prefix}-{name}", self.story)
            for name in self.story.forms
        }
        self.sources = self.databases  # type: ignore[assignment]
        for source in self.databases.values():
            self._stack.callback(source.drop)
            ensure_topic(self.bootstrap, source.topic, 30.0)
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

    def publish(self) -> None:
        connectors = {name: each.connector() for name, each in self.databases.items()}
        self.connect = LocalConnect(self.bootstrap, connectors, lambda _said: None)
        self._stack.enter_context(self.connect)
        for name, database in self.databases.items():
            database.commit(self.story.first[name])
        self.wait_until_published()
