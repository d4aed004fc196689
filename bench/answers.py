"""Judges PostgreSQL's answers while eight sessions write, by the database's own log.

    python -m bench.answers [--answers 20000] [--seconds 600] [--rate 200]

The sessions insert, modify and delete rows, change keys, roll back to savepoints and altogether,
prepare transactions and commit them later, and half of them commit asynchronously. Four clients ask
for rows by keys. Each answer has to be exactly the rows that the transactions in its inclusion have
made, by the log as pgoutput shows it. The last lines say how many answers would have been wrong by
rules that look as good: everything before the message, or none of the exceptions in the topic's
order. Exit code 1 if an answer is wrong, or if no rule was.
"""

import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.exchange.inclusion import Prefix
from protocols.exchange.questions import Query
from protocols.views.catalog import Relation
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.source import PostgresSource
from sources.topics import ends_of
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.postgres import PostgresDatabase

_WRITERS, _CLIENTS = 8, 4
#: The keys of each writer, and those of a question.
_KEYS, _ASKED = 60, 12
_REPORT_EVERY = 10.0
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Answered:
    """An answer: the keys asked for, the rows, and what it says it contains."""

    keys: frozenset[int]
    rows: Counter[Row]
    inclusion: Prefix


class Writer:
    """One session, with keys of its own."""

    def __init__(self, database: PostgresDatabase, number: int) -> None:
        self._dice = random.Random(number)
        self._number = number
        self._first = 1000 * (number + 1)
        self._connection = database.connected()
        if number % 2:
            self._connection.execute("SET synchronous_commit = off")
        self._prepared: list[str] = []
        self.transactions = 0

    def run(self, stopping: threading.Event, rate: float) -> None:
        """Writes until it is stopped, about so many transactions a second."""
        with self._connection:
            while not stopping.wait(self._dice.expovariate(rate)):
                self._transaction()
                self.transactions += 1
            for name in self._prepared:
                self._connection.execute(f"COMMIT PREPARED '{name}'")

    def _transaction(self) -> None:
        if self._prepared and self._dice.random() < 0.5:
            self._connection.execute(f"COMMIT PREPARED '{self._prepared.pop()}'")
            return
        # A prepared transaction holds its keys until it is committed.
        end = self._dice.choice(["COMMIT"] * 8 + ["ROLLBACK", "PREPARE"])
        if end == "PREPARE" and self._prepared:
            end = "COMMIT"
        self._connection.execute("BEGIN")
        for _ in range(self._dice.randint(1, 4)):
            self._change(end == "PREPARE")
        if self._dice.random() < 0.2:
            self._connection.execute("SAVEPOINT s")
            self._change(end == "PREPARE")
            self._connection.execute("ROLLBACK TO s")
        if end == "PREPARE":
            name = f"w{self._number}-{self.transactions}"
            self._connection.execute(f"PREPARE TRANSACTION '{name}'")
            self._prepared.append(name)
        else:
            self._connection.execute(end)

    def _change(self, apart: bool) -> None:
        """A change of a row; of keys that no other transaction touches, if it is to be prepared."""
        key = self._first + self._dice.randrange(_KEYS) + (500 if apart else 0)
        value, kind = self._dice.randint(0, 5), self._dice.random()
        if kind < 0.5:
            statement = "INSERT INTO r VALUES (%s, %s, 'p') ON CONFLICT (id) DO UPDATE SET x = %s"
            self._connection.execute(statement, (key, value, value))
        elif kind < 0.7:
            self._connection.execute("DELETE FROM r WHERE id = %s", (key,))
        elif kind < 0.8 and not apart:
            other = self._first + 100 + self._dice.randrange(_KEYS)
            statement = (
                "UPDATE r SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM r WHERE id = %s)"
            )
            self._connection.execute(statement, (other, key, other))
        else:
            self._connection.execute("UPDATE r SET x = x + 1 WHERE id = %s", (key,))


