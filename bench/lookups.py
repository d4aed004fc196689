"""Look-ups at a PostgreSQL database as the adapter does them, beside psql with the same statement.

    python -m bench.lookups [--rows 1000000] [--repeats 30]

Medians, in turns. `psql` is what psql's own \\timing says of the statement, from the database to
the last byte, as text; `adapter` is the same SELECT up to columns; `answer` is everything that a
question costs without the wait for Debezium: the snapshot, the mark in the log, the SELECT.
"""

import json
import random
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import polars as pl
import psycopg
import typer
from rich.console import Console
from rich.table import Table

from infra.localpostgres import LocalPostgres
from protocols.algebra.frame import Frame
from protocols.exchange.questions import Query
from protocols.views.catalog import relation_from_json
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.lookup import PostgresLookup

_KEYS = (1, 100, 10_000)
_COLUMNS = {
    "id": ("BIGINT", "int8"),
    "name": ("VARCHAR", "text"),
    "price": ("DECIMAL(12,2)", "numeric"),
    "at": ("TIMESTAMP", "timestamp"),
}
_ITEM = relation_from_json(
    "shop",
    "item",
    {"columns": {name: type_ for name, (type_, _) in _COLUMNS.items()}, "key": ["id"]},
)
_MADE = """
CREATE TABLE item (id bigint PRIMARY KEY, name text, price numeric(12,2), at timestamp);
INSERT INTO item
SELECT n, 'item ' || n, n % 100000 / 100.0, timestamp '2026-01-01' + n * interval '1 s'
FROM generate_series(1, {rows}) n;
ANALYZE item
"""
_TIME = re.compile(r"Time: ([\d.]+) ms")


def main(
    rows: Annotated[int, typer.Option(min=10_000, help="Rows of the table.")] = 1_000_000,
    repeats: Annotated[int, typer.Option(min=3, help="Look-ups of each kind and size.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Measure look-ups of 1, 100 and 10,000 keys."""
    with LocalPostgres() as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(_MADE.format(rows=rows).encode())
        with closing(DatabaseConnections("shop", server.dsn(), 60.0)) as connections:
            found = {keys: _measured(server, connections, rows, keys, repeats) for keys in _KEYS}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table("keys", "psql ms", "adapter ms", "ratio", "answer ms", "ratio", box=None)
    for keys, each in found.items():
        cells = [f"{each[name]:.2f}" for name in ("psql", "adapter", "answer")]
        ratios = [f"{each[name] / each['psql']:.2f}" for name in ("adapter", "answer")]
        table.add_row(f"{keys:,}", cells[0], cells[1], ratios[0], cells[2], ratios[1])
    Console().print(table)


def _measured(
    server: LocalPostgres, connections: DatabaseConnections, rows: int, keys: int, repeats: int
) -> dict[str, float]:
    """Way → the median of its milliseconds for look-ups of so many keys."""
    dice = random.Random(keys)
    lookup = PostgresLookup(
        "public", _ITEM, {name: stored for name, (_, stored) in _COLUMNS.items()}
    )
    spent: dict[str, list[float]] = {"psql": [], "adapter": [], "answer": []}
    for _ in range(repeats):
        wanted = dice.sample(range(1, rows + 1), keys)
        query = _query(wanted)
        spent["psql"].append(_by_psql(server, wanted))
        with connections.plain() as cursor:
            spent["adapter"].append(_timed(lambda: lookup.rows(cursor, query)))  # noqa: B023
        spent["answer"].append(_timed(lambda: _answer(connections, lookup, query)))  # noqa: B023
    return {name: statistics.median(each) for name, each in spent.items()}


def _query(wanted: list[int]) -> Query[Frame]:
    keys = Frame(pl.DataFrame({"id": pl.Series(wanted, dtype=pl.Int64)}))
    return Query(relation=_ITEM, columns=_ITEM.column_names, keys=(keys,))


def _answer(connections: DatabaseConnections, lookup: PostgresLookup, query: Query[Frame]) -> None:
    with connections.snapshot() as (cursor, _):
        assert len(lookup.rows(cursor, query).data)


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def _by_psql(server: LocalPostgres, wanted: list[int]) -> float:
    """The second of two equal look-ups in one session: the first also plans for the first time."""
    program = Path(server.programs, "psql")
    columns = ", ".join(f'r."{name}"' for name in _ITEM.column_names)
    keys = ",".join(map(str, wanted))
    statement = f"SELECT {columns} FROM item r WHERE r.id = ANY ('{{{keys}}}'::bigint[]);\n"
    ran = subprocess.run(
        [program, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", server.dsn()],
        input="\\timing on\n\\o /dev/null\n" + statement * 2,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(_TIME.findall(ran.stdout)[-1])


if __name__ == "__main__":
    typer.run(main)
