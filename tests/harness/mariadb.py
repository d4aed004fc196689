"""MariaDB databases for a small world: how they are created, changed and read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pymysql
from pymysql.cursors import Cursor

from infra.localmariadb import LocalMariaDB
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Catalog, Relation
from sources.kafka import Kafka
from sources.mariadb.connector import connector
from sources.mariadb.logform import number_of
from sources.mariadb.source import MARKS
from sources.topics import ends_of
from tests.cases.stories import Change, Row, Story
from tests.harness.binlog import logged
from tests.harness.databases import RealDatabase, RowCount
from tests.harness.records import records
from tests.harness.waiting import eventually

#: A row in the table of marks that no source uses.
_ROW = 1_000_000
_SQL_TYPES = {"BOOLEAN": "bit(1)", "TIMESTAMP": "datetime(6)"}


class MariaDBDatabase(RealDatabase):
    """One database, which begins without rows."""

    keeps_offsets = True

    def __init__(
        self,
        name: str,
        directory: Path,
        bootstrap: str,
        topic: str,
        story: Story,
        server: LocalMariaDB,
    ) -> None:
        self._server = server
        super().__init__(name, directory, bootstrap, topic, story)

    @property
    def address(self) -> str:
        return self._server.address(self.database)

    @property
    def place(self) -> str:
        return f'mariadb_file = "{self._file.name}"'

    def create(self) -> None:
        with self._server.connected() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
        with self.cursor() as cursor:
            cursor.execute(table_of_marks())
            for relation in self.catalog:
                cursor.execute(table(relation, self.catalog))

    def drop(self) -> None:
        with self._server.connected() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {self.database}")

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        with self._server.connected(self.database) as connection, connection.cursor() as cursor:
            yield cursor

    def connector(self) -> dict[str, str]:
        return connector(self.name, self.topic, self.address, self.bootstrap)

    def _commit(self, transactions: Sequence[Sequence[Change]]) -> None:
        with self.cursor() as cursor:
            for changes in transactions:
                cursor.execute("BEGIN")
                change_rows(cursor, self.catalog, self.name, changes)
                cursor.execute("COMMIT")

    def _put(self, relation: Relation) -> str:
        return f"REPLACE INTO {relation.name} VALUES ({', '.join(['%s'] * len(relation.columns))})"

    def _execute(self, transaction: Sequence[tuple[str, Row]]) -> None:
        try:
            with self.cursor() as cursor:
                cursor.execute("BEGIN")
                for statement, values in transaction:
                    cursor.execute(statement, values)
                cursor.execute("COMMIT")
        except (pymysql.OperationalError, pymysql.InterfaceError) as error:
            raise OSError(str(error)) from None

    def _logged(self) -> list[list[RowCount]]:
        found = logged(self._server.port, self.database, but=MARKS)
        return [each.net(self.catalog) for each in found]

    def wait_for_the_topic(self) -> None:
        with self.cursor() as cursor:
            wait_until_published(cursor, self.bootstrap, self.topic)


def table(relation: Relation, catalog: Catalog) -> str:
    """The statement that creates the table of a relation."""
    short = {name for key in (relation.key, *relation.further_keys) for name in key}
    parts = [
        f"{name} {_sql(type_, name in short)}{' NOT NULL' if name in relation.never_null else ''}"
        for name, type_ in relation.columns
    ]
    parts += [f"PRIMARY KEY ({', '.join(relation.key)})"]
    parts += [f"UNIQUE ({', '.join(key)})" for key in relation.further_keys]
    parts += [
        f"FOREIGN KEY ({', '.join(each.columns)}) REFERENCES {each.target}"
        f" ({', '.join(each.to or _key_of(each.target, relation.source, catalog))})"
        for each in relation.references
    ]
    return f"CREATE TABLE {relation.name} ({', '.join(parts)})"


def _key_of(target: str, source: str, catalog: Catalog) -> Sequence[str]:
    found = catalog.find(source, target)
    assert found is not None
    return found.key


def _sql(type_: ColumnType, is_short: bool) -> str:
    if type_.name == "VARCHAR":
        return "varchar(100)" if is_short else "text"
    return _SQL_TYPES.get(type_.name, type_.name)


def table_of_marks() -> str:
    """The statement that creates the table of marks, as the documentation has it."""
    return f"CREATE TABLE {MARKS} (id INT PRIMARY KEY, n BIGINT NOT NULL)"


def change_rows(cursor: Cursor, catalog: Catalog, source: str, changes: Sequence[Change]) -> None:
    """Updates rows that are replaced under their key; then the other changes, deletions first."""
    relations = {relation.name: relation for relation in catalog if relation.source == source}
    ordered = sorted(changes, key=lambda change: change[2])
    gone = {(n, _key(relations[n], row)): row for n, row, count in ordered if count == -1}
    added = [(n, row) for n, row, count in ordered if count == 1]
    new = {(name, _key(relations[name], row)): row for name, row in added}
    for name, key in gone.keys() - new.keys():
        cursor.execute(f"DELETE FROM {name} WHERE {_is(relations[name].key)}", key)
        assert cursor.rowcount == 1, (name, key)
    for (name, key), row in new.items():
        relation = relations[name]
        if (name, key) in gone:
            values = ", ".join(f"{column} = %s" for column in relation.column_names)
            statement = f"UPDATE {name} SET {values} WHERE {_is(relation.key)}"
            cursor.execute(statement, (*row, *key))
        else:
            cursor.execute(f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(row))})", row)


def _key(relation: Relation, row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(row[relation.column_names.index(name)] for name in relation.key)


def _is(key: Sequence[str]) -> str:
    return " AND ".join(f"{name} = %s" for name in key)


def marked(cursor: Cursor) -> int:
    """Writes a mark; its number in the log."""
    cursor.execute(f"INSERT INTO {MARKS} VALUES ({_ROW}, 1) ON DUPLICATE KEY UPDATE n = n + 1")
    cursor.execute("SELECT @@last_gtid")
    [[gtid]] = cursor.fetchall()
    return number_of(gtid)


def wait_until_published(cursor: Cursor, bootstrap: str, topic: str) -> None:
    """Returns when everything that is committed now is in the topic.

    A connector that was just started may begin after a mark, so there is one for each look.
    """
    wanted = marked(cursor)

    def has_come() -> bool:
        marked(cursor)
        [(partition, (low, _))] = ends_of(Kafka(bootstrap), {"": [topic]})[""].items()
        found = records(bootstrap, {partition: low})["value"]
        return any(_is_end(wanted)(value) for value in found if value is not None)

    eventually(has_come, "the topic has everything")


def _is_end(number: int) -> Callable[[bytes], bool]:
    def is_it(value: bytes) -> bool:
        content = orjson.loads(value)
        return content.get("status") == "END" and number_of(content["id"]) >= number

    return is_it
