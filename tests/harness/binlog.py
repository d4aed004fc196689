"""The commits of a MariaDB database, from its binary log, decoded by a third-party library."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count as counting
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import MariadbGtidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from infra.localbroker import LOOPBACK
from protocols.views.catalog import Catalog, Relation

_numbers = counting(1000)
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
    now = Logged(0, 0)
    with closing(pymysql.connect(**login)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        for file, end in cursor.fetchall():
            # Without `blocking` the server disconnects, and the last records may be lost on the
            # way. With it, the server does not notice that nobody reads any more.
            stream = BinLogStreamReader(
                connection_settings={**login, "password": ""},
                # The server disconnects a reader when another one comes with its number.
                server_id=next(_numbers),
                is_mariadb=True,
                log_file=file,
                log_pos=4,
                end_log_pos=end,
                blocking=True,
                resume_stream=True,
                only_events=[MariadbGtidEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
            )
            with closing(stream):
                for event in stream:
                    if stream.log_file != file:
                        # A file that a crash has ended is shorter than it is said to be.
                        break
                    if isinstance(event, MariadbGtidEvent):
                        yield now
                        now = Logged(int(event.gtid.rpartition("-")[2]), event.timestamp)
                    elif event.schema == database and event.table != but:
                        now.changes += _changes(event)
                cursor.execute(f"KILL {stream._stream_connection.thread_id()}")
    yield now


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
