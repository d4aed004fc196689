"""MariaDB databases for a small world: how they are created, changed and read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path

import orjson
import pymysql
from pymysql.cursors import Cursor

from infra.localmariadb import LocalMariaDB
from protocols.views.catalog import Relation
from sources.debezium.statements import Statement
from sources.kafka import Kafka
from sources.mariadb.connector import connector
from sources.mariadb.logform import number_of
from sources.mariadb.source import MARKS
from sources.mariadb.statements import MariaDBStatements
from sources.topics import ends_of
from sources.transaction import RowChange
from tests.cases.stories import Change, Row, Story
from tests.harness.binlog import logged
from tests.harness.databases import RealDatabase, RowCount
from tests.harness.records import records
from tests.harness.waiting import eventually

#: A row in the table of marks that no source uses.
_ROW = 1_000_000


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
        self._statements = MariaDBStatements(self.catalog, name)

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
            for statement in (*self._statements.tables(), *self._statements.prepare()):
                cursor.execute(statement)

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
                execute(cursor, self._statements.changes(starmap(RowChange, changes)))
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


def execute(cursor: Cursor, statements: Iterable[Statement]) -> None:
    """Executes statements; each deletes one row, or changes at most one."""
    for statement, values in statements:
        cursor.execute(statement, values)
        assert cursor.rowcount == 1 or statement.startswith("UPDATE"), (statement, values)


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
