"""Writes a workload into a PostgreSQL database."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from protocols.errors import Unreachable, WrongUse
from protocols.views.catalog import Catalog
from sources.debezium.statements import Statement
from sources.debezium.writing import DatabaseWriter
from sources.postgres.statements import PostgresStatements


class PostgresWriter(DatabaseWriter):
    """One session; the statements of a group go out without waiting for each answer."""

    def __init__(self, source: str, catalog: Catalog, address: str) -> None:
        super().__init__(source, PostgresStatements(catalog, source))
        with self._refusals():
            self._connection = psycopg.connect(address, autocommit=True)

    def _execute(self, statements: Iterable[Statement]) -> None:
        with self._connection.pipeline(), self._connection.cursor() as cursor:
            for statement, values in statements:
                cursor.execute(sql.SQL(statement), values)

    def _insert(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(sql.SQL(statement), rows)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except psycopg.OperationalError as error:
            raise Unreachable(f"source {self.source}: {error}") from None
        except psycopg.Error as error:
            raise WrongUse(f"source {self.source}: {error}") from None

    def close(self) -> None:
        """Ends the session."""
        self._connection.close()
