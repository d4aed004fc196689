"""Judges the answers of a real database while eight sessions write, by the database's own log.

    python -m bench.answers [--database postgres] [--answers 20000] [--seconds 600] [--rate 200]

The sessions insert, modify and delete rows, change keys, roll back to savepoints and altogether; at
PostgreSQL they also prepare transactions and commit them later, and half of them commit
asynchronously. Four clients ask for rows by keys. Each answer has to be exactly the rows that the
transactions in its inclusion have made, by the log as pgoutput or the binary log shows it: of a
window, for each key that nobody touched in it. The last lines say how many answers would have been
wrong by rules that look as good. Exit code 1 if an answer is wrong, or if no such rule was.
"""

import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import polars as pl
import typer

from bench.writers import APART, KEYS, MOVED, WRITERS, MariaDBWriter, PostgresWriter, first_key
from infra.localbroker import LocalBroker
from infra.localmariadb import LocalMariaDB
from infra.localpostgres import LocalPostgres
from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.exchange.inclusion import Inclusion, Prefix, Window
from protocols.exchange.questions import Query
from protocols.views.catalog import Relation
from sources.debezium.source import DebeziumSource
from sources.kafka import Kafka
from sources.postgres.source import PostgresSource
from sources.topics import ends_of
from streaming.intake.factory import opened
from streaming.settings.configuration import read_configuration
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld, RealDatabase

_CLIENTS = 4
#: The keys of a question.
_ASKED = 12
_REPORT_EVERY = 10.0
_MARK_SECONDS = 30.0
Row: TypeAlias = tuple[Any, ...]
#: A rule, and what the rows would be by it.
Rules: TypeAlias = Mapping[str, Callable[["Committed", "Answered"], Counter[Row]]]


@dataclass(frozen=True)
class Answered:
    """An answer: the keys asked for, the rows, and what it says it contains."""

    keys: frozenset[int]
    rows: Counter[Row]
    inclusion: Inclusion
    #: The version of a mark that came before the question.
    marked: int


def _ask(
    source: DebeziumSource, relation: Relation, number: int, told: list[Answered], enough: Any
) -> None:
    """Asks for random keys of all writers until there are enough answers."""
    dice = random.Random(100 + number)
    while not enough():
        keys = [
            first_key(dice.randrange(WRITERS))
            + dice.choice([0, MOVED, APART])
            + dice.randrange(KEYS)
            for _ in range(_ASKED)
        ]
        wanted = Frame(pl.DataFrame({"id": keys}).unique().with_columns(pl.lit(1).alias(COUNT)))
        marked = _marked(source)
        answer = source.ask(Query(relation, relation.column_names, None, (wanted,)))
        rows = Counter(answer.rows.data.select(*relation.column_names).iter_rows())
        told.append(Answered(frozenset(keys), rows, answer.inclusion, marked()))


def _marked(source: DebeziumSource) -> Callable[[], int]:
    """Commits a mark just before a question; its version, later. At PostgreSQL only."""
    if not isinstance(source, PostgresSource):
        return lambda: 0
    numbers = source._numbers
    with source._connections.snapshot() as (_, snapshot):
        numbers.expect(snapshot.message)
    return lambda: numbers.passed(snapshot.message, _MARK_SECONDS).version


class Committed:
    """The commits of the database, by key, with the versions that the source has given."""

    def __init__(self, database: RealDatabase) -> None:
        self._changes: dict[int, list[tuple[int, Row, int]]] = defaultdict(list)
        for version, relation, row, count in database.history:
            if relation == "r":
                self._changes[row[0]].append((version, row, count))

    def rows(self, keys: frozenset[int], contained: Callable[[int], bool]) -> Counter[Row]:
        """The rows with these keys that the contained versions have made."""
        held: Counter[Row] = Counter()
        for key in keys:
            for version, row, count in self._changes[key]:
                if version == 0 or contained(version):
                    held[row] += count
        return Counter({row: count for row, count in held.items() if count})

    def upto(self, keys: frozenset[int], version: int) -> Counter[Row]:
        """The rows with these keys at a version."""
        return self.rows(keys, lambda each: each <= version)

    def untouched(self, keys: frozenset[int], window: Window) -> frozenset[int]:
        """The keys that no transaction in a window has touched."""
        inside = range(window.low + 1, window.high + 1)
        return frozenset(
            key for key in keys if not any(each[0] in inside for each in self._changes[key])
        )


def _is_right(log: Committed, each: Answered) -> bool:
    """Whether an answer is what the transactions that it says it contains have made."""
    if isinstance(each.inclusion, Prefix):
        return each.rows == log.rows(each.keys, each.inclusion.contains)
    keys = log.untouched(each.keys, each.inclusion)
    rows = Counter({row: count for row, count in each.rows.items() if row[0] in keys})
    return rows == log.upto(keys, each.inclusion.high)


