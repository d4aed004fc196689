"""Sources that are PostgreSQL or MariaDB databases on this machine, with Debezium.

One server, with a database for each source; one Kafka Connect process with their connectors; and
for each database a process that commits the workload's transactions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from infra.localconnect import LocalConnect
from infra.owned import OwnedProcess
from infra.progress import Progress
from sources.kafka import Kafka
from streaming.local.load import Load
from streaming.local.processes import Processes

_TOPIC_SECONDS = 30.0


class DatabaseSources(ABC):
    """The databases of one server."""

    kind: ClassVar[str]
    keeps_offsets: ClassVar[bool]

    def __init__(
        self,
        processes: Processes,
        names: Sequence[str],
        bootstrap: str,
        topic: Callable[[str], str],
        progress: Progress,
    ) -> None:
        self._processes, self._names, self._progress = processes, names, progress
        self._bootstrap, self._topic = bootstrap, topic
        self._addresses: dict[str, str] = {}
        self._drivers: list[OwnedProcess] = []

    @abstractmethod
    def _server(self) -> Any:
        """The server, not started."""

    @abstractmethod
    def _created(self, server: Any, name: str) -> str:
        """Creates a database; its address."""

    @abstractmethod
    def _connector(self, name: str) -> Mapping[str, str]:
        """The configuration of its connector."""

    def make(self, load: Load) -> None:
        """The server, its databases with the workload's rows, and their connectors."""
        # Imported here: `viewsweep demo --help` needs no Kafka.
        from sources.topics import ensure_topic
        from streaming.intake.factory import database_packages

        with database_packages(self.kind):
            server = self._processes.enter_context(self._server())
            self._addresses = {name: self._created(server, name) for name in self._names}
        for name, address in self._addresses.items():
            (self._processes.directory / f"{name}.address").write_text(address)
        start = self._processes.start
        self._processes.finish(
            [
                start(f"fill-{name}", f"sources fill {name} {self._place(name)} {load.content}")
                for name in self._names
            ]
        )
        for name in self._names:
            ensure_topic(Kafka(self._bootstrap), self._topic(name), _TOPIC_SECONDS)
        connectors = {name: self._connector(name) for name in self._names}
        self._processes.enter_context(
            LocalConnect(self._bootstrap, connectors, self._progress, self.keeps_offsets)
        )

    def _place(self, name: str) -> str:
        return f"--{self.kind}-file {name}.address"

    def serve(self, load: Load, at_rest: bool) -> dict[str, str]:
        """Starts the processes that write."""
        self._drivers = [
            self._processes.start(
                f"drive-{name}",
                f"sources drive {name} {self._place(name)} {load.content} {load.commits(at_rest)}",
            )
            for name in self._names
        ]
        return self._addresses

    def settings(self) -> dict[str, str]:
        """The files with their addresses."""
        return {name: f'{self.kind}_file = "{name}.address"' for name in self._names}

    def stop(self) -> None:
        """Ends the processes that write."""
        for driver in self._drivers:
            driver.stop()


class PostgresDatabases(DatabaseSources):
    """PostgreSQL databases; their slots say where a connector goes on."""

    kind = "postgres"
    keeps_offsets = False

    def _server(self) -> Any:
        from infra.localpostgres import LocalPostgres

        return LocalPostgres()

    def _created(self, server: Any, name: str) -> str:
        import psycopg
        from psycopg import sql

        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return str(server.dsn(name))

    def _connector(self, name: str) -> Mapping[str, str]:
        from sources.postgres.connector import connector

        return connector(name, self._topic(name), self._addresses[name], slot=f"of_{name}")


class MariaDBDatabases(DatabaseSources):
    """MariaDB databases; their connectors store where they go on."""

    kind = "mariadb"
    keeps_offsets = True

    def _server(self) -> Any:
        from infra.localmariadb import LocalMariaDB

        return LocalMariaDB(progress=self._progress)

    def _created(self, server: Any, name: str) -> str:
        with server.connected() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}`")
        return str(server.address(name))

    def _connector(self, name: str) -> Mapping[str, str]:
        from sources.mariadb.connector import connector

        return connector(name, self._topic(name), self._addresses[name], self._bootstrap)
