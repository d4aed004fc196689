"""PostgreSQL with Debezium: a server, a connector and a topic for each database under test."""

import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import orjson
import psycopg
from psycopg import sql

from infra.localbroker import LOOPBACK
from infra.localconnect import LocalConnect
from infra.localpostgres import LocalPostgres
from sources.debezium.statements import all_of
from sources.port import Source
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.connector import connector
from sources.postgres.source import PostgresSource
from sources.postgres.statements import PostgresStatements
from sources.transaction import RowChange, Transaction
from tests.conformance.adapters import real
from tests.conformance.committed import Committed
from tests.conformance.story import NAME, SHOPS, VALUES, Story, typed
from tests.harness.pgoutput import Decoded, history, row_of
from tests.harness.postgres import execute, wait_until_published

_numbers = itertools.count()
_JUDGE = "judge"


class Postgres:
    """PostgreSQL databases read by this adapter."""

    partitions = 1
    story, counts_all_columns = SHOPS, True
    joins = has_parts = has_versions = publishes_again = False
    #: It has no texts with NUL.
    types = typed({**VALUES, "VARCHAR": tuple(v for v in VALUES["VARCHAR"] if "\0" not in v)})
    may_go_on = staticmethod(real.may_go_on)

    def __init__(self, bootstrap: str, kind: type[PostgresSource] = PostgresSource) -> None:
        self._bootstrap = bootstrap
        self.kind = kind

    @contextmanager
    def made(self, story: Story) -> Iterator["PostgresDatabase"]:
        topic = f"conformance-postgres-{os.getpid()}-{next(_numbers)}"
        with closing(PostgresDatabase(story, self._bootstrap, topic, self.kind)) as made:
            yield made


class PostgresDatabase(real.RealDatabase):
    """One of them."""

    server: LocalPostgres

    def __init__(
        self, story: Story, bootstrap: str, topic: str, kind: type[PostgresSource]
    ) -> None:
        self._kind = kind
        self._judging = threading.Lock()
        #: The number of a transaction at the database → its version, as of the last `settle`.
        self._numbers: dict[int, int] = {}
        super().__init__(story, bootstrap, topic, LocalPostgres())

    def _opened(self, port: int) -> Source:
        dsn = f"postgresql://postgres@{LOOPBACK}:{port}/postgres"
        connections = DatabaseConnections(NAME, dsn, real.SECONDS)
        return self._kind(NAME, [self.topic], connections, real.SECONDS)

    def _connection(self) -> LocalConnect:
        settings = {NAME: connector(NAME, self.topic, self.server.dsn())}
        return LocalConnect(self.bootstrap, settings, lambda _said: None)

    def _create(self) -> None:
        with self._connected() as connection:
            statements = self._statements
            for statement in (*statements.tables(), *statements.prepare()):
                connection.execute(sql.SQL(statement))
            for name, columns in self.story.indexes.items():
                for column in columns:
                    connection.execute(f"CREATE INDEX ON {name} ({column})")
            execute(connection, statements.changes(all_of(self.story.rows)))
            made = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
            connection.execute(made, (_JUDGE,))
            connection.execute("ANALYZE")

    @property
    def _statements(self) -> PostgresStatements:
        return PostgresStatements(self.story.catalog, NAME)

    def _connected(self) -> psycopg.Connection:
        return psycopg.connect(self.server.dsn(), autocommit=True)

    @property
    def committed(self) -> Sequence[Committed]:
        relations = {relation.name: relation for relation in self.story.catalog}
        return [
            Committed(
                Transaction(
                    tuple(
                        RowChange(name, row_of(row, relations[name]), count)
                        for name, row, count in each.net()
                    )
                ),
                each.ts_ms,
                each.ts_ms,
            )
            for each in self._history()
        ]

    def _history(self) -> list[Decoded]:
        # The slot serves one session at a time.
        with self._judging, self._connected() as connection:
            return history(connection, _JUDGE)

    def commit(self, transaction: Transaction) -> None:
        with self._connected() as connection, connection.transaction():
            execute(connection, self._statements.changes(transaction.changes))

    def settle(self) -> None:
        with self._connected() as connection:
            wait_until_published(connection, self.bootstrap, self.topic)
            connection.execute("ANALYZE")
        self._numbers = {each.number: n for n, each in enumerate(self._history(), 1)}

    def version_of(self, record: bytes) -> int | None:
        content = orjson.loads(record)
        source = content.get("source") or {"txId": content.get("id", "0:").partition(":")[0]}
        return self._numbers.get(int(source["txId"]))
