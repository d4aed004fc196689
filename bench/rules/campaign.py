"""Random views and random statements, judged after each statement by the views' own text."""

import sys
import time
from collections import Counter
from random import Random
from typing import Annotated

import psycopg
import typer
from psycopg import sql
from rich.console import Console

from infra.localpostgres import LocalPostgres
from tests.cases.ruledviews import CATALOG, TABLES
from tests.harness.ruled import Ran, RuledDatabase, fresh_views, stories

#: A server whose data are thrown away.
SETTINGS = {"fsync": "off", "synchronous_commit": "off", "jit": "off"}
#: So many views share a database and its statements.
_TOGETHER = 4
#: The tables are small and change all the time; without this their plans go astray.
_STORIES_PER_VACUUM = 40


def campaign(
    views: Annotated[int, typer.Option(min=1, help="Random views.")] = 200,
    statements: Annotated[
        int, typer.Option(min=1, help="Random statements, shared out among the databases.")
    ] = 50_000,
    seed: Annotated[int, typer.Option(help="The seed of the first database.")] = 1,
    planted: Annotated[
        bool,
        typer.Option("--planted", help="The control: one trigger of each view is switched off."),
    ] = False,
) -> None:
    """Keep random views through random statements; exit code 1 if one is ever wrong."""
    databases = -(-views // _TOGETHER)
    each = -(-statements // databases)
    totals, bad, shown = Ran(), [], Console(stderr=True)
    sizes: Counter[str] = Counter()
    began = time.monotonic()
    with LocalPostgres(SETTINGS) as server:
        for number in range(seed, seed + databases):
            wrong = _database(server, number, each, planted, totals, sizes)
            bad += [f"seed {number}: {line}" for line in wrong]
            shown.print(
                f"seed {number}: {totals.done:,} statements, {len(bad)} databases wrong,"
                f" {time.monotonic() - began:,.0f} s",
                highlight=False,
            )
    print("\n".join(bad))
    print(
        f"{databases * _TOGETHER:,} views ({sizes['never empty']:,} had rows at some time),"
        f" {totals.done:,} statements, {sum(totals.refused.values()):,} refused by constraints;"
        f" {len(bad)} of {databases:,} databases wrong"
    )
    if bad:
        sys.exit(1)


def _database(
    server: LocalPostgres,
    seed: int,
    statements: int,
    planted: bool,
    totals: Ran,
    sizes: Counter[str],
) -> list[str]:
    """The views of one database that became wrong, each with the statement before."""
    dice = Random(seed)
    database = RuledDatabase(server, f"campaign_{seed}", TABLES, CATALOG)
    filled: set[str] = set()
    try:
        for name, text in fresh_views(dice, _TOGETHER, CATALOG).items():
            database.install(name, text)
            if planted:
                _switch_off(database, name, dice)
        for number, story in enumerate(stories(dice, statements)):
            if wrong := database.told(story, totals):
                return [f"after {totals.last}: {database.views[name]}" for name in wrong]
            if number % _STORIES_PER_VACUUM == 0:
                database.execute("VACUUM ANALYZE")
                filled |= {name for name in database.views if database.rows(name)}
        return []
    finally:
        sizes["never empty"] += len(filled)
        database.close()
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL(f"DROP DATABASE campaign_{seed} WITH (FORCE)"))


def _switch_off(database: RuledDatabase, name: str, dice: Random) -> None:
    """Lets the rules of one table and operation not run any more."""
    query = (
        "SELECT tgrelid::regclass::text, tgname FROM pg_trigger"
        f" WHERE tgname LIKE 'viewsweep {name}: after %' AND tgname NOT LIKE '%truncate'"
        " ORDER BY 1, 2"
    )
    table, trigger = dice.choice(database.connection.execute(sql.SQL(query)).fetchall())
    database.execute(f'ALTER TABLE {table} DISABLE TRIGGER "{trigger}"')
