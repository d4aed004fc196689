"""The commits of a MariaDB database, from its binary log, decoded by a third-party library."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count as counting
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import MariadbGtidEvent, QueryEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from infra.localbroker import LOOPBACK
from protocols.views.catalog import Catalog, Relation

_numbers = counting(1000)
_ROWS = WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent
#: A transaction ends with one of them; other statements have the second alone.
_ENDS = XidEvent, QueryEvent
#: Relation, column → value, change of its count.
NamedChange = tuple[str, dict[str, Any], int]


@dataclass
class Logged:
    """One transaction: its number, the second of its commit, its changes."""

    number: int
    second: int
    changes: list[NamedChange] = field(default_factory=list)

    def net(self, catalog: Catalog) -> list[tuple[str, tuple[Any, ...], int]]:
        """Its changes, added up."""
        relations = {relation.name: relation for relation in catalog}
        counts: Counter[tuple[str, tuple[Any, ...]]] = Counter()
        for name, values, count in self.changes:
            counts[name, _row(relations[name], values)] += count
        return [(*row, count) for row, count in counts.items() if count]


def logged(port: int, database: str, but: str) -> list[Logged]:
    """The transactions that change a table of a database, all but this table."""
    return [each for each in _all(port, database, but) if each.changes]


def _all(port: int, database: str, but: str) -> Iterator[Logged]:
    login: dict[str, Any] = {"host": LOOPBACK, "port": port, "user": "root", "ssl_disabled": True}
    with closing(pymysql.connect(**login)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@gtid_binlog_pos")
        [[last]] = cursor.fetchall()
        # It begins with the first file. Without `blocking` the server disconnects, and the last
        # records may be lost on the way. With it, the server does not notice that nobody reads any
        # more.
        stream = BinLogStreamReader(
            connection_settings={**login, "password": ""},
            # The server disconnects a reader when another one comes with its number.
            server_id=next(_numbers),
            is_mariadb=True,
            blocking=True,
            only_events=[*_ROWS, *_ENDS, MariadbGtidEvent],
        )
        with closing(stream):
            yield from _transactions(stream, database, but, _number(last))
            cursor.execute(f"KILL {stream._stream_connection.thread_id()}")


def _transactions(stream: Any, database: str, but: str, last: int) -> Iterator[Logged]:
    """The transactions of a log up to this number."""
    now, file = Logged(0, 0), None
    for event in stream if last else ():
        if stream.log_file != file:
            # After a crash the numbers of tables begin again, and the file before says nothing.
            file, stream.table_map = stream.log_file, {}
        if isinstance(event, MariadbGtidEvent):
            yield now
            now = Logged(_number(event.gtid), event.timestamp)
        elif isinstance(event, _ENDS):
            if now.number == last:
                break
        elif event.schema == database and event.table != but:
            now.changes += _changes(event)
    yield now


def _number(gtid: str) -> int:
    return int(gtid.rpartition("-")[2] or 0)


def _changes(event: Any) -> Iterator[NamedChange]:
    for row in event.rows:
        if "values" in row:
            yield event.table, row["values"], 1 if isinstance(event, WriteRowsEvent) else -1
        else:
            yield event.table, row["before_values"], -1
            yield event.table, row["after_values"], 1


def _row(relation: Relation, values: dict[str, Any]) -> tuple[Any, ...]:
    found = []
    for name, type_ in relation.columns:
        # A column that was dropped since the test began has no value.
        value = values.get(name)
        # A bit comes as a text of digits.
        found.append(value == "1" if type_.name == "BOOLEAN" and value is not None else value)
    return tuple(found)
