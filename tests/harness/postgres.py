"""PostgreSQL databases for a small world: how they are created, changed and read."""

import itertools
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from infra.localpostgres import LocalPostgres
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Catalog, Relation
from sources.kafka import Kafka
from sources.postgres.connector import connector
from sources.topics import ends_of
from tests.cases.stories import Change, Row, Story
from tests.harness.databases import RealDatabase, RowCount
from tests.harness.pgoutput import history, row_of
from tests.harness.records import records
from tests.harness.waiting import eventually

_numbers = itertools.count()
_SQL_TYPES = {"VARCHAR": "text", "DOUBLE": "float8"}


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
            for relation in self.catalog:
                connection.execute(table(relation))
                connection.execute(f"ALTER TABLE {relation.name} REPLICA IDENTITY FULL")
            connection.execute("CREATE PUBLICATION viewsweep FOR ALL TABLES")
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
                    change_rows(connection, self.catalog, self.name, changes)

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
        [(partition, (low, _))] = ends_of(Kafka(bootstrap), {"": [topic]})[""].items()
        found = records(bootstrap, {partition: low})["value"]
        return any(wanted in value for value in found if value is not None)

    eventually(has_come, "the topic has everything")
