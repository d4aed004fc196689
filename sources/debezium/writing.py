"""Writes a workload into a real database, as its owner's applications would.

For demonstrations and measurements: the warehouse itself only reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import polars as pl

from sources.debezium.statements import Statement, Statements
from sources.transaction import RowChange, Transaction


class DatabaseWriter(ABC):
    """One session of one database; ViewsweepError if the database refuses something."""

    #: The number of transactions that were committed before.
    driven = 0

    def __init__(self, source: str, statements: Statements) -> None:
        self.source, self._statements = source, statements

    @abstractmethod
    def _execute(self, statements: Iterable[Statement]) -> None:
        """Executes statements, each of them a transaction or a part of one that began."""

    @abstractmethod
    def _insert(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Executes an INSERT for many rows."""

    @abstractmethod
    def _refusals(self) -> AbstractContextManager[None]:
        """Turns the database's errors into ours."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session."""

    def fill(self, rows: Mapping[str, pl.DataFrame]) -> None:
        """Creates the tables with these rows, and what Debezium needs."""
        with self._refusals():
            self._execute((statement, ()) for statement in self._statements.tables())
            for name, found in rows.items():
                if len(found):
                    statement, _ = self._statements.insertion(name, found.row(0))
                    self._execute([("BEGIN", ())])
                    self._insert(statement, found.iter_rows())
                    self._execute([("COMMIT", ())])
            self._execute((statement, ()) for statement in self._statements.prepare())

    def commit_many(self, transactions: Sequence[Transaction], *, driven: bool = False) -> int:
        """Commits transactions one by one; returns how many."""
        with self._refusals():
            self._execute(
                statement for each in transactions for statement in self._of(each.changes)
            )
        self.driven += len(transactions) if driven else 0
        return len(transactions)

    def _of(self, changes: Iterable[RowChange]) -> Iterator[Statement]:
        yield "BEGIN", ()
        yield from self._statements.changes(changes)
        yield "COMMIT", ()
