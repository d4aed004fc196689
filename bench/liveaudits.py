"""Audits of real tables, topics and query servers: what they cost, and none may be a false alarm.

    python -m bench.liveaudits [--rows 1000000] [--load-rows 20000] [--seconds 60] [--planted 3]

First a view of so many rows is created and audited while nothing happens: questions, bytes and
seconds for 1 % of it. Then one row of a smaller view is damaged in several ways, so many times
each, and the view is audited, 10 % at a time, until the damage is found. Then a job keeps twenty
views over smaller sources that go on committing, and each view is audited again and again, beside
the job. Without Spark: this process hands the job its batches. Exit code 1 after a false alarm.
"""

import itertools
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from deltalake import DeltaTable

from infra.localbroker import LocalBroker
from protocols.views.catalog import catalog_from_json
from sources.kafka import Kafka
from sources.simulated.database import SourceDatabase
from sources.simulated.publisher import Publisher
from sources.simulated.queryserver import QueryServer
from sources.transaction import RowChange, Transaction
from streaming.auditing import Amount, audit
from streaming.job.job import Job
from streaming.settings.configuration import Configuration, read_configuration
from tests.harness.records import ends, records

_FORMS = {
    "shop": {
        "orders": {
            "columns": {"id": "BIGINT", "customer": "BIGINT", "amount": "BIGINT"},
            "key": ["id"],
        }
    },
    "crm": {
        "customers": {
            "columns": {"id": "BIGINT", "name": "VARCHAR", "segment": "BIGINT"},
            "key": ["id"],
        }
    },
}
_JOIN = "shop.orders o JOIN crm.customers c ON o.customer = c.id"
_LARGE = f"SELECT o.id, o.amount, c.name FROM {_JOIN}"
#: Orders of the view that is damaged.
_SMALL = 2_000
_VIEWS = (
    _LARGE,
    f"SELECT o.id, c.id AS customer, c.segment FROM {_JOIN} WHERE o.amount > 300",
    f"SELECT o.amount, c.name FROM {_JOIN}",
    f"SELECT c.segment, o.amount % 10 AS last FROM {_JOIN}",
    "SELECT c.id, o.id AS o FROM crm.customers c LEFT JOIN shop.orders o ON o.customer = c.id",
    "SELECT c.name, o.id FROM crm.customers c RIGHT JOIN shop.orders o ON o.customer = c.id",
    "SELECT c.id, o.id AS o FROM crm.customers c FULL JOIN shop.orders o ON o.customer = c.id",
    "SELECT c.id FROM crm.customers c WHERE EXISTS"
    " (SELECT 1 FROM shop.orders o WHERE o.customer = c.id AND o.amount > 900)",
    "SELECT c.id, c.name FROM crm.customers c WHERE NOT EXISTS"
    " (SELECT 1 FROM shop.orders o WHERE o.customer = c.id)",
    "SELECT o.id FROM shop.orders o WHERE o.customer IN"
    " (SELECT c.id FROM crm.customers c WHERE c.segment = 3)",
    "SELECT customer, count(*) AS n, sum(amount) AS total FROM shop.orders GROUP BY customer",
    f"SELECT c.segment, count(*) AS n, max(o.amount) AS most FROM {_JOIN} GROUP BY c.segment",
    "SELECT customer, min(amount) AS least FROM shop.orders GROUP BY customer HAVING count(*) > 2",
    "SELECT DISTINCT segment FROM crm.customers",
    "SELECT DISTINCT customer, amount % 2 AS odd FROM shop.orders",
    "SELECT id FROM crm.customers UNION ALL SELECT customer FROM shop.orders",
    "SELECT id FROM crm.customers INTERSECT SELECT customer FROM shop.orders",
    "SELECT id FROM crm.customers EXCEPT SELECT customer FROM shop.orders",
    "SELECT count(*) AS n, sum(amount) AS total FROM shop.orders",
    "SELECT c.id, t.n FROM crm.customers c LEFT JOIN"
    " (SELECT customer, count(*) AS n FROM shop.orders GROUP BY customer) t ON t.customer = c.id",
)


