"""Finds what a MariaDB database lacks to be a source, and the statement that mends it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pymysql.cursors import Cursor

from sources.debezium.lack import Lack, of_left_out
from sources.mariadb.describing import describe

_OLDEST = 10, 6
#: Variable of the server → the value that it has to have.
_VARIABLES: Mapping[str, str] = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
}
#: The log of so many days survives a connector that stands still over a weekend.
_DAYS = 3
_MARKS = """
SELECT count(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""


def examine(cursor: Cursor, source: str, database: str, marks: str) -> Iterator[Lack]:
    """Finds what is missing; any login may ask for it."""
    yield from _server(cursor)
    yield from _marks(cursor, database, marks)
    left_out = describe(cursor, source, database, marks).left_out
    yield from (of_left_out(*each) for each in left_out.items())
    yield from _prepared(cursor)


def _server(cursor: Cursor) -> Iterator[Lack]:
    version = str(_one(cursor, "SELECT version()"))
    if "MariaDB" not in version:
        yield Lack(
            f"the server is {version}, and not MariaDB",
            "MySQL is not tested: its commits may become visible in an order different from that of"
            " its log",
        )
        return
    number = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
    if number < _OLDEST:
        yield Lack(f"the server is version {version}", "upgrade it to 10.6 or newer")
    for name, value in _VARIABLES.items():
        found = _shown(cursor, name)
        if found != value:
            yield Lack(
                f"{name} is {found}",
                f"put {name} = {value} under [mariadbd] in the server's configuration, then restart"
                " the server",
            )
    if _shown(cursor, "innodb_flush_log_at_trx_commit") == "0":
        yield Lack(
            "a commit may be in the binary log and not in the tables after a crash of the server",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        )
    kept = int(_shown(cursor, "binlog_expire_logs_seconds") or 0)
    if 0 < kept < _DAYS * 24 * 3600:
        yield Lack(
            f"the binary log is kept for {kept} s: a connector that is stopped for longer loses"
            " changes",
            f"SET GLOBAL binlog_expire_logs_seconds = {_DAYS * 24 * 3600}",
        )
    position = _shown(cursor, "gtid_binlog_pos")
    if "," in position:
        yield Lack(
            f"the log has several GTID domains ({position}), between which there is no order",
            "let all writers use one: SET GLOBAL gtid_domain_id = 0",
        )


def _marks(cursor: Cursor, database: str, marks: str) -> Iterator[Lack]:
    cursor.execute(_MARKS, (database, marks))
    [[found]] = cursor.fetchall()
    if not found:
        user = _one(cursor, "SELECT current_user()")
        yield Lack(
            f"there is no table {marks}, in which questions leave their marks, or the login is not"
            " allowed to see it",
            f"CREATE TABLE {database}.{marks} (id INT PRIMARY KEY, n BIGINT NOT NULL); GRANT"
            f" SELECT, INSERT, UPDATE ON {database}.{marks} TO {user}",
        )


def _prepared(cursor: Cursor) -> Iterator[Lack]:
    cursor.execute("XA RECOVER")
    prepared = cursor.fetchall()
    if prepared:
        yield Lack(
            f"{len(prepared)} XA transactions are prepared, and the log will not show whether they"
            " are committed or rolled back",
            "XA COMMIT or XA ROLLBACK them, and let no writer use XA",
        )


def _shown(cursor: Cursor, name: str) -> str:
    """The value of a variable of the server; empty if it has none of that name."""
    cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", (name,))
    rows = cursor.fetchall()
    return str(rows[0][1]) if rows else ""


def _one(cursor: Cursor, statement: str) -> Any:
    cursor.execute(statement)
    [[value]] = cursor.fetchall()
    return value
