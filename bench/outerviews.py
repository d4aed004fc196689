"""The cost of an outer join beside its core, as in section 7 of the paper on outer-join views.

The paper's view V3 over TPC-H relations made here (the same keys and distributions, one hundredth
of the paper's size at `--scale 0.1`), at four sources: rows of lineitem are deleted, and inserted
again, 60 to 60,000 at a time, under V3 and under its *core view*, in which all joins are inner
ones. The engine alone keeps both in turns, with sources in the same process; medians of repeats.
The terms of V3 and the rows that a batch affects in each are counted from the changes, as in
Table 1.

The paper's *primary* work, finding the inner matches of the changes, is the sources' work here:
questions, the rows that they send, and their time. The rest is the engine's own time: correcting
answers, pairing them, and, for V3, finding the rows that became or ceased to be orphans.

Before the measurement, the changes are compared with DuckDB's results for the view's SQL.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import orjson
import polars as pl

from bench.burst import evaluated, folded
from infra.charts import Chart, drawn
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import here
from protocols.exchange.questions import Query, Question, Snapshot
from protocols.exchange.together import finish
from protocols.maintenance.registry import protocol
from protocols.maintenance.tree_sweep import contents
from protocols.operators.memory import Memories
from protocols.views.catalog import Catalog, relation_from_json
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView, TreeView

#: The paper's view, with the names of TPC-H and an alias for each relation.
OUTER = """
SELECT lo.orderkey, lo.linenumber, lo.quantity, lo.extendedprice, lo.shipdate, lo.returnflag,
       lo.orderdate, lo.clerk, c.custkey, c.nationkey, c.mktsegment, p.partkey, p.type,
       p.retailprice
FROM (SELECT l.orderkey, l.linenumber, l.quantity, l.extendedprice, l.shipdate, l.returnflag,
             l.partkey, o.orderdate, o.clerk, o.custkey
      FROM lines.lineitem l JOIN sales.orders o ON l.orderkey = o.orderkey
      WHERE o.orderdate BETWEEN DATE '1994-06-01' AND DATE '1994-12-31') lo
