"""A database under test with a server, a connector and a topic of its own."""

import shutil
import socket
import subprocess
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from infra.localbroker import LOOPBACK
from infra.localconnect import LocalConnect
from sources.kafka import Kafka
from sources.port import Source
from sources.topics import ends_of, ensure_topic
from tests.conformance.committed import Committed
from tests.conformance.story import NAME, Story

#: How long an answer may take; the suite also waits for some that cannot come.
SECONDS = 3.0


class Server(Protocol):
    """A database server on this machine."""

    data: Path
    port: int

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


def may_go_on(values: Sequence[bytes]) -> Sequence[int]:
    """A connector begins with a transaction."""
    begins = [n for n, value in enumerate(values) if b'"status":"BEGIN"' in value]
    return [*begins, len(values)]


class RealDatabase(ABC):
    """One of them; what was committed is told by its own log."""

    source: Source
    server: Server
    is_asked_through_its_topic = True

    def __init__(self, story: Story, bootstrap: str, topic: str, server: Server) -> None:
        self.story, self.bootstrap, self.topic, self.server = story, bootstrap, topic, server
        self._connect: LocalConnect | None = None
        self._copy = Path(tempfile.mkdtemp(prefix="viewsweep-copy-"))
        self._door = _Door(server.port)
        self.source = self._opened(self._door.port)
        try:
            server.start()
            self._create()
            self.publish()
            self.settle()
            kafka = Kafka(bootstrap)
            self.source.begin(kafka, ends_of(kafka, {NAME: [topic]})[NAME], None)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _create(self) -> None:
        """Its tables with their first rows, which stand in no topic."""

    @abstractmethod
    def _opened(self, port: int) -> Source:
        """The adapter, which reaches it at this port."""

    @abstractmethod
    def _connection(self) -> LocalConnect:
        """A Connect process with its connector."""

    @abstractmethod
    def settle(self) -> None:
        """Returns when everything committed stands in the topic."""

    @property
    @abstractmethod
    def committed(self) -> Sequence[Committed]:
        """The committed transactions, from its log."""

    def publish(self, partitions: int | None = None) -> None:
        assert partitions in (None, 1)
        self.stop_publishing()
        ensure_topic(Kafka(self.bootstrap), self.topic, 30.0)
        if self._connect is None:
            self._connect = self._connection()
        self._connect.start()

    def stop_publishing(self) -> None:
        if self._connect is not None:
            self._connect.stop()

    def answer(self) -> None:
        self._door.open()

    def stop_answering(self) -> None:
        self._door.close()

    def back_up(self) -> None:
        self.stop_publishing()
        self.server.stop()
        _copied(self.server.data, self._copy / "data")
        self.server.start()
        self.publish()

    def restore(self) -> None:
        self._replace()
        _copied(self._copy / "data", self.server.data)
        self.server.start()

    def reset(self) -> None:
        self._replace()
        self.server.data.mkdir()
        self.server.start()
        self._create()

    def _replace(self) -> None:
        """Removes what it holds, and what its connector remembers of it."""
        self._forget_connect()
        self.server.stop()
        shutil.rmtree(self.server.data)

    def _forget_connect(self) -> None:
        if self._connect is not None:
            self._connect.close()
            self._connect = None

    def close(self) -> None:
        """Ends all of it."""
        self.source.close()
        self._door.close()
        self._forget_connect()
        self.server.close()
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