def _first_exception(inclusion: Inclusion) -> int:
    assert isinstance(inclusion, Prefix)
    return min(inclusion.without, default=inclusion.upto + 1)


def _by_window(log: Committed, each: Answered) -> Counter[Row]:
    """The rows if those whose keys nobody touched between two marks were those at the second."""
    window = Window(each.marked, each.inclusion.version)
    untouched = log.untouched(each.keys, window)
    touched = Counter({row: n for row, n in each.rows.items() if row[0] not in untouched})
    return touched + log.upto(untouched, window.high)


def _low(inclusion: Inclusion) -> int:
    assert isinstance(inclusion, Window)
    return inclusion.low


#: Kind of database → rules that look as good.
_WRONG: Mapping[str, Rules] = {
    "postgres": {
        "it is all before the message": lambda log, a: log.upto(a.keys, a.inclusion.version),
        "it is all before the first exception": lambda log, a: log.upto(
            a.keys, _first_exception(a.inclusion) - 1
        ),
        "it is a window between two marks, as at MariaDB": _by_window,
    },
    "mariadb": {
        "it is all before the second mark": lambda log, a: log.upto(a.keys, a.inclusion.version),
        "it is all before the first mark": lambda log, a: log.upto(a.keys, _low(a.inclusion)),
    },
}


def main(
    database: Annotated[
        Literal["postgres", "mariadb"], typer.Option(help="The kind of database.")
    ] = "postgres",
    answers: Annotated[int, typer.Option(min=1, help="Answers to judge.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=1, help="The most time for asking.")] = 600.0,
    rate: Annotated[float, typer.Option(min=1, help="Transactions a second, altogether.")] = 200.0,
) -> None:
    """Ask a database under load, and judge every answer."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-answers-"))
    with (
        LocalBroker() as broker,
        LocalPostgres() if database == "postgres" else LocalMariaDB() as server,
        DatabaseWorld(directory, broker.bootstrap, "answers", KEYED).on(server) as world,
    ):
        world.publish()
        world.number_from_here()
        told = _told(world, database, answers, seconds, rate)
        world.wait_until_published()
        sys.exit(_judged(Committed(world.databases["a"]), told, _WRONG[database]))


def _told(
    world: DatabaseWorld, kind: str, answers: int, seconds: float, rate: float
) -> list[Answered]:
    database = world.databases["a"]
    settings = read_configuration(world.write_configuration()).sources["a"]
    source = opened(settings, 256, 30.0)
    assert isinstance(source, DebeziumSource)
    kafka = Kafka(database.bootstrap)
    source.begin(kafka, ends_of(kafka, {"": [database.topic]})[""], None)
    relation = source.describe().relations["r"]
    told: list[Answered] = []
    of_kind: Any = PostgresWriter if kind == "postgres" else MariaDBWriter
    writers = [of_kind(database, number) for number in range(WRITERS)]
    stopping, until = threading.Event(), time.monotonic() + seconds

    def enough() -> bool:
        return len(told) >= answers or time.monotonic() > until or stopping.is_set()

    with ThreadPoolExecutor(WRITERS + _CLIENTS) as threads:
        writing = [threads.submit(writer.run, stopping, rate / WRITERS) for writer in writers]
        asking = [
            threads.submit(_ask, source, relation, number, told, enough)
            for number in range(_CLIENTS)
        ]
        try:
            while not all(each.done() for each in asking):
                time.sleep(min(_REPORT_EVERY, seconds))
                print(
                    f"{len(told):,} answers, {sum(w.transactions for w in writers):,} transactions",
                    flush=True,
                )
        finally:
            stopping.set()
        for each in (*asking, *writing):
            each.result()
    source.close()
    return told


def _judged(log: Committed, told: list[Answered], rules: Rules) -> int:
    """Prints what is wrong; the exit code."""
    wrong = sum(not _is_right(log, each) for each in told)
    plain = [(Prefix(v), Window(v, v)) for v in (each.inclusion.version for each in told)]
    odd = sum(each.inclusion not in pair for each, pair in zip(told, plain, strict=True))
    print(f"{len(told):,} answers, {odd:,} of no single version; wrong: {wrong}")
    missed = False
    for rule, rows in rules.items():
        found = sum(each.rows != rows(log, each) for each in told)
        missed |= not found
        print(f"  wrong if {rule}: {found:,}")
    return int(wrong > 0 or missed)


if __name__ == "__main__":
    typer.run(main)