RIGHT JOIN crm.customer c ON c.custkey = lo.custkey
FULL JOIN stock.part p ON lo.partkey = p.partkey AND p.retailprice < 2000
"""
CORE = OUTER.replace("RIGHT JOIN", "JOIN").replace("FULL JOIN", "JOIN")
#: Rows per batch.
SIZES = (60, 600, 6_000, 60_000)
_DAYS = 2_406
_FIRST_DAY = np.datetime64("1992-01-01")
_TODAY = np.datetime64("1995-06-17")


def _catalog() -> Catalog:
    money, date = "DECIMAL(12,2)", "DATE"
    forms: dict[tuple[str, str], tuple[list[str], dict[str, str]]] = {
        ("crm", "customer"): (
            ["custkey"],
            {"custkey": "BIGINT", "nationkey": "BIGINT", "mktsegment": "VARCHAR"},
        ),
        ("sales", "orders"): (
            ["orderkey"],
            {"orderkey": "BIGINT", "custkey": "BIGINT", "orderdate": date, "clerk": "VARCHAR"},
        ),
        ("lines", "lineitem"): (
            ["orderkey", "linenumber"],
            {
                "orderkey": "BIGINT",
                "linenumber": "BIGINT",
                "partkey": "BIGINT",
                "quantity": "BIGINT",
                "extendedprice": money,
                "shipdate": date,
                "returnflag": "VARCHAR",
            },
        ),
        ("stock", "part"): (
            ["partkey"],
            {"partkey": "BIGINT", "type": "VARCHAR", "retailprice": money},
        ),
    }
    return Catalog(
        tuple(
            relation_from_json(source, name, {"columns": columns, "key": key})
            for (source, name), (key, columns) in forms.items()
        )
    )


def tpch(scale: float, seed: int = 1) -> dict[str, pl.DataFrame]:
    """The relations; keys, fan-outs, dates and prices as dbgen distributes them."""
    rng = np.random.default_rng(seed)
    customers, orders, parts = (int(n * scale) for n in (150_000, 1_500_000, 200_000))
    custkey = np.arange(1, customers + 1)
    customer = pl.DataFrame(
        {
            "custkey": custkey,
            "nationkey": rng.integers(0, 25, customers),
            "mktsegment": _words(rng, ("AUTOMOBILE", "BUILDING", "FURNITURE"), customers),
        }
    )
    partkey = np.arange(1, parts + 1)
    cents = 90_000 + (partkey // 10) % 20_001 + 100 * (partkey % 1_000)
    part = pl.DataFrame(
        {
            "partkey": partkey,
            "type": _words(rng, ("STANDARD TIN", "SMALL BRASS", "PROMO STEEL"), parts),
            "retailprice": _money(cents),
        }
    )
    number = np.arange(orders)
    # Only the first eight of every 32 order keys are used, and every third customer never orders.
    orderkey = number // 8 * 32 + number % 8 + 1
    buyers = custkey[custkey % 3 != 0]
    date = _FIRST_DAY + rng.integers(0, _DAYS, orders)
    order = pl.DataFrame(
        {
            "orderkey": orderkey,
            "custkey": rng.choice(buyers, orders),
            "orderdate": date,
            "clerk": _words(rng, tuple(f"Clerk#{n:09}" for n in range(1, 101)), orders),
        }
    ).with_columns(pl.col("orderdate").cast(pl.Date))
    per_order = rng.integers(1, 8, orders)
    rows = int(per_order.sum())
    begins = np.cumsum(per_order) - per_order
    of_order = np.repeat(number, per_order)
    bought = rng.integers(1, parts + 1, rows)
    quantity = rng.integers(1, 51, rows)
    shipped = date[of_order] + rng.integers(1, 122, rows)
    received = shipped + rng.integers(1, 31, rows)
    returned = np.where(rng.random(rows) < 0.5, "R", "A")
    lineitem = pl.DataFrame(
        {
            "orderkey": orderkey[of_order],
            "linenumber": np.arange(rows) - begins[of_order] + 1,
            "partkey": bought,
            "quantity": quantity,
            "extendedprice": _money(quantity * cents[bought - 1]),
            "shipdate": shipped,
            "returnflag": np.where(received <= _TODAY, returned, "N"),
        }
    ).with_columns(pl.col("shipdate").cast(pl.Date))
    return {"customer": customer, "orders": order, "lineitem": lineitem, "part": part}


def _words(rng: np.random.Generator, words: Sequence[str], number: int) -> pl.Series:
    return pl.Series(words).gather(rng.integers(0, len(words), number))


def _money(cents: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pl.Series:
    whole = pl.Series(cents).cast(pl.Decimal(12, 0))
    return pl.select(
        (whole * pl.lit("0.01").cast(pl.Decimal(4, 2))).cast(pl.Decimal(12, 2))
    ).to_series()


class Kept:
    """A view kept by the engine alone over these relations; only lineitem changes."""

    def __init__(self, sql: str, catalog: Catalog, rows: dict[str, pl.DataFrame]) -> None:
        self.view: AnyView = parse_view("v3", sql, catalog)
        self._rows = dict(rows)
        self._version = 0
        logs = {relation: FrameLog() for relation in self.view.relations}
        vector = dict.fromkeys(self.view.sources, 0)
        self._mailbox = Mailbox[Frame](logs, vector)
        [self._lines] = [r for r in self.view.relations if r.name == "lineitem"]
        memories = Memories()
        self.questions = self.rows_read = 0
        #: Seconds that the answers took.
        self.away = 0.0
        if isinstance(self.view, TreeView):
            finish(contents(self.view, self._mailbox, 0, memories=memories), self._ask)
        self._protocol = protocol("batched-sweep").begin_with(
            self.view, self._mailbox, lambda: Frame(pl.DataFrame()), memories
        )

    def change(self, rows: pl.DataFrame, count: int) -> tuple[pl.DataFrame, float]:
        """The view's changes as these lines come or go, one by one, and the engine's seconds."""
        versions = np.arange(self._version + 1, self._version + rows.height + 1)
        changes = rows.with_columns(
            pl.lit(count, pl.Int64).alias(COUNT), pl.Series(VERSION, versions)
        )
        self._version += rows.height
        held = self._rows["lineitem"]
        keys = ["orderkey", "linenumber"]
        gone = held.join(rows, on=keys, how="anti")
        self._rows["lineitem"] = pl.concat([gone, rows]) if count > 0 else gone
        self.questions = self.rows_read = 0
        self.away = 0.0
        begun = time.perf_counter()
        self._mailbox.receive("lines", self._version, {self._lines: changes})
        which = np.zeros(rows.height, np.int64)
        self._mailbox.deliver_each(("lines",), which, versions)
        work = self._protocol.begin()
        assert work is not None
        [install] = finish(here(work), self._ask)
        self._mailbox.forget(self._mailbox.last_position)
        seconds = time.perf_counter() - begun - self.away
        columns = [*self.view.schema, POSITION, COUNT]
        assert install.change is not None, "every size is large enough to change the view"
        return install.change.data.select(columns), seconds

    def _ask(self, questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
        begun = time.perf_counter()
        answers = [self._answer(each) for each in questions]
        self.away += time.perf_counter() - begun
        return answers

    def _answer(self, query: Question[Frame]) -> Snapshot[Frame]:
        assert isinstance(query, Query)
        rows = self._rows[query.relation.name]
        if query.condition is not None:
            rows = rows.filter(to_polars(query.condition))
        if query.keys is not None:
            found = [rows.join(k.data, on=list(k.columns), how="semi") for k in query.keys]
            rows = found[0] if len(found) == 1 else pl.concat(found).unique()
        answer = rows.select(*query.columns, pl.lit(1, pl.Int64).alias(COUNT))
        self.questions += 1
        self.rows_read += answer.height
        return Snapshot(Frame(answer), self._version if query.source == "lines" else 0)


@dataclass(frozen=True)
class Measured:
    """The figures of one view for one kind of change and one size of batch."""

    view: str
    change: str
    rows: int
    #: The engine's own seconds, and those of the sources.
    seconds: float
    away: float
    questions: int
    rows_read: int
    affected: dict[str, int]


def measure(scale: float, repeats: int, sizes: Sequence[int] = SIZES) -> list[Measured]:
    """Measures insertions and deletions of all sizes, the two views in turns; medians."""
    catalog, rows = _catalog(), tpch(scale)
    lines = rows["lineitem"].sample(max(sizes) * 2, seed=2)
    kept = {name: Kept(sql, catalog, rows) for name, sql in (("V3", OUTER), ("core", CORE))}
    found = []
    for size in sizes:
        batch = lines.head(size)
        runs: dict[tuple[str, str], list[Measured]] = {}
        for _ in range(repeats):
            for name, count in (("delete", -1), ("insert", 1)):
                for view, each in kept.items():
                    changes, seconds = each.change(batch, count)
                    measured = Measured(
                        view,
                        name,
                        size,
                        seconds,
                        each.away,
                        each.questions,
                        each.rows_read,
                        _terms(changes) if view == "V3" else {},
                    )
                    runs.setdefault((view, name), []).append(measured)
        for several in runs.values():
            own = statistics.median(each.seconds for each in several)
            away = statistics.median(each.away for each in several)
            found.append(replace(several[0], seconds=own, away=away))
    _check(kept, rows)
    return found


def _terms(changes: pl.DataFrame) -> dict[str, int]:
    """The rows of each term that a batch adds or removes, counted as in the paper's Table 1."""
    summed = folded(changes.drop(POSITION))
    known = {name: pl.col(name).is_not_null() for name in ("orderkey", "custkey", "partkey")}
    named = summed.select(
        pl.concat_str(
            pl.when(known["custkey"]).then(pl.lit("C")).otherwise(pl.lit("")),
            pl.when(known["orderkey"]).then(pl.lit("OL")).otherwise(pl.lit("")),
            pl.when(known["partkey"]).then(pl.lit("P")).otherwise(pl.lit("")),
        ).alias("term"),
        pl.col(COUNT).abs(),
    )
    return dict(named.group_by("term").agg(pl.col(COUNT).sum()).sort("term").iter_rows())


