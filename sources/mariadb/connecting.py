"""Connections to one MariaDB database, and the marks that questions leave in its log."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import Cursor

from protocols.errors import SourceViolation, Unreachable, WrongUse
from sources.debezium.numbering import Numbered

_PORT = 3306
#: Idle connections that are kept.
_KEPT = 8
#: A mark may begin another question for so long: an older one makes the window longer.
_FRESH_SECONDS = 0.1
_NAME = re.compile(r"[0-9a-zA-Z$_]+\Z")


@dataclass(frozen=True)
class DatabaseAddress:
    """An address as mariadb://user:password@host:port/database?ssl_ca=FILE."""

    host: str
    port: int
    user: str
    password: str
    database: str
    ssl_ca: str | None = None


def address_in(text: str) -> DatabaseAddress:
    """The address in a text; WrongUse if it is none. Passwords are not repeated."""
    form = "mariadb://USER:PASSWORD@HOST:PORT/DATABASE"
    try:
        parts = urlsplit(text)
        port = parts.port or _PORT
        options = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        raise WrongUse(f"not the address of a MariaDB database; the form is {form}") from None
    database = unquote(parts.path.lstrip("/"))
    if parts.scheme not in ("mariadb", "mysql") or not parts.hostname or not database:
        raise WrongUse(f"not the address of a MariaDB database; the form is {form}")
    if unknown := options.keys() - {"ssl_ca"}:
        raise WrongUse(
            f"unknown option {sorted(unknown)[0]!r} in the address; the only option is ssl_ca"
        )
    if not _NAME.match(database):
        raise WrongUse(
            f"the name of database {database!r} has characters other than letters, digits and _"
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return DatabaseAddress(
        parts.hostname, port, user, password, database, options.get("ssl_ca", [None])[0]
    )


@dataclass
class Connection:
    """A connection, and its row in the table of marks."""

    wire: "pymysql.Connection[Cursor]"
    row: int
    #: When a mark was left, and the last transaction before it.
    known: tuple[float, Numbered] | None = None

    @property
    def recent(self) -> Numbered | None:
        """The last transaction before a mark that was left a moment ago."""
        if self.known is None or time.monotonic() - self.known[0] > _FRESH_SECONDS:
            return None
        return self.known[1]


class Marking:
    """A cursor that can leave marks in the log."""

    def __init__(self, connection: Connection, cursor: Cursor, table: str) -> None:
        self.connection, self.cursor, self._table = connection, cursor, table

    def leave(self, mark: str) -> float:
        """Leaves a mark, and tells when; everything before it in the log is visible then."""
        self.cursor.execute(
            f"INSERT INTO {self._table} (id, n) VALUES (%s, %s) ON DUPLICATE KEY UPDATE n = %s",
            (self.connection.row, mark, mark),
        )
        return time.monotonic()


class DatabaseConnections:
    """Connections to one database; any thread may use them."""

    def __init__(self, source: str, address: str, seconds: float, marks: str) -> None:
        """`marks`: the table of marks, in the same database."""
        self._source, self._seconds = source, seconds
        self.address = address_in(address)
        self._table = f"`{self.address.database}`.`{marks}`"
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._rows = count()
        self._free_rows: list[int] = []
        self._closed = False

    @property
    def database(self) -> str:
        return self.address.database

    @contextmanager
    def plain(self, seconds: float | None = None) -> Iterator[Cursor]:
        """A cursor for statements that each are a transaction."""
        with self.marking(seconds) as marking:
            yield marking.cursor

    @contextmanager
    def marking(self, seconds: float | None = None) -> Iterator[Marking]:
        """A cursor that can leave marks, on a connection that nobody else uses."""
        connection = self._answering(seconds or self._seconds)
        try:
            with self._plain_errors(), connection.wire.cursor() as cursor:
                yield Marking(connection, cursor, self._table)
        except BaseException:
            self._drop([connection])
            raise
        self._give_back(connection)

    def close(self) -> None:
        """Closes the idle connections; those in use are closed when they are given back."""
        self._closed = True
        self._drop_idle()

    def _answering(self, seconds: float) -> Connection:
        """A connection that is alive.

        An idle one may have been closed by the database since, and all others with it.
        """
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            try:
                idle.wire.ping(reconnect=False)
            except (pymysql.Error, OSError):
                self._drop([idle])
                self._drop_idle()
            else:
                return idle
        with self._plain_errors():
            wire = self._connected(seconds)
        with self._lock:
            row = self._free_rows.pop() if self._free_rows else next(self._rows)
        return Connection(wire, row)

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        self._drop(idle)

    def _drop(self, connections: list[Connection]) -> None:
        for connection in connections:
            with suppress(pymysql.Error, OSError):
                connection.wire.close()
            with self._lock:
                self._free_rows.append(connection.row)

    def _connected(self, seconds: float) -> "pymysql.Connection[Cursor]":
        place = self.address
        ssl: dict[str, Any] = {} if place.ssl_ca is None else {"ssl_ca": place.ssl_ca}
        connection = pymysql.connect(
            host=place.host,
            port=place.port,
            user=place.user,
            password=place.password,
            database=place.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(2, int(seconds)),
            # The server ends a statement first, and says so.
            read_timeout=max(2, int(seconds) + 5),
            **ssl,
        )
        with connection.cursor() as cursor:
            # Each statement sees its own moment. Dates are read as the records have them, quotes
            # mean what they mean here, whatever the server's settings.
            cursor.execute(
                "SET SESSION transaction_isolation = 'READ-COMMITTED', time_zone = '+00:00',"
                " sql_mode = 'STRICT_ALL_TABLES', max_statement_time = %s",
                (seconds,),
            )
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        self._drop([connection])

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            number, words = _told(error)
            said = f"source {self._source}: its database"
            if number in _WRONG_LOGIN:
                raise WrongUse(f"{said} refuses the login: {words}") from None
            if number in _LOST or isinstance(error, pymysql.InterfaceError):
                raise Unreachable(f"{said} does not answer: {words}") from None
            if number == ER.NO_SUCH_TABLE and self._table.partition(".")[2].strip("`") in words:
                raise WrongUse(
                    f"{said} lacks the marks table: CREATE TABLE {self._table} (id INT PRIMARY"
                    " KEY, n BIGINT NOT NULL)"
                ) from None
            raise SourceViolation(
                f"{said} refuses a question: {words}. Fix the cause, then run the same command"
                " again to resume"
            ) from None
        except OSError as error:
            raise Unreachable(
                f"source {self._source}: its database does not answer: {error}"
            ) from None


_WRONG_LOGIN = {
    *(ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.BAD_DB_ERROR),
    *(ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR),
}
_STATEMENT_TIMEOUT, _SHUTDOWN, _KILLED, _TOO_MANY = 1969, 1053, 1927, 1040
_LOST = {
    *(CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST),
    *(_STATEMENT_TIMEOUT, _SHUTDOWN, _KILLED, _TOO_MANY),
}


def _told(error: pymysql.Error) -> tuple[int, str]:
    """The number of an error, and its first line."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    words = str(error.args[-1]) if error.args else type(error).__name__
    return number, (words.splitlines() or [type(error).__name__])[0]