def _ask(
    source: PostgresSource, relation: Relation, number: int, told: list[Answered], enough: Any
) -> None:
    """Asks for random keys of all writers until there are enough answers."""
    dice = random.Random(100 + number)
    while not enough():
        keys = [
            1000 * dice.randint(1, _WRITERS) + dice.choice([0, 100, 500]) + dice.randrange(_KEYS)
            for _ in range(_ASKED)
        ]
        wanted = Frame(pl.DataFrame({"id": keys}).unique().with_columns(pl.lit(1).alias(COUNT)))
        answer = source.ask(Query(relation, relation.column_names, None, (wanted,)))
        assert isinstance(answer.inclusion, Prefix)
        rows = Counter(answer.rows.data.select(*relation.column_names).iter_rows())
        told.append(Answered(frozenset(keys), rows, answer.inclusion))


class Committed:
    """The commits of the database, by key, with the versions that the source has given."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._changes: dict[int, list[tuple[int, Row, int]]] = defaultdict(list)
        for version, relation, row, count in database.history:
            if relation == "r":
                self._changes[row[0]].append((version, row, count))

    def rows(self, keys: frozenset[int], contained: Any) -> Counter[Row]:
        """The rows with these keys that the contained versions have made."""
        held: Counter[Row] = Counter()
        for key in keys:
            for version, row, count in self._changes[key]:
                if version == 0 or contained(version):
                    held[row] += count
        return Counter({row: count for row, count in held.items() if count})


def main(
    answers: Annotated[int, typer.Option(min=1, help="Answers to judge.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=1, help="The most time for asking.")] = 600.0,
    rate: Annotated[float, typer.Option(min=1, help="Transactions a second, altogether.")] = 200.0,
) -> None:
    """Ask a PostgreSQL database under load, and judge every answer."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-answers-"))
    with (
        LocalBroker() as broker,
        LocalPostgres() as server,
        DatabaseWorld(directory, broker.bootstrap, "answers", KEYED).on(server) as world,
    ):
        world.publish()
        world.number_from_here()
        database = world.databases["a"]
        told = _told(database, answers, seconds, rate)
        world.wait_until_published()
        sys.exit(_judged(Committed(database), told))


def _told(database: PostgresDatabase, answers: int, seconds: float, rate: float) -> list[Answered]:
    connections = DatabaseConnections(database.name, database.address, 30.0)
    source = PostgresSource(database.name, [database.topic], connections, "public", 30.0)
    ends = ends_of(database.bootstrap, {"": [database.topic]})[""]
    source.begin(database.bootstrap, ends, None)
    relation = source.describe().relations["r"]
    told: list[Answered] = []
    writers = [Writer(database, number) for number in range(_WRITERS)]
    stopping, until = threading.Event(), time.monotonic() + seconds

    def enough() -> bool:
        return len(told) >= answers or time.monotonic() > until or stopping.is_set()

    with ThreadPoolExecutor(_WRITERS + _CLIENTS) as threads:
        writing = [threads.submit(writer.run, stopping, rate / _WRITERS) for writer in writers]
        asking = [
            threads.submit(_ask, source, relation, number, told, enough)
            for number in range(_CLIENTS)
        ]
        try:
            while not all(each.done() for each in asking):
                time.sleep(min(_REPORT_EVERY, seconds))
                print(
                    f"{len(told):,} answers, {sum(w.transactions for w in writers):,} transactions"
                )
        finally:
            stopping.set()
        for each in (*asking, *writing):
            each.result()
    source.close()
    return told


def _judged(log: Committed, told: list[Answered]) -> int:
    """Prints what is wrong; the exit code."""
    wrong = sum(each.rows != log.rows(each.keys, each.inclusion.contains) for each in told)
    odd = sum(bool(each.inclusion.without) for each in told)
    plain = sum(each.rows != log.rows(each.keys, _upto(each.inclusion.upto)) for each in told)
    first = sum(
        each.rows != log.rows(each.keys, _upto(min(each.inclusion.without, default=1 << 62) - 1))
        for each in told
    )
    print(f"{len(told):,} answers, {odd:,} with exceptions; wrong: {wrong}")
    print(f"  wrong if it is all before the message: {plain}")
    print(f"  wrong if it is all before the first exception: {first}")
    return int(wrong > 0 or not plain)


def _upto(last: int) -> Any:
    return lambda version: version <= last


if __name__ == "__main__":
    typer.run(main)