def _check(kept: dict[str, Kept], rows: dict[str, pl.DataFrame]) -> None:
    """Compares the changes of a deleted batch with DuckDB's; SystemExit if they differ."""
    batch = rows["lineitem"].sample(2_000, seed=3)
    left = rows["lineitem"].join(batch, on=["orderkey", "linenumber"], how="anti")
    one = pl.lit(1, pl.Int64).alias(COUNT)
    for name, each in kept.items():
        changes, _ = each.change(batch, -1)
        relations = {relation: rows[relation.name] for relation in each.view.relations}
        before = evaluated(each.view.sql, relations).with_columns(one)
        relations = {r: left if r.name == "lineitem" else held for r, held in relations.items()}
        after = evaluated(each.view.sql, relations).with_columns(one)
        due = folded(pl.concat([after, before.with_columns(-pl.col(COUNT))]))
        seen = folded(changes.drop(POSITION)).select(due.columns)
        if not seen.sort(due.columns).equals(due.sort(due.columns)):
            raise SystemExit(f"{name}: the changes differ from DuckDB's")


def main() -> None:
    """Prints a table, and draws it."""
    reading = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    reading.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor")
    reading.add_argument("--repeats", type=int, default=5)
    reading.add_argument("--into", type=Path, help="an SVG file")
    reading.add_argument("--json", action="store_true")
    given = reading.parse_args()
    found = measure(given.scale, given.repeats)
    if given.json:
        settings = {"scale": given.scale, "repeats": given.repeats}
        print(orjson.dumps({"settings": settings, "rows": [asdict(m) for m in found]}).decode())
    else:
        _print(found)
    if given.into is not None:
        given.into.write_text(drawn([_chart(found, change) for change in ("insert", "delete")]))


