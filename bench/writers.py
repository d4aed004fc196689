"""Sessions that write to a database under load, for the judgement of its answers."""

import random
import threading
from abc import ABC, abstractmethod
from typing import Any

import pymysql

from tests.harness.mariadb import MariaDBDatabase
from tests.harness.postgres import PostgresDatabase

#: Sessions, and the keys of each.
WRITERS, KEYS = 8, 60
#: The first of the keys that rows are moved to, and of those of transactions that are prepared.
MOVED, APART = 100, 500


def first_key(writer: int) -> int:
    """The first key of a writer."""
    return 1000 * (writer + 1)


class Writer(ABC):
    """One session, with keys of its own."""

    def __init__(self, number: int) -> None:
        self._dice = random.Random(number)
        self._number = number
        self._first = first_key(number)
        self.transactions = 0

    @abstractmethod
    def _execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> None:
        """Executes a statement."""

    @abstractmethod
    def _close(self) -> None:
        """Ends the session."""

    def run(self, stopping: threading.Event, rate: float) -> None:
        """Writes until it is stopped, about so many transactions a second."""
        while not stopping.wait(self._dice.expovariate(rate)):
            self._transaction()
            self.transactions += 1
        self._close()

    def _transaction(self) -> None:
        self._execute("BEGIN")
        self._changes()
        self._execute(self._dice.choice(["COMMIT"] * 8 + ["ROLLBACK"]))

    def _changes(self, offset: int = 0) -> None:
        """Some changes; of some of them nothing is left."""
        for _ in range(self._dice.randint(1, 4)):
            self._change(offset)
        if self._dice.random() < 0.2:
            self._execute("SAVEPOINT s")
            self._change(offset)
            self._execute("ROLLBACK TO s")

    def _change(self, offset: int) -> None:
        """A change of a row, among the keys from this offset on."""
        key = self._first + self._dice.randrange(KEYS) + offset
        value, kind = self._dice.randint(0, 5), self._dice.random()
        if kind < 0.5:
            self._put(key, value)
        elif kind < 0.7:
            self._execute("DELETE FROM r WHERE id = %s", (key,))
        elif kind < 0.8 and not offset:
            self._move(key, self._first + MOVED + self._dice.randrange(KEYS))
        else:
            self._execute("UPDATE r SET x = x + 1 WHERE id = %s", (key,))

    @abstractmethod
    def _put(self, key: int, value: int) -> None:
        """Inserts a row, or changes the one that is there."""

    @abstractmethod
    def _move(self, key: int, other: int) -> None:
        """Gives a row another key, unless there is one with that key."""


class PostgresWriter(Writer):
    """Half of them commit asynchronously; some transactions are prepared and committed later."""

    def __init__(self, database: PostgresDatabase, number: int) -> None:
        super().__init__(number)
        self._connection = database.connected()
        if number % 2:
            self._execute("SET synchronous_commit = off")
        self._prepared: list[str] = []

    def _execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> None:
        self._connection.execute(statement, parameters or None)

    def _close(self) -> None:
        for name in self._prepared:
            self._execute(f"COMMIT PREPARED '{name}'")
        self._connection.close()

    def _transaction(self) -> None:
        if self._prepared and self._dice.random() < 0.5:
            self._execute(f"COMMIT PREPARED '{self._prepared.pop()}'")
        elif not self._prepared and self._dice.random() < 0.1:
            # It holds its keys until it is committed, so it has some of its own.
            self._execute("BEGIN")
            self._changes(APART)
            name = f"w{self._number}-{self.transactions}"
            self._execute(f"PREPARE TRANSACTION '{name}'")
            self._prepared.append(name)
        else:
            super()._transaction()

    def _put(self, key: int, value: int) -> None:
        self._execute(
            "INSERT INTO r VALUES (%s, %s, 'p') ON CONFLICT (id) DO UPDATE SET x = %s",
            (key, value, value),
        )

    def _move(self, key: int, other: int) -> None:
        self._execute(
            "UPDATE r SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM r WHERE id = %s)",
            (other, key, other),
        )


class MariaDBWriter(Writer):
    """Some rows are replaced, which may write the same values again."""

    def __init__(self, database: MariaDBDatabase, number: int) -> None:
        super().__init__(number)
        self._session = database.cursor()
        self._cursor = self._session.__enter__()
        self._execute("SET SESSION transaction_isolation = 'READ-COMMITTED'")

    def _execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> None:
        self._cursor.execute(statement, parameters or None)

    def _close(self) -> None:
        self._session.__exit__(None, None, None)

    def _put(self, key: int, value: int) -> None:
        if self._dice.random() < 0.3:
            self._execute("REPLACE INTO r VALUES (%s, %s, 'p')", (key, value))
        else:
            self._execute(
                "INSERT INTO r VALUES (%s, %s, 'p') ON DUPLICATE KEY UPDATE x = %s",
                (key, value, value),
            )

    def _move(self, key: int, other: int) -> None:
        try:
            self._execute("UPDATE r SET id = %s WHERE id = %s", (other, key))
        except pymysql.IntegrityError:
            self._execute("DELETE FROM r WHERE id = %s", (other,))
