"""Watches connections and the memory they take: unfinished questions and unfetched answers.

gRPC reads a whole question before its size is known (1 GB takes 4 GB of memory), keeps an answer
until its client reads on, and keeps a connection for ever. pyarrow has no setting for any of these.
So this module looks at the sockets: Linux counts the bytes that each received, and shutting one
down ends everything that gRPC does with it. A client that is cut off finds the source unreachable
and may ask again. Without /proc these bounds are not enforced.
"""

import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from protocols.errors import Unreachable
from sources.wire.bounds import MB, Bounds

_SOCKETS = Path("/proc/self/fd")
#: Offset of the received bytes in Linux's tcp_info.
_RECEIVED = 128
#: Bytes received with a question besides it: headers, and acknowledgements of the answer.
_FRAMES = 4096
_ACKNOWLEDGED = 0.02
#: More connections are not kept open; the one silent for the longest is closed first.
_MOST_CONNECTIONS = 1000
#: gRPC may keep whole answers up to this size: handing one over in parts slows down other threads.
_SMALL = 1 << 16
#: Seconds without progress after which an answer counts as abandoned …
_PATIENCE = 60.0
#: … and the same while memory is short.
_HASTE = 2.0
#: Seconds between two looks at the sockets unless memory grows, and the bytes that count as growth.
_LOOK = 5.0
_GROWTH = 32 * MB


@dataclass
class _Client:
    """The figures of one connection."""

    #: Received bytes that belong to complete questions.
    accounted: float = 0.0
    #: The time of its last question.
    last: float = 0.0


@dataclass(eq=False)
class _Answer:
    """An answer that its client is fetching."""

    peer: str
    bytes: int
    #: The time when its client last fetched a part of it.
    last: float


class Connections:
    """The connections to one port of this process."""

    def __init__(self, port: int, bounds: Bounds) -> None:
        self._port = port
        #: One question and one commit may be unfinished.
        self._most_pending = bounds.question + bounds.commit
        self._most_answers = 2 * bounds.answer
        #: Guards the two below.
        self._lock = threading.Lock()
        self._clients: dict[str, _Client] = {}
        self._answers: set[_Answer] = set()
        self._memory = 0
        self._looked = 0.0

    def came(self, peer: str, size: int) -> None:
        """Records that a question of this size was received."""
        with self._lock:
            client = self._clients.setdefault(peer, _Client())
            client.accounted += 1.02 * size + _FRAMES
            client.last = time.monotonic()

    def sent(self, peer: str, table: pa.Table) -> pa.Table | pa.RecordBatchReader:
        """The rows for this client to fetch; Unreachable if too many answers are unfetched."""
        if table.nbytes <= _SMALL:
            return table
        answer = _Answer(peer, table.nbytes, time.monotonic())
        with self._lock:
            others = sum(each.bytes for each in self._answers)
            if self._answers and others + answer.bytes > self._most_answers:
                raise Unreachable(
                    f"busy: {others // MB} MB of answers have not been fetched yet; ask again later"
                )
            self._answers.add(answer)
            self._clients.setdefault(peer, _Client()).accounted += _ACKNOWLEDGED * answer.bytes
        batches = self._fetched(answer, table.to_batches())
        next(batches)
        return pa.RecordBatchReader.from_batches(table.schema, batches)

    def _fetched(self, answer: _Answer, batches: list[pa.RecordBatch]) -> Iterator[Any]:
        """The batches; Flight closes the iterator when the client is gone or cut off."""
        try:
            # Closing a generator before it begins skips `finally`: the caller fetches this at once.
            yield None
            batches.reverse()
            while batches:
                yield batches.pop()
                answer.last = time.monotonic()
        finally:
            with self._lock:
                self._answers.discard(answer)

    def look(self) -> None:
        """Cuts off clients that take too much; called several times a second."""
        if not _SOCKETS.is_dir():
            return
        now, memory = time.monotonic(), psutil.Process().memory_info().rss
        stalled = self._stalled(now)
        grown = memory > self._memory + _GROWTH
        crowded = len(os.listdir(_SOCKETS)) > _MOST_CONNECTIONS
        if not (stalled or grown or crowded or now > self._looked + _LOOK):
            return
        self._looked, self._memory = now, memory
        pending = self._pending(now)
        self._cut(stalled | self._too_much(pending))

    def _stalled(self, now: float) -> set[str]:
        """Peers that do not fetch their answers, or fetch too slowly while memory is short."""
        with self._lock:
            room = self._most_answers // 2 - sum(each.bytes for each in self._answers)
            patience = _PATIENCE if room > 0 else _HASTE
            return {each.peer for each in self._answers if each.last < now - patience}

    def _pending(self, now: float) -> dict[str, float]:
        """Peer → received bytes that belong to no complete question."""
        received = {peer: _received(connection) for peer, connection in _connected(self._port)}
        with self._lock:
            known = {peer: self._clients.get(peer, _Client(last=now)) for peer in received}
            self._clients = known
        return {peer: max(size - known[peer].accounted, 0.0) for peer, size in received.items()}

    def _too_much(self, pending: dict[str, float]) -> set[str]:
        """Peers to cut off: those above their own bound, the largest ones while all together exceed
        theirs, and those silent for the longest while there are too many connections."""
        cut = {peer for peer, size in pending.items() if size > self._most_pending}
        left = sum(size for peer, size in pending.items() if peer not in cut)
        for peer in sorted(pending, key=lambda each: -pending[each]):
            if left <= 2 * self._most_pending:
                break
            if peer not in cut:
                cut.add(peer)
                left -= pending[peer]
        with self._lock:
            busy = {each.peer for each in self._answers}
            clients = self._clients
            silent = sorted(set(pending) - cut - busy, key=lambda each: clients[each].last)
        return cut | set(silent[: max(len(pending) - _MOST_CONNECTIONS, 0)])

    def _cut(self, peers: set[str]) -> None:
        if not peers:
            return
        for peer, connection in _connected(self._port):
            if peer in peers:
                # The client may have closed it.
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def allow_many_connections() -> None:
    """Raises the limit of open files of this process, so that connections do not exhaust it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8 * _MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, 8 * _MOST_CONNECTIONS), hard))


def _received(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED + 8)
    return int(struct.unpack_from("<Q", info, _RECEIVED)[0])


def _connected(port: int) -> Iterator[tuple[str, socket.socket]]:
    """(peer as Flight names it, socket) of each connection to a port of this process."""
    for name in os.listdir(_SOCKETS):
        with _borrowed(int(name)) as connection:
            peer = None if connection is None else _peer(connection, port)
            if connection is not None and peer is not None:
                yield peer, connection


@contextmanager
def _borrowed(number: int) -> Iterator[socket.socket | None]:
    """The socket behind a file descriptor of this process, if there is one.

    It is not a duplicate: closing a duplicate descriptor would release DuckDB's lock on its file.
    """
    try:
        connection = socket.socket(fileno=number)
    except OSError:
        # Not a socket, or already closed.
        yield None
        return
    try:
        yield connection
    finally:
        connection.detach()


def _peer(connection: socket.socket, port: int) -> str | None:
    """The peer of a connection to this port; None for any other socket."""
    try:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if connection.getsockname()[1] != port:
            return None
        host, number = connection.getpeername()[:2]
    except OSError:
        return None
    host = host.removeprefix("::ffff:")
    return f"ipv6:%5B{host}%5D:{number}" if ":" in host else f"ipv4:{host}:{number}"
