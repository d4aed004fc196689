"""A PostgreSQL database that keeps views by rules: reads its tables, runs scripts, compares.

An address may hold a password, so no message repeats one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from protocols.errors import Unreachable, WrongUse
from protocols.views.catalog import Catalog
from sources.postgres.describing import describe

_SECONDS = 10


@contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection]:
    """A connection in which each statement is a transaction; errors become messages."""
    try:
        address = make_conninfo(dsn, connect_timeout=_SECONDS, application_name="viewsweep rules")
    except psycopg.ProgrammingError:
        raise WrongUse(
            "the address of the database cannot be read; write it as"
            " postgresql://USER@HOST:PORT/DATABASE, with % before the code of special characters,"
            " and put the password into PGPASSWORD or ~/.pgpass"
        ) from None
    secret = str(conninfo_to_dict(address).get("password") or "")
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            yield connection
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise Unreachable(f"the database does not answer: {_told(error, secret)}") from None
    except psycopg.Error as error:
        raise WrongUse(f"the database refuses: {_told(error, secret)}") from None


def catalog(connection: psycopg.Connection, schemas: Sequence[str]) -> Catalog:
    """The tables of these schemas as relations `schema.table`, with all their keys."""
    with connection.cursor() as cursor:
        found = [describe(cursor, each, each, publication=None) for each in schemas]
    return Catalog(tuple(relation for each in found for relation in each.relations.values()))


def run(connection: psycopg.Connection, script: str) -> None:
    """Runs a script of several statements; nothing of it stays if one fails."""
    connection.execute(sql.SQL(script))


def rows(connection: psycopg.Connection, query: str, most: int) -> list[tuple[Any, ...]]:
    """The first rows of a query, and one more if there are more."""
    return connection.execute(sql.SQL(query)).fetchmany(most + 1)


def _told(error: psycopg.Error, secret: str) -> str:
    """The first lines of what the database says: the error, and the way out if it knows one."""
    parts = [error.diag.message_primary, error.diag.message_detail, error.diag.message_hint]
    told = ". ".join(part.rstrip(".") for part in parts if part) or str(error).partition("\n")[0]
    return told.replace(secret, "***") if secret else told
