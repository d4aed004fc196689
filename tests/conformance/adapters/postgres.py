"""PostgreSQL with Debezium: a server, a connector and a topic for each database under test."""

import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
import psycopg

from infra.localbroker import LOOPBACK
from infra.localconnect import LocalConnect
from infra.localpostgres import LocalPostgres
from sources.port import Source
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.connector import connector
from sources.postgres.source import PostgresSource
from sources.topics import ends_of, ensure_topic
from sources.transaction import RowChange, Transaction
from tests.conformance.committed import Committed
from tests.conformance.story import NAME, VALUES, Story, typed
from tests.harness.pgoutput import Decoded, history, row_of
from tests.harness.postgres import change_rows, table, wait_until_published

_numbers = itertools.count()
_JUDGE = "judge"
#: How long an answer may take; the suite also waits for some that cannot come.
_SECONDS = 3.0


class Postgres:
    """PostgreSQL databases read by this adapter."""

    partitions = 1
    joins = has_parts = has_versions = publishes_again = False
    #: It has no texts with NUL.
    types = typed({**VALUES, "VARCHAR": tuple(v for v in VALUES["VARCHAR"] if "\0" not in v)})

    def __init__(self, bootstrap: str, kind: type[PostgresSource] = PostgresSource) -> None:
        self._bootstrap = bootstrap
        self.kind = kind

    def may_go_on(self, values: Sequence[bytes]) -> Sequence[int]:
        """A connector begins with a transaction."""
        begins = [n for n, value in enumerate(values) if b'"status":"BEGIN"' in value]
        return [*begins, len(values)]

    @contextmanager
    def made(self, story: Story) -> Iterator["PostgresDatabase"]:
        topic = f"conformance-postgres-{os.getpid()}-{next(_numbers)}"
        made = PostgresDatabase(story, self._bootstrap, topic, self.kind)
        try:
            yield made
        finally:
            made.close()


class PostgresDatabase:
    """One of them; what was committed is told by its own log."""

    source: Source

    def __init__(
        self, story: Story, bootstrap: str, topic: str, kind: type[PostgresSource]
    ) -> None:
        self.bootstrap = bootstrap
        self._story, self._topic = story, topic
        self._server = LocalPostgres()
        self._server.start()
        self._connect: LocalConnect | None = None
        self._judging = threading.Lock()
        #: The number of a transaction at the database → its version, as of the last `settle`.
        self._numbers: dict[int, int] = {}
        self._copy = Path(tempfile.mkdtemp(prefix="viewsweep-copy-"))
        self._door = _Door(self._server.port)
        self._create()
        self.publish()
        dsn = f"postgresql://postgres@{LOOPBACK}:{self._door.port}/postgres"
        self.source = kind(
            NAME, [topic], DatabaseConnections(NAME, dsn, _SECONDS), "public", _SECONDS
        )
        self.source.begin(bootstrap, ends_of(bootstrap, {NAME: [topic]})[NAME], None)

    def _create(self) -> None:
        """Its tables with their first rows, which stand in no topic."""
        with self._connected() as connection:
            for relation in self._story.catalog:
                connection.execute(table(relation))
                connection.execute(f"ALTER TABLE {relation.name} REPLICA IDENTITY FULL")
            for name, columns in self._story.indexes.items():
                for column in columns:
                    connection.execute(f"CREATE INDEX ON {name} ({column})")
            for name, rows in self._story.rows.items():
                change_rows(connection, self._story.catalog, NAME, [(name, r, 1) for r in rows])
            connection.execute("CREATE PUBLICATION viewsweep FOR ALL TABLES")
            made = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
            connection.execute(made, (_JUDGE,))
            connection.execute("ANALYZE")

    def _connected(self) -> psycopg.Connection:
        return psycopg.connect(self._server.dsn(), autocommit=True)

    @property
    def committed(self) -> Sequence[Committed]:
        relations = {relation.name: relation for relation in self._story.catalog}
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
        changes = [(each.relation, each.row, each.count) for each in transaction.changes]
        with self._connected() as connection, connection.transaction():
            change_rows(connection, self._story.catalog, NAME, changes)

    def settle(self) -> None:
        with self._connected() as connection:
            wait_until_published(connection, self.bootstrap, self._topic)
            connection.execute("ANALYZE")
        self._numbers = {each.number: n for n, each in enumerate(self._history(), 1)}

    def version_of(self, record: bytes) -> int | None:
        content = orjson.loads(record)
        source = content.get("source") or {"txId": content.get("id", "0:").partition(":")[0]}
        return self._numbers.get(int(source["txId"]))

    def publish(self, partitions: int | None = None) -> None:
        assert partitions in (None, 1)
        self.stop_publishing()
        ensure_topic(self.bootstrap, self._topic, 30.0)
        settings = {NAME: connector(NAME, self._topic, self._server.dsn())}
        self._connect = LocalConnect(self.bootstrap, settings, lambda _said: None)
        self._connect.start()

    def stop_publishing(self) -> None:
        if self._connect is not None:
            self._connect.close()
            self._connect = None

    def answer(self) -> None:
        self._door.open()

    def stop_answering(self) -> None:
        self._door.close()

    def back_up(self) -> None:
        self.stop_publishing()
        self._server.stop()
        _copied(self._server.data, self._copy / "data")
        self._server.start()
        self.publish()

    def restore(self) -> None:
        self._replace()
        _copied(self._copy / "data", self._server.data)
        self._server.start()

    def reset(self) -> None:
        self._replace()
        self._server.data.mkdir()
        self._server.start()
        self._create()

    def _replace(self) -> None:
        self.stop_publishing()
        self._server.stop()
        shutil.rmtree(self._server.data)

    def close(self) -> None:
        """Ends all of it."""
        self.source.close()
        self._door.close()
        self.stop_publishing()
        self._server.close()
        shutil.rmtree(self._copy, ignore_errors=True)


def _copied(source: Path, target: Path) -> None:
    """Copies a directory with its owners: the server does not run as root."""
    subprocess.run(["cp", "-a", source, target], check=True)


class _Door:
    """A port that leads to the server until it is closed."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self.port = 0
        self.open()

    def open(self) -> None:
        self._listening = socket.create_server((LOOPBACK, self.port))
        self.port = self._listening.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, args=(self._listening,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join()

    def _run(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
                server = socket.create_connection((LOOPBACK, self._behind))
            except OSError:
                return
            self._connections += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_carry, args=ends, daemon=True).start()


def _carry(come: socket.socket, go: socket.socket) -> None:
    with suppress(OSError):
        while content := come.recv(65536):
            go.sendall(content)
    for each in (come, go):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
