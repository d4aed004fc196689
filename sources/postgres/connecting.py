"""Connections to one PostgreSQL database, for questions that tell what they contain."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import NDArray

from protocols.errors import SourceViolation, Unreachable, WrongUse
from protocols.exchange.deliveries import Numbers

#: The prefix of our messages in the database's log.
PREFIX = "viewsweep"
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_STAMP = (
    "SELECT pg_current_snapshot()::text, pg_current_xact_id()::text,"
    f" pg_logical_emit_message(true, '{PREFIX}', %s)"
)
#: The topic has the last 32 bits of numbers.
_BITS = 0xFFFFFFFF
#: Idle connections that are kept.
_KEPT = 8


@dataclass(frozen=True)
class DatabaseSnapshot:
    """The transactions that one sees; numbers of 64 bits, as pg_current_snapshot gives."""

    #: None from this one on had begun.
    next: int
    #: Those between that had not ended.
    running: frozenset[int]
    #: The number of the transaction itself.
    own: int
    #: The content of the message that it writes.
    message: str

    def sees(self, transactions: Numbers) -> NDArray[np.bool_]:
        """Which of these committed transactions it sees, given by the last 32 bits of each number.

        A number is that with these bits that is nearest to its own.
        """
        ahead = (transactions - self.own) & _BITS
        widened = self.own + np.where(ahead > _BITS // 2, ahead - _BITS - 1, ahead)
        running = np.array(sorted(self.running), np.int64)
        return np.asarray((widened < self.next) & ~np.isin(widened, running))


class DatabaseConnections:
    """Connections to one database; any thread may use them."""

    def __init__(self, source: str, dsn: str, seconds: float) -> None:
        self._source, self._dsn, self._seconds = source, dsn, seconds
        self._idle: list[psycopg.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        try:
            psycopg.conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise WrongUse(f"not the address of a PostgreSQL database: {error}") from None

    @contextmanager
    def plain(self, seconds: float | None = None) -> Iterator[psycopg.Cursor]:
        """A cursor for statements that each are a transaction."""
        with self._connection("SELECT", seconds) as cursor:
            yield cursor

    @contextmanager
    def snapshot(
        self, seconds: float | None = None
    ) -> Iterator[tuple[psycopg.Cursor, DatabaseSnapshot]]:
        """A cursor whose statements all see one snapshot; the end writes the message."""
        with self._connection(_BEGIN, seconds) as cursor:
            message = secrets.token_hex(12)
            row = cursor.execute(_STAMP, (message,)).fetchone()
            assert row is not None
            yield cursor, _snapshot(row[0], row[1], message)
            cursor.execute("COMMIT")

    def close(self) -> None:
        """Closes the idle connections; those in use are closed when they are given back."""
        self._closed = True
        self._drop([])

    @contextmanager
    def _connection(self, first: str, seconds: float | None) -> Iterator[psycopg.Cursor]:
        """A connection that nobody else uses, after this statement; broken ones are closed."""
        connection = self._answering(first, seconds or self._seconds)
        try:
            with self._plain_errors(), connection.cursor() as cursor:
                yield cursor
        except BaseException:
            with suppress(psycopg.Error):
                connection.close()
            raise
        self._give_back(connection)

    def _answering(self, first: str, seconds: float) -> psycopg.Connection:
        """A connection on which this statement has succeeded.

        An idle one may have been closed by the database since, and all others with it.
        """
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                idle.execute(first)
            except psycopg.OperationalError:
                self._drop([idle])
            else:
                return idle
        with self._plain_errors():
            connection = self._connected(seconds)
            connection.execute(first)
            return connection

    def _drop(self, connections: list[psycopg.Connection]) -> None:
        """Closes these and all idle ones."""
        with self._lock:
            dropped, self._idle = [*connections, *self._idle], []
        for connection in dropped:
            with suppress(psycopg.Error):
                connection.close()

    def _connected(self, seconds: float) -> psycopg.Connection:
        connection = psycopg.connect(
            self._dsn, autocommit=True, connect_timeout=max(2, int(seconds))
        )
        # Dates and times are read as the records have them, whatever the server's settings.
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false),"
            " set_config('TimeZone', 'UTC', false), set_config('application_name', %s, false)",
            (f"{int(seconds * 1000)}ms", "viewsweep"),
        )
        return connection

    def _give_back(self, connection: psycopg.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if any(words in str(error) for words in _WRONG_LOGIN):
                raise WrongUse(
                    f"source {self._source}: its database refuses the login: {_first_line(error)}"
                ) from None
            raise Unreachable(
                f"source {self._source}: its database does not answer: {_first_line(error)}"
            ) from None
        except psycopg.Error as error:
            raise SourceViolation(
                f"source {self._source}: its database refuses a question: {_first_line(error)}."
                " Fix the cause, then run the same command again to resume"
            ) from None


#: A server that refuses a connection says why in words only.
_WRONG_LOGIN = ("does not exist", "authentication failed", "no pg_hba.conf entry")


def _snapshot(text: str, own: str, message: str) -> DatabaseSnapshot:
    _, following, running = text.split(":")
    numbers = frozenset(int(each) for each in running.split(",") if each)
    return DatabaseSnapshot(int(following), numbers, int(own), message)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