def _print(found: Sequence[Measured]) -> None:
    print("                 primary work: V3 / core                         engine: V3 / core")
    columns = ("change     rows  questions    rows read", "ms  ratio", "ms  ratio  affected")
    print("           ".join(columns))
    for outer, core in _paired(found):
        affected = ", ".join(f"{term} {number}" for term, number in outer.affected.items())
        print(
            f"{outer.change:<8}{outer.rows:>7,}{outer.questions:>6} / {core.questions:<4}"
            f"{outer.rows_read:>8,} / {core.rows_read:<8,}{_ratio(outer.away, core.away)}"
            f"{_ratio(outer.seconds, core.seconds)}  {affected}"
        )


def _ratio(outer: float, core: float) -> str:
    """Both in milliseconds, and their ratio."""
    return f"{outer * 1000:>7.1f} / {core * 1000:<6.1f} {outer / core:>4.2f}"


def _paired(found: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    outer, core = ([m for m in found if m.view == view] for view in ("V3", "core"))
    return list(zip(outer, core, strict=True))


def _chart(found: Sequence[Measured], change: str) -> Chart:
    series = {
        view: [(m.rows, m.seconds * 1000) for m in found if (m.view, m.change) == (view, change)]
        for view in ("V3", "core")
    }
    return Chart(f"{change}: outer view V3 and its core", "rows of lineitem", "ms", series)


if __name__ == "__main__":
    main()
