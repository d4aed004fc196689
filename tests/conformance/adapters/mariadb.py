"""MariaDB with Debezium: a server, a connector and a topic for each database under test."""

import itertools
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import orjson
from pymysql.cursors import Cursor

from infra.localbroker import LOOPBACK
from infra.localconnect import LocalConnect
from infra.localmariadb import LocalMariaDB
from sources.debezium.statements import all_of
from sources.mariadb.connecting import DatabaseConnections
from sources.mariadb.connector import connector
from sources.mariadb.logform import number_of
from sources.mariadb.source import MARKS, MariaDBSource
from sources.mariadb.statements import MariaDBStatements
from sources.port import Source
from sources.transaction import RowChange, Transaction
from tests.conformance.adapters import real
from tests.conformance.committed import Committed
from tests.conformance.story import KEYED_SHOPS, NAME, VALUES, Story, typed
from tests.harness.binlog import Logged, logged
from tests.harness.mariadb import execute, marked, wait_until_published

_numbers = itertools.count()
_DATABASE = "shop"
#: What it has values for: it knows neither infinity nor NaN.
_VALUES = {**VALUES, "DOUBLE": tuple(v for v in VALUES["DOUBLE"] if math.isfinite(v))}


class MariaDB:
    """MariaDB databases read by this adapter."""

    partitions = 1
    story, counts_all_columns = KEYED_SHOPS, False
    joins = has_parts = has_versions = publishes_again = False
    types = typed(_VALUES)
    may_go_on = staticmethod(real.may_go_on)

    def __init__(self, bootstrap: str, kind: type[MariaDBSource] = MariaDBSource) -> None:
        self._bootstrap = bootstrap
        self.kind = kind

    @contextmanager
    def made(self, story: Story) -> Iterator["MariaDBDatabase"]:
        topic = f"conformance-mariadb-{os.getpid()}-{next(_numbers)}"
        with closing(MariaDBDatabase(story, self._bootstrap, topic, self.kind)) as made:
            yield made


class MariaDBDatabase(real.RealDatabase):
    """One of them."""

    server: LocalMariaDB

    def __init__(self, story: Story, bootstrap: str, topic: str, kind: type[MariaDBSource]) -> None:
        self._kind = kind
        self._judging = threading.Lock()
        #: The number of the last transaction that stands in no topic.
        self._base = 0
        #: The number of a transaction at the database → its version, as of the last `settle`.
        self._numbers: dict[int, int] = {}
        super().__init__(story, bootstrap, topic, LocalMariaDB())

    def _opened(self, port: int) -> Source:
        address = f"mariadb://root@{LOOPBACK}:{port}/{_DATABASE}"
        connections = DatabaseConnections(NAME, address, real.SECONDS, MARKS)
        return self._kind(NAME, [self.topic], connections, real.SECONDS)

    def _connection(self) -> LocalConnect:
        address = self.server.address(_DATABASE)
        settings = {NAME: connector(NAME, self.topic, address, self.bootstrap)}
        return LocalConnect(self.bootstrap, settings, lambda _said: None, keeps_offsets=True)

    def _create(self) -> None:
        with self.server.connected() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {_DATABASE}")
        with self._cursor() as cursor:
            statements = self._statements
            for statement in (*statements.tables(), *statements.prepare()):
                cursor.execute(statement)
            for name, columns in self.story.indexes.items():
                for column in columns:
                    cursor.execute(f"CREATE INDEX by_{column} ON {name} ({column})")
            execute(cursor, statements.changes(all_of(self.story.rows)))
            self._analyze(cursor)
            self._base = marked(cursor)

    @property
    def _statements(self) -> MariaDBStatements:
        return MariaDBStatements(self.story.catalog, NAME)

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        with self.server.connected(_DATABASE) as connection, connection.cursor() as cursor:
            yield cursor

    def _analyze(self, cursor: Cursor) -> None:
        cursor.execute(f"ANALYZE LOCAL TABLE {', '.join(r.name for r in self.story.catalog)}")

    @property
    def committed(self) -> Sequence[Committed]:
        return [
            Committed(
                Transaction(tuple(RowChange(*change) for change in each.net(self.story.catalog))),
                each.second * 1000,
                each.second * 1000 + 999,
            )
            for each in self._history()
        ]

    def _history(self) -> list[Logged]:
        with self._judging:
            found = logged(self.server.port, _DATABASE, but=MARKS)
        return [each for each in found if each.number > self._base]

    def commit(self, transaction: Transaction) -> None:
        with self._cursor() as cursor:
            cursor.execute("BEGIN")
            execute(cursor, self._statements.changes(transaction.changes))
            cursor.execute("COMMIT")

    def settle(self) -> None:
        with self._cursor() as cursor:
            wait_until_published(cursor, self.bootstrap, self.topic)
            self._analyze(cursor)
        self._numbers = {each.number: n for n, each in enumerate(self._history(), 1)}

    def version_of(self, record: bytes) -> int | None:
        content = orjson.loads(record)
        gtid = content["source"]["gtid"] if "source" in content else content.get("id")
        return None if gtid is None else self._numbers.get(number_of(gtid))
