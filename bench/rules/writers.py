"""Sessions that change the tables of views at the same time.

Each session runs transactions of random statements, one in five of them under REPEATABLE READ, and
repeats those that deadlock or cannot be serialized. At quiet points all of them pause, and the
tables of the views have to be what the views' text gives.
"""

import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Annotated
from unittest import mock

import psycopg
import typer
from psycopg import sql
from rich.console import Console

from bench.rules.campaign import SETTINGS
from infra.localpostgres import LocalPostgres
from protocols.rules import functions
from tests.cases.ruledviews import CATALOG, TABLES, random_statement
from tests.harness.ruled import RuledDatabase, fresh_views

#: The sessions pause at least so often.
_QUIET_SECONDS = 20.0
_VIEWS = 6
_REPEATED = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_REFUSED = (psycopg.IntegrityError, psycopg.errors.CardinalityViolation)


@dataclass
class Writing:
    """The sessions' common state."""

    database: RuledDatabase
    #: Held by each session during a transaction; whoever holds all of it has quiet.
    gate: threading.Semaphore
    #: Whether transactions may begin.
    going: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    done: Counter[str] = field(default_factory=Counter)
    failed: list[BaseException] = field(default_factory=list)


def writers(
    minutes: Annotated[float, typer.Option(min=0.05, help="How long they write.")] = 10.0,
    writers: Annotated[int, typer.Option(min=2, help="Sessions that write.")] = 8,
    seed: Annotated[int, typer.Option(help="The seed of views and statements.")] = 1,
    without_turns: Annotated[
        bool, typer.Option("--without-turns", help="The control: transactions do not take turns.")
    ] = False,
) -> None:
    """Write from several sessions; exit code 1 if a view is wrong at a quiet point."""
    taking = functions._take_turn
    turns = (lambda _: "") if without_turns else taking
    settings = {**SETTINGS, "deadlock_timeout": "50ms"}
    with LocalPostgres(settings) as server, mock.patch.object(functions, "_take_turn", turns):
        database = RuledDatabase(server, "written", TABLES, CATALOG)
        for name, text in fresh_views(Random(seed), _VIEWS, CATALOG).items():
            database.install(name, text)
        writing = Writing(database, threading.Semaphore(writers))
        threads = [
            threading.Thread(target=_session, args=(writing, Random(seed * 1000 + number)))
            for number in range(writers)
        ]
        writing.going.set()
        for each in threads:
            each.start()
        try:
            bad, points = _refereed(writing, writers, minutes * 60)
        finally:
            writing.stopping.set()
            for each in threads:
                each.join()
        wrong = database.wrong()
        database.close()
    if writing.failed:
        raise writing.failed[0]
    counted = ", ".join(f"{number:,} {what}" for what, number in sorted(writing.done.items()))
    print(f"{writers} sessions, {minutes:g} minutes: {counted}")
    print(f"{points} quiet points, {bad} wrong; at the end: {', '.join(wrong) or 'right'}")
    if bad or wrong:
        sys.exit(1)


def _refereed(writing: Writing, writers: int, seconds: float) -> tuple[int, int]:
    """The quiet points at which a view was wrong, and all of them."""
    bad = points = 0
    end, pause = time.monotonic() + seconds, min(_QUIET_SECONDS, seconds / 4)
    while time.monotonic() < end and not writing.failed:
        time.sleep(pause)
        writing.going.clear()
        for _ in range(writers):
            writing.gate.acquire()
        wrong = writing.database.wrong()
        writing.database.execute("VACUUM ANALYZE")
        for _ in range(writers):
            writing.gate.release()
        writing.going.set()
        points, bad = points + 1, bad + bool(wrong)
        Console(stderr=True).print(
            f"quiet point {points}: {dict(writing.done)}; wrong: {wrong or 'none'}", highlight=False
        )
    return bad, points


def _session(writing: Writing, dice: Random) -> None:
    try:
        with writing.database.connected() as connection:
            while not writing.stopping.is_set():
                level = "REPEATABLE READ" if dice.random() < 0.2 else "READ COMMITTED"
                some = [random_statement(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
                writing.going.wait()
                with writing.gate:
                    outcome = _transaction(connection, level, some)
                writing.done[outcome] += 1
    except BaseException as error:
        writing.failed.append(error)


def _transaction(connection: psycopg.Connection, level: str, some: list[str]) -> str:
    try:
        connection.execute(sql.SQL(f"BEGIN ISOLATION LEVEL {level}"))
        for each in some:
            connection.execute(sql.SQL(each))
        connection.execute("COMMIT")
    except _REPEATED as error:
        connection.rollback()
        return f"to be repeated ({type(error).__name__})"
    except _REFUSED:
        connection.rollback()
        return "refused by constraints"
    return "committed"
