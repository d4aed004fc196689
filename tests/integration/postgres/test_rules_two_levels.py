"""Two levels: three databases, in each a part that rules keep, and SWEEP over the parts.

The parts are published by Debezium from schema `viewsweep`. The truth about them is each database's
log; the truth about the whole is DuckDB over the tables from which the parts are made.
"""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
import pytest
from psycopg import sql

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from protocols.rules.script import installation
from protocols.rules.view import read_view
from sources.postgres.ruled import catalog
from tests.cases.stories import KEYED, Change
from tests.harness import databases
from tests.harness.databases import DatabaseWorld, while_they_write
from tests.harness.postgres import PostgresDatabase
from tests.harness.truth import counted

#: Source → the tables beneath, the name of its part, and the part's text.
PARTS: dict[str, tuple[dict[str, str], str, str]] = {
    "a": (
        {"item": "id bigint PRIMARY KEY, x bigint, t text", "recall": "item bigint PRIMARY KEY"},
        "r",
        "SELECT i.id, i.x, i.t FROM shop.item i"
        " WHERE NOT EXISTS (SELECT 1 FROM shop.recall c WHERE c.item = i.id)",
    ),
    "b": (
        {"link": "id bigint PRIMARY KEY, x bigint, y bigint", "allowed": "y bigint PRIMARY KEY"},
        "s",
        "SELECT l.id, l.x, l.y FROM shop.link l, shop.allowed o WHERE l.y = o.y",
    ),
    "c": (
        {"label": "y bigint PRIMARY KEY, z text", "member": "id bigint PRIMARY KEY, y bigint"},
        "u",
        "SELECT l.y, l.z FROM shop.label l WHERE l.y IN (SELECT m.y FROM shop.member m)",
    ),
}
_NAMES = {name: list(tables) for name, (tables, _, _) in PARTS.items()}

_JOINING = {
    "a": ("item VALUES (100, 1, 'p')",),
    "b": ("link VALUES (100, 1, 1)", "allowed VALUES (1)"),
    "c": ("label VALUES (1, 'k')", "member VALUES (100, 1)"),
}


class PartedDatabase(PostgresDatabase):
    """A database whose one published relation is a part that rules keep."""

    @property
    def place(self) -> str:
        return f'{super().place}\nschema = "viewsweep"'

    def create(self) -> None:
        tables, part, text = PARTS[self.name]
        with psycopg.connect(self._server.dsn(), autocommit=True) as created:
            created.execute(f"CREATE DATABASE {self.database}")
        with self.connected() as connection:
            connection.execute("CREATE SCHEMA shop")
            for name, columns in tables.items():
                connection.execute(sql.SQL(f"CREATE TABLE shop.{name} ({columns})"))
            view = read_view(part, text, catalog(connection, ["shop"]))
            connection.execute(sql.SQL(installation(view)))
            connection.execute(sql.SQL(f"CREATE PUBLICATION viewsweep FOR TABLE viewsweep.{part}"))
            connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (self._judge,)
            )

    def _commit(self, transactions: Sequence[Sequence[Change]]) -> None:
        self.commit_at_random(random.Random(self.name), 12 * len(transactions))

    def commit_at_random(self, dice: random.Random, transactions: int) -> None:
        """Transactions on the tables beneath, of up to three statements."""
        with self.connected() as connection:
            for _ in range(transactions):
                with connection.transaction():
                    for _ in range(dice.randint(1, 3)):
                        connection.execute(sql.SQL(self._statement(dice)))

    def put_row(self) -> None:
        """A row of the part that joins with those of the other databases."""
        with self.connected() as connection:
            for statement in _JOINING[self.name]:
                connection.execute(sql.SQL(f"INSERT INTO shop.{statement} ON CONFLICT DO NOTHING"))

    def _statement(self, dice: random.Random) -> str:
        first, second = _NAMES[self.name]
        one, other = dice.randint(1, 8), dice.choice(("1", "2", "3", "4", "NULL"))
        text = dice.choice(("'p'", "'k'", "NULL"))
        values = {
            "item": f"{one}, {other}, {text}",
            "link": f"{one}, {other}, {dice.randint(1, 5)}",
            "label": f"{dice.randint(1, 5)}, {text}",
            "recall": f"{one}",
            "allowed": f"{dice.randint(1, 5)}",
            "member": f"{one}, {dice.randint(1, 5)}",
        }
        table = dice.choice((first, first, second))
        key, *others = (each.split()[0] for each in PARTS[self.name][0][table].split(", "))
        if dice.random() < 0.3:
            return f"DELETE FROM shop.{table} WHERE {key} = {one}"
        change = ", ".join(f"{name} = excluded.{name}" for name in others)
        clash = f"UPDATE SET {change}" if change else "NOTHING"
        return f"INSERT INTO shop.{table} VALUES ({values[table]}) ON CONFLICT ({key}) DO {clash}"

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        with self.connected() as connection:
            return {
                name: connection.execute(sql.SQL(f"TABLE shop.{name}")).fetchall()
                for name in _NAMES[self.name]
            }


def whole(world: DatabaseWorld) -> Counter[tuple[Any, ...]]:
    """The view over the parts, each computed from its tables by DuckDB."""
    with duckdb.connect() as judge:
        judge.execute("CREATE SCHEMA shop")
        for name, database in world.databases.items():
            tables, part, text = PARTS[name]
            for table, rows in database.tables().items():
                columns = tables[table].replace("text", "varchar")
                judge.execute(f"CREATE TABLE shop.{table} ({columns})")
                for row in rows:
                    marks = ", ".join("?" * len(row))
                    judge.execute(f"INSERT INTO shop.{table} VALUES ({marks})", row)
            judge.execute(f"CREATE SCHEMA {name}")
            judge.execute(f"CREATE VIEW {name}.{part} AS {text}")
        return Counter(judge.execute(world.story.sql).fetchall())


def test_sweep_keeps_a_view_over_parts_that_rules_keep(
    broker: LocalBroker,
    server: LocalPostgres,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(databases, "_of", lambda _: PartedDatabase)
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.number_from_here()
        with world.job(protocol="batched-sweep") as job:
            with while_they_write(world, job, 40):
                pass
            for database in world.databases.values():
                database.put_row()
            world.wait_until_published()
            job.take(world.records_after(job))
            assert world.assert_complete(job.tables) > 40
            current = counted(pl.read_delta(str(job.tables.directory / "current")))
        verdict = world.verdict("batched-sweep")
        assert (verdict.verdict, verdict.reached) == ("valid", verdict.asked)
        assert verdict.counts.compensated > 0
        assert current == whole(world) != Counter()
