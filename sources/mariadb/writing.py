"""Writes a workload into a MariaDB database."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pymysql

from protocols.errors import Unreachable, WrongUse
from protocols.views.catalog import Catalog
from sources.debezium.statements import Statement
from sources.debezium.writing import DatabaseWriter
from sources.mariadb.connecting import address_in
from sources.mariadb.statements import MariaDBStatements

#: Errors from this number on are of the client: there is no connection.
_FROM_CLIENT = 2000


class MariaDBWriter(DatabaseWriter):
    """One session."""

    def __init__(self, source: str, catalog: Catalog, address: str) -> None:
        super().__init__(source, MariaDBStatements(catalog, source))
        place = address_in(address)
        with self._refusals():
            self._connection = pymysql.connect(
                host=place.host,
                port=place.port,
                user=place.user,
                password=place.password,
                database=place.database,
                ssl_ca=place.ssl_ca,
                autocommit=True,
            )

    def _execute(self, statements: Iterable[Statement]) -> None:
        with self._connection.cursor() as cursor:
            for statement, values in statements:
                cursor.execute(statement, values)

    def _insert(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            is_lost = isinstance(error, pymysql.InterfaceError) or error.args[0] >= _FROM_CLIENT
            kind = Unreachable if is_lost else WrongUse
            raise kind(f"source {self.source}: {error.args[-1]}") from None

    def close(self) -> None:
        """Ends the session."""
        self._connection.close()
