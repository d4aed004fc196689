"""Finds what a PostgreSQL database and its connector lack, and the statement that mends it."""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
from psycopg import sql

from sources.debezium.lack import Lack, of_fault, of_left_out
from sources.postgres.describing import Published, describe

_OLDEST = 130_000
_MEGABYTE = 2**20
#: More of the log that a slot holds back is worth a word.
_BEHIND = 512 * _MEGABYTE
_LONG_SECONDS = 60
_UNREAD = """
SELECT t.relname FROM pg_class t JOIN pg_namespace s ON s.oid = t.relnamespace
WHERE s.nspname = %s AND t.relkind IN ('r', 'p') AND NOT has_table_privilege(t.oid, 'SELECT')
ORDER BY t.relname
"""
_SLOT = """
SELECT active, wal_status, pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots
WHERE slot_name = %s AND database = current_database()
"""
_RUNNING = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_xid IS NOT NULL AND now() - xact_start > make_interval(secs => %s)
"""
_PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()"


def examine(
    cursor: psycopg.Cursor, source: str, schema: str, publication: str, slot: str
) -> Iterator[Lack]:
    """Finds what the database lacks to be a source; any login may ask for it."""
    described = describe(cursor, source, schema, publication)
    fault = Published(cursor, schema, publication).fault
    yield from _server(cursor)
    if fault is not None:
        yield of_fault(fault)
    others = {what: reason for what, reason in described.left_out.items() if reason != fault}
    yield from _tables(cursor, schema, others)
    yield from _slot(cursor, slot)
    yield from _transactions(cursor)


def _server(cursor: psycopg.Cursor) -> Iterator[Lack]:
    version, level = _one(
        cursor, "SELECT current_setting('server_version_num')::int, current_setting('wal_level')"
    )
    if version < _OLDEST:
        yield Lack(f"the server is version {version // 10_000}", "upgrade it to 13 or newer")
    if level != "logical":
        yield Lack(
            f"wal_level is {level}",
            "ALTER SYSTEM SET wal_level = logical, then restart the server",
        )
    function = "pg_logical_emit_message(boolean, text, text)"
    [may] = _one(cursor, "SELECT has_function_privilege(%s, 'EXECUTE')", function)
    if not may:
        yield Lack(
            "the login is not allowed to write messages into the log",
            f"GRANT EXECUTE ON FUNCTION {function} TO {_name(cursor)}",
        )


def _tables(cursor: psycopg.Cursor, schema: str, left_out: Mapping[str, str]) -> Iterator[Lack]:
    for (table,) in cursor.execute(_UNREAD, (schema,)).fetchall():
        yield Lack(
            f"the login is not allowed to read table {schema}.{table}",
            f"GRANT SELECT ON {schema}.{table} TO {_name(cursor)}",
            table,
        )
    yield from (of_left_out(*each) for each in left_out.items())


def _slot(cursor: psycopg.Cursor, name: str) -> Iterator[Lack]:
    found = cursor.execute(_SLOT, (name,)).fetchone()
    if found is None:
        yield Lack(
            f"there is no replication slot {name}",
            "start the connector, which creates it; if its task fails, its login may lack the"
            " right: CREATE ROLE debezium LOGIN REPLICATION PASSWORD '…'",
        )
        return
    active, status, behind = found
    if status == "lost":
        yield Lack(
            f"slot {name} has lost a part of the log",
            f"SELECT pg_drop_replication_slot('{name}'), restart the connector, recreate the views",
        )
    elif not active:
        yield Lack(
            f"nothing is reading from slot {name}",
            "start the connector, or its task if that failed",
        )
    elif behind > _BEHIND:
        yield Lack(
            f"slot {name} is {int(behind) // _MEGABYTE:,} MB behind",
            "look at the connector's load; until it has caught up, answers wait for it",
        )


def _transactions(cursor: psycopg.Cursor) -> Iterator[Lack]:
    [running] = _one(cursor, _RUNNING, _LONG_SECONDS)
    if running:
        yield Lack(
            f"{running} transactions have been running for more than {_LONG_SECONDS} s",
            "a job cannot begin until they have ended: SELECT pid, query FROM pg_stat_activity"
            " WHERE backend_xid IS NOT NULL",
        )
    [prepared] = _one(cursor, _PREPARED)
    if prepared:
        yield Lack(
            f"{prepared} prepared transactions wait for their COMMIT",
            "a job cannot begin until they have ended: SELECT gid FROM pg_prepared_xacts, then"
            " COMMIT PREPARED or ROLLBACK PREPARED",
        )


def _one(cursor: psycopg.Cursor, statement: str, *parameters: Any) -> tuple[Any, ...]:
    row = cursor.execute(sql.SQL(statement), parameters).fetchone()
    assert row is not None
    return tuple(row)


def _name(cursor: psycopg.Cursor) -> str:
    [name] = _one(cursor, "SELECT current_user")
    return str(name)
