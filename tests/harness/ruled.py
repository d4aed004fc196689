"""A PostgreSQL database with views that rules keep; the judge of them is the views' own text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import psycopg
from psycopg import sql

from infra.localpostgres import LocalPostgres
from protocols.errors import ViewRefused
from protocols.rules.script import installation
from protocols.rules.view import read_view
from protocols.views.catalog import Catalog
from sources.postgres.ruled import catalog
from sources.postgres.statements import PostgresStatements
from tests.cases.airline import AIRLINE
from tests.cases.ruledviews import random_statement, random_view

#: Creates the paper's relations in schema `air`.
AIRLINE_TABLES = "; ".join(
    (
        "CREATE SCHEMA air",
        "SET search_path = air",
        *PostgresStatements(AIRLINE, "air").tables(),
        "RESET search_path",
    )
)


@dataclass
class Ran:
    """The statements that have run."""

    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last: str = ""


class RuledDatabase:
    """One database; `views` maps the name of each view to its text."""

    def __init__(self, server: LocalPostgres, name: str, tables: str, catalog: Catalog) -> None:
        self.name, self.dsn = name, server.dsn(name)
        with psycopg.connect(server.dsn(), autocommit=True) as made:
            made.execute(sql.SQL(f"CREATE DATABASE {name}"))
        self.catalog = catalog
        self.connection = self.connected()
        self.execute(tables)
        self.views: dict[str, str] = {}

    def connected(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, statement: str) -> None:
        self.connection.execute(sql.SQL(statement))

    def install(self, name: str, text: str) -> None:
        self.execute(installation(read_view(name, text, self.catalog)))
        self.views[name] = text

    def read_catalog(self, *schemas: str) -> None:
        """Takes the relations and keys from the database."""
        self.catalog = catalog(self.connection, schemas)

    def told(self, story: Sequence[str], ran: "Ran") -> list[str]:
        """Runs a story; the views that were wrong after one of its statements, and then stops.

        A statement that the tables' constraints refuse ends the story.
        """
        for statement in story:
            ran.last = statement
            try:
                self.execute(statement)
            except (psycopg.IntegrityError, psycopg.errors.CardinalityViolation) as error:
                ran.refused[type(error).__name__] += 1
                self.connection.rollback()
                return self.wrong()
            ran.done += 1
            if wrong := self.wrong():
                self.connection.rollback()
                return wrong
        return []

    def close(self) -> None:
        self.connection.close()

    def wrong(self) -> list[str]:
        """The names of the views whose tables are not what their text gives."""
        if not self.views:
            return []
        tests = [_differs(name, text) for name, text in self.views.items()]
        found = self.connection.execute(sql.SQL(" UNION ALL ".join(tests)))
        return [name for (name,) in found]

    def rows(self, name: str) -> list[tuple[object, ...]]:
        return self.connection.execute(sql.SQL(f"TABLE viewsweep.{name}")).fetchall()


def _differs(name: str, text: str) -> str:
    kept = f"TABLE viewsweep.{name}"
    return (
        f"SELECT '{name}' WHERE EXISTS (({kept}) EXCEPT ALL ({text}))"
        f" OR EXISTS (({text}) EXCEPT ALL ({kept}))"
    )


def fresh_views(dice: Random, number: int, catalog: Catalog) -> Mapping[str, str]:
    """Random views for which rules can be derived."""
    found: dict[str, str] = {}
    while len(found) < number:
        text = random_view(dice)
        try:
            read_view("v", text, catalog)
        except ViewRefused:
            continue
        found[f"v{len(found)}"] = text
    return found


def stories(dice: Random, number: int) -> Iterator[Sequence[str]]:
    """Statements to be run one after the other, in pieces; some are transactions."""
    done = 0
    while done < number:
        some = [random_statement(dice) for _ in range(dice.randint(1, 4))]
        done += len(some)
        shape = dice.random()
        if shape < 0.7:
            yield from ([each] for each in some)
        elif shape < 0.85:
            yield ["BEGIN", *some, dice.choice(("COMMIT", "ROLLBACK"))]
        else:
            yield [
                "BEGIN",
                some[0],
                "SAVEPOINT here",
                *some[1:],
                "ROLLBACK TO here",
                *some[:1],
                "COMMIT",
            ]
