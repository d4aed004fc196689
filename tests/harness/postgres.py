"""PostgreSQL databases for a small world: how they are created, changed and read."""

import itertools
import os
from base64 import b64encode
from collections.abc import Iterable, Sequence
from itertools import starmap
from pathlib import Path

import psycopg
from psycopg import sql

from infra.localpostgres import LocalPostgres
from protocols.views.catalog import Relation
from sources.debezium.statements import Statement
from sources.kafka import Kafka
from sources.postgres.connector import connector
from sources.postgres.statements import PostgresStatements
from sources.topics import ends_of
from sources.transaction import RowChange
from tests.cases.stories import Change, Row, Story
from tests.harness.databases import RealDatabase, RowCount
from tests.harness.pgoutput import history, row_of
from tests.harness.records import records
from tests.harness.waiting import eventually

_numbers = itertools.count()


class PostgresDatabase(RealDatabase):
    """One database, which begins without rows."""

    keeps_offsets = False

    def __init__(
        self,
        name: str,
        directory: Path,
        bootstrap: str,
        topic: str,
        story: Story,
        server: LocalPostgres,
    ) -> None:
        self._server = server
        super().__init__(name, directory, bootstrap, topic, story)
        self._statements = PostgresStatements(self.catalog, name)

    @property
    def address(self) -> str:
        return self._server.dsn(self.database)

    @property
    def place(self) -> str:
        return f'postgres_file = "{self._file.name}"'

    @property
    def _judge(self) -> str:
        """The slot from which the history is taken."""
        return f"judge_{self.database}"

    def create(self) -> None:
        with psycopg.connect(self._server.dsn(), autocommit=True) as created:
            created.execute(f"CREATE DATABASE {self.database}")
        with self.connected() as connection:
            for statement in (*self._statements.tables(), *self._statements.prepare()):
                connection.execute(sql.SQL(statement))
            connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._judge,)
            )

    def drop(self) -> None:
        """Drops the database, and with it its slots: a server has a limited number of them."""
        active = "SELECT count(*) FROM pg_replication_slots WHERE active AND database = %s"
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            eventually(
                lambda: connection.execute(active, (self.database,)).fetchone() == (0,),
                "the slots are inactive",
            )
            connection.execute(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")

    def connected(self) -> psycopg.Connection:
        return psycopg.connect(self.address, autocommit=True)

    def connector(self) -> dict[str, str]:
        return connector(self.name, self.topic, self.address, slot=f"s_{self.database}")

    def _commit(self, transactions: Sequence[Sequence[Change]]) -> None:
        with self.connected() as connection:
            for changes in transactions:
                with connection.transaction():
                    execute(connection, self._statements.changes(starmap(RowChange, changes)))

    def _put(self, relation: Relation) -> str:
        names = ", ".join(f"{name} = EXCLUDED.{name}" for name in relation.column_names)
        values = ", ".join(["%s"] * len(relation.columns))
        key = ", ".join(relation.key)
        insert = f"INSERT INTO {relation.name} VALUES ({values})"
        return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {names}"

    def _execute(self, transaction: Sequence[tuple[str, Row]]) -> None:
        try:
            with self.connected() as connection, connection.transaction():
                for statement, values in transaction:
                    connection.execute(sql.SQL(statement), values)
        except psycopg.OperationalError as error:
            raise OSError(str(error)) from None

    def _logged(self) -> list[list[RowCount]]:
        relations = {relation.name: relation for relation in self.catalog}
        with self.connected() as connection:
            found = history(connection, self._judge)
        return [
            [(name, row_of(row, relations[name]), count) for name, row, count in each.net()]
            for each in found
        ]

    def wait_for_the_topic(self) -> None:
        with self.connected() as connection:
            wait_until_published(connection, self.bootstrap, self.topic)


def execute(connection: psycopg.Connection, statements: Iterable[Statement]) -> None:
    """Executes statements; each deletes or changes one row."""
    for statement, values in statements:
        done = connection.execute(sql.SQL(statement), values)
        assert done.rowcount == 1, (statement, values)


def wait_until_published(connection: psycopg.Connection, bootstrap: str, topic: str) -> None:
    """Returns when a message of ours, written now, is in the topic."""
    text = f"judge-{os.getpid()}-{next(_numbers)}"
    connection.execute("SELECT pg_logical_emit_message(true, 'judge', %s)", (text,))
    wanted = b64encode(text.encode())

    def has_come() -> bool:
        [(partition, (low, _))] = ends_of(Kafka(bootstrap), {"": [topic]})[""].items()
        found = records(bootstrap, {partition: low})["value"]
        return any(wanted in value for value in found if value is not None)

    eventually(has_come, "the topic has everything")
