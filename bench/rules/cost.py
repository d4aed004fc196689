"""The price that writers pay for a view that is right after each statement.

One workload in one run: rows of a large table come, change and go in batches, each batch one
statement and one transaction, while a join with another table is kept

    by nothing       the table alone
    by rules         the triggers of `viewsweep rules`
    by hand          the shortest triggers for just this view, which are right only if one session
                     writes and no statement changes two tables
    by refresh       REFRESH MATERIALIZED VIEW after each batch
    by recomputing   DELETE and INSERT … SELECT after each batch

Seconds are those of processor time of the session, so that other load on the machine counts little.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import orjson
import psutil
import psycopg
import typer
from psycopg import sql
from rich.console import Console
from rich.table import Table

from infra.localpostgres import LocalPostgres
from protocols.rules.script import comparison, installation
from protocols.rules.view import RuledView, read_view
from sources.postgres.ruled import catalog

VIEW = (
    "SELECT o.id, o.amount, c.name, c.segment FROM shop.orders o, shop.customers c"
    " WHERE o.customer = c.id"
)
_SIZES = (10_000, 100, 1)
#: A measurement ends after so many batches, or seconds.
_MOST_BATCHES, _SECONDS = 200, 1.5
_REPEATS = 3
_TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, segment bigint);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer bigint NOT NULL, amount bigint);
INSERT INTO shop.customers SELECT n, 'customer ' || n, n % 10 FROM generate_series(1, 10000) n;
INSERT INTO shop.orders SELECT n, 1 + n % 10000, n % 97 FROM generate_series(1, {rows}) n;
CREATE INDEX ON shop.orders (customer);
VACUUM ANALYZE;
"""
_CHANGES = {
    "insert": "INSERT INTO shop.orders SELECT n, 1 + n % 10000, n % 97"
    " FROM generate_series({first}, {last}) n",
    "update": "UPDATE shop.orders SET amount = amount + 1 WHERE id BETWEEN {first} AND {last}",
    "delete": "DELETE FROM shop.orders WHERE id BETWEEN {first} AND {last}",
}
_BY_HAND = """
CREATE TABLE by_hand AS {view};
ALTER TABLE by_hand ADD PRIMARY KEY (id);
CREATE FUNCTION came() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO by_hand SELECT o.id, o.amount, c.name, c.segment FROM new_rows o, shop.customers c
  WHERE o.customer = c.id; RETURN NULL; END $$;
CREATE FUNCTION went() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM by_hand h USING old_rows o WHERE h.id = o.id; RETURN NULL; END $$;
CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  DELETE FROM by_hand h USING old_rows o WHERE h.id = o.id;
  INSERT INTO by_hand SELECT o.id, o.amount, c.name, c.segment FROM new_rows o, shop.customers c
  WHERE o.customer = c.id; RETURN NULL; END $$;
CREATE TRIGGER came AFTER INSERT ON shop.orders REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION came();
CREATE TRIGGER went AFTER DELETE ON shop.orders REFERENCING OLD TABLE AS old_rows
  FOR EACH STATEMENT EXECUTE FUNCTION went();
CREATE TRIGGER changed AFTER UPDATE ON shop.orders REFERENCING OLD TABLE AS old_rows
  NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION changed();
"""


@dataclass(frozen=True)
class Way:
    """One way to keep the view."""

    name: str
    install: Callable[[RuledView], str]
    #: What the writer runs after each batch.
    after: str = ""
    differs: Callable[[RuledView], str] = lambda _: "SELECT 1 WHERE false"


_AGAIN = f"DELETE FROM recomputed; INSERT INTO recomputed {VIEW}"
WAYS = (
    Way("nothing", lambda _: "SELECT 1"),
    Way("rules", installation, differs=comparison),
    Way("hand", lambda _: _BY_HAND.format(view=VIEW)),
    Way(
        "refresh",
        lambda _: f"CREATE MATERIALIZED VIEW refreshed AS {VIEW}",
        "REFRESH MATERIALIZED VIEW refreshed",
    ),
    Way("recomputing", lambda _: f"CREATE TABLE recomputed AS {VIEW}", _AGAIN),
)


def cost(
    rows: Annotated[int, typer.Option(min=10_000, help="Rows before the first batch.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Measure rows per second of a writer, by the way the view is kept and the batch's size."""
    found: dict[str, dict[str, float]] = {}
    with LocalPostgres({"synchronous_commit": "off", "shared_buffers": "256MB"}) as server:
        for way in WAYS:
            found[way.name] = _measured(server, way, rows)
            Console(stderr=True).print(f"{way.name}: {_rounded(found[way.name])}", highlight=False)
    if as_json:
        print(orjson.dumps(found).decode())
    else:
        _show(found)


def _measured(server: LocalPostgres, way: Way, rows: int) -> dict[str, float]:
    """`operation x size` → rows per second, the median of some runs."""
    found = {}
    database = f"kept_by_{way.name}"
    with psycopg.connect(server.dsn(), autocommit=True) as made:
        made.execute(sql.SQL(f"CREATE DATABASE {database}"))
    with psycopg.connect(server.dsn(database), autocommit=True) as connection:
        for statement in _TABLES.format(rows=rows).strip().split(";\n"):
            connection.execute(sql.SQL(statement))
        view = read_view("bought", VIEW, catalog(connection, ["shop"]))
        connection.execute(sql.SQL(way.install(view)))
        connection.execute("VACUUM ANALYZE")
        for size in _SIZES:
            runs: dict[str, list[float]] = {change: [] for change in _CHANGES}
            for _ in range(_REPEATS):
                # Rows that come change and go again, so each run begins with the same tables.
                batches = None
                for change, speeds in runs.items():
                    speed, batches = _run(connection, way, change, size, rows, batches)
                    speeds.append(speed)
                connection.execute("VACUUM")
            for change, speeds in runs.items():
                found[f"{change} x {size:,}"] = statistics.median(speeds)
        wrong = connection.execute(sql.SQL(way.differs(view))).fetchone()
        assert wrong is None, (way.name, wrong)
    return found


def _run(
    connection: psycopg.Connection,
    way: Way,
    change: str,
    size: int,
    rows: int,
    batches: int | None,
) -> tuple[float, int]:
    """Rows per second, and the number of batches, which later operations repeat."""
    most = batches or (_MOST_BATCHES if size < max(_SIZES) else 10)
    session = psutil.Process(connection.info.backend_pid)
    used, begin, done = _used(session), time.perf_counter(), 0
    while done < most and (batches or time.perf_counter() - begin < _SECONDS):
        first = rows + 1 + done * size
        statement = _CHANGES[change].format(first=first, last=first + size - 1)
        connection.execute(sql.SQL(f"{statement}; {way.after}"))
        done += 1
    return done * size / max(_used(session) - used, 0.01), done


def _used(session: psutil.Process) -> float:
    """Its seconds of processor time."""
    times = session.cpu_times()
    return float(times.user + times.system)


def _rounded(speeds: Mapping[str, float]) -> str:
    return ", ".join(f"{what}: {speed:,.0f}" for what, speed in speeds.items())


def _show(found: Mapping[str, Mapping[str, float]]) -> None:
    table = Table("rows per second", *(f"by {name}" for name in found), box=None)
    for what in found["nothing"]:
        table.add_row(what, *(f"{speeds[what]:,.0f}" for speeds in found.values()))
    Console().print(table)