def main(
    rows: Annotated[int, typer.Option(min=0, help="Rows of the large view; 0: none.")] = 1_000_000,
    load_rows: Annotated[int, typer.Option(min=100, help="Orders under load.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=0, help="How long the load lasts.")] = 60.0,
    planted: Annotated[int, typer.Option(min=0, help="Damages of each kind.")] = 3,
) -> None:
    """Measure audits; exit code 1 after a false alarm."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-audits-"))
    alarms = 0
    with LocalBroker(directory / "broker") as broker:
        if rows:
            with _system(directory / "large", broker.bootstrap, rows, [_LARGE]) as system:
                alarms += system.cost()
        if planted:
            with _system(directory / "planted", broker.bootstrap, _SMALL, [_LARGE]) as system:
                system.planted(planted)
        if seconds:
            with _system(directory / "load", broker.bootstrap, load_rows, _VIEWS) as system:
                alarms += system.under_load(seconds)
    shutil.rmtree(directory, ignore_errors=True)
    raise typer.Exit(1 if alarms else 0)


class _Commits:
    """A source that goes on committing: rows of a few columns, by key."""

    def __init__(self, database: SourceDatabase, relation: str, rows: pl.DataFrame) -> None:
        self._database, self._relation = database, relation
        self._held = dict(zip(rows["id"].to_list(), rows.rows(), strict=True))
        self._keys = rows.height * 11 // 10
        self._dice = random.Random(relation)

    def commit(self) -> None:
        """Commits ten transactions; each inserts, deletes or modifies up to three rows."""
        self._database.commit_many([Transaction(tuple(self._changes())) for _ in range(10)])

    def change_silently(self, key: int) -> Callable[[], object]:
        """Changes a row of an order without publishing that; returns how to change it back."""
        connection = self._database._connection
        [(place,)] = connection.execute(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables"
            f" WHERE table_name = '{self._relation}'"
        ).fetchall()
        change = f"UPDATE {place} SET amount = {{}} WHERE id = {key}"
        connection.execute(change.format("-1 - amount"))
        return lambda: connection.execute(change.format("-1 - amount"))

    def _changes(self) -> Iterator[RowChange]:
        for key in self._dice.sample(range(self._keys), self._dice.randint(1, 3)):
            old = self._held.pop(key, None)
            if old is not None:
                yield RowChange(self._relation, old, -1)
            if old is None or self._dice.random() < 0.8:
                new = self._new(key)
                self._held[key] = new
                yield RowChange(self._relation, new, 1)

    def _new(self, key: int) -> tuple[Any, ...]:
        if self._relation == "orders":
            return key, self._dice.randrange(max(1, self._keys // 10)), self._dice.randrange(1000)
        return key, f"name {self._dice.randrange(99)}", self._dice.randrange(8)


class _System:
    """Sources, and a job that has read the first states of its views."""

    def __init__(self, configuration: Configuration, commits: Sequence[_Commits]) -> None:
        self._configuration, self._commits = configuration, commits
        self._stopping = threading.Event()
        #: Of each audit under load: whether it was a false alarm, its stretches and its rows.
        self._audits: list[tuple[bool, int, int]] = []
        self._job = Job(configuration, [*configuration.views.values()], _silent)
        self._job.check()
        began = time.monotonic()
        self._running = self._job.prepare()
        print(f"first states: {time.monotonic() - began:.1f} s, {self._job.measures.bytes:,} bytes")

    def close(self) -> None:
        self._running.finish()
        self._job.close()

    def cost(self) -> int:
        """Audits 1 % of the only view, three times; returns the number of false alarms."""
        alarms = 0
        for _ in range(3):
            found = audit(self._configuration, "v0", Amount(), _silent, self._stopping)
            print(
                f"{found.rows:,} of {found.of:,} rows in {found.stretches} stretches:"
                f" {found.questions} questions, {found.bytes:,} bytes, {found.seconds:.1f} s"
            )
            alarms += not found.holds
        return alarms

    def planted(self, times: int) -> None:
        """Damages a row of the only view, and says how many rows were looked at to find it."""
        lake, dice = self._configuration.warehouse, random.Random(2)
        shown = pl.scan_delta(str(lake / "v0/changes")).select("id").collect()["id"].to_list()
        for kind in ("current by hand", "changes by hand", "a damaged file", "a silent source"):
            looked_at = []
            for _ in range(times):
                shutil.copytree(lake / "v0", lake / "aside")
                mend = self._damage(kind, lake / "v0", dice.choice(shown))
                looked_at.append(self._until_found())
                mend()
                shutil.rmtree(lake / "v0")
                (lake / "aside").rename(lake / "v0")
            print(f"{kind}: found after {', '.join(f'{n:,}' for n in looked_at)} rows")

    def _until_found(self) -> int:
        """Audits 10 % at a time; returns the rows looked at up to the first difference."""
        looked_at = 0
        while True:
            found = audit(self._configuration, "v0", Amount(0.1), _silent, self._stopping)
            if not found.holds:
                return looked_at + (found.first_after or found.rows)
            looked_at += found.rows

    def _damage(self, kind: str, view: Path, key: int) -> Callable[[], object]:
        """Damages what the view shows of one order; returns how to mend it at the source."""
        if kind == "a silent source":
            return self._commits[0].change_silently(key)
        table = DeltaTable(view / kind.split()[0] if "hand" in kind else view / "changes")
        if "hand" in kind:
            table.update({"amount": "-1"}, predicate=f"id = {key}")
        else:
            names = (Path(str(uri).removeprefix("file://")) for uri in table.file_uris())
            file = max(names, key=lambda each: each.stat().st_size)
            content = bytearray(file.read_bytes())
            middle = len(content) // 2
            content[middle : middle + 40] = bytes(255 - b for b in content[middle : middle + 40])
            file.write_bytes(content)
        return lambda: None

    def under_load(self, seconds: float) -> int:
        """Audits all views in turn while sources commit and the job keeps them."""
        works = (self._commit_on, self._audit_on)
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        until, positions = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            batch = records(self._configuration.kafka.bootstrap, self._running.offsets)
            positions += self._running.process(self._running.by_source(ends(batch)))
            self._running.settle()
            self._running.tend()
        self._stopping.set()
        for thread in threads:
            thread.join()
        alarms = sum(alarm for alarm, *_ in self._audits)
        print(
            f"{positions:,} positions of all views, {len(self._audits):,} audits of"
            f" {len(self._configuration.views)} views, {sum(n for _, n, _ in self._audits):,}"
            f" stretches, {sum(n for *_, n in self._audits):,} rows; {alarms} false alarms"
        )
        return alarms

    def _commit_on(self) -> None:
        while not self._stopping.wait(0.05):
            for each in self._commits:
                each.commit()

    def _audit_on(self) -> None:
        """One view after the other, each time another share of it."""
        dice = random.Random(1)
        for name in itertools.cycle(self._configuration.views):
            if self._stopping.is_set():
                return
            amount = Amount(dice.choice((0.001, 0.01, 0.05)))
            found = audit(self._configuration, name, amount, _silent, threading.Event())
            if not found.holds:
                print(f"FALSE ALARM: {found}")
            self._audits.append((not found.holds, found.stretches, found.rows))


@contextmanager
def _system(
    directory: Path, bootstrap: str, orders: int, views: Sequence[str]
) -> Iterator[_System]:
    """Two sources with so many orders, a tenth as many customers, and these views."""
    directory.mkdir(parents=True)
    customers = max(1, orders // 10)
    rows = {
        "shop": ("orders", _orders(orders, customers)),
        "crm": ("customers", _people(customers)),
    }
    with ExitStack() as made:
        commits, lines = [], ["[warehouse]", 'path = "lake"', "[kafka]"]
        lines.append(f'bootstrap = "{bootstrap}"')
        for source, (relation, held) in rows.items():
            catalog = catalog_from_json({source: {"relations": _FORMS[source]}})
            index = {relation: ["customer"]} if relation == "orders" else {}
            database = SourceDatabase.create(
                directory / f"{source}.db", source, catalog, {relation: held}, indexes=index
            )
            made.callback(database.close)
            topic = f"{directory.name}-{source}"
            server = QueryServer(database, topic=topic)
            made.callback(server.stop)
            publisher = Publisher(database, Kafka(bootstrap), topic)
            publisher.start()
            made.callback(publisher.stop)
            commits.append(_Commits(database, relation, held))
            lines += [f"[sources.{source}]", f'address = "{server.address}"', f'topic = "{topic}"']
        for number, sql in enumerate(views):
            (directory / f"v{number}.sql").write_text(sql)
            lines += [f"[views.v{number}]", f'sql = "v{number}.sql"']
        (directory / "warehouse.toml").write_text("\n".join(lines))
        for each in commits:
            each.commit()
        configuration = read_configuration(directory / "warehouse.toml")
        yield made.enter_context(closing(_System(configuration, commits)))


def _orders(rows: int, customers: int) -> pl.DataFrame:
    ids = np.arange(rows, dtype=np.int64)
    return pl.DataFrame({"id": ids, "customer": ids * 7919 % customers, "amount": ids * 31 % 1000})


def _people(rows: int) -> pl.DataFrame:
    ids = np.arange(rows, dtype=np.int64)
    return pl.DataFrame({"id": ids, "name": [f"name {i % 99}" for i in ids], "segment": ids % 8})


def _silent(_message: str) -> None: ...


if __name__ == "__main__":
    typer.run(main)
