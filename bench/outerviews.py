"""The cost of an outer join beside its core, as in section 7 of the paper on outer-join views.

The paper's view V3 over TPC-H relations made here (`tpch`; one hundredth of the paper's size at
`--scale 0.1`), at four sources: rows of lineitem are deleted, and inserted again, 60 to 60,000 at a
time, under V3 and under its *core view*, in which all joins are inner ones. The engine alone keeps
both in turns, with sources in the same process. All times are CPU times, which a busy machine
changes little; medians of repeats. Each has three parts:

    asking    the sources' work: questions, the rows that they send, and their time. It finds the
              inner matches of the changes: most of the paper's primary delta
    engine    the engine's own time: correcting answers, pairing them, and, for V3, finding the rows
              that became or ceased to be orphans
    applying  appending the change to the Delta table `changes`, and its MERGE into `current`

Beside them stands the time in which Griffin and Kumar's expressions find the same change of V3, by
Polars as well, with all base relations at hand. Applying it would take what it takes for V3.

The rows of V3 and those that a batch changes are counted by terms, as in the paper's Table 1. (That
table seems to exchange C and P. Every third customer never orders, so C has more rows.)

The core reads more rows than V3. It asks for the orders and the parts of all lines in one round;
V3 asks only for the parts of lines whose orders have the right dates.

Afterwards `current` is compared with DuckDB's result for the view's SQL.
"""

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from bench.burst import evaluated, folded, same_rows
from bench.griffinkumar import change_of_v3
from bench.tpch import catalog, tpch
from infra.charts import Chart, drawn
from infra.workplace import workplace
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION, FrameLog
from protocols.exchange.deliveries import Deliveries
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import here
from protocols.exchange.questions import Query, Question, Snapshot
from protocols.exchange.together import finish
from protocols.maintenance.registry import protocol
from protocols.maintenance.tree_sweep import contents
from protocols.operators.memory import Memories
from protocols.views.sql import parse_view
from protocols.views.tree import AnyView, TreeView
from warehouse.standing import Standing
from warehouse.tables import ViewTables

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
V3, _CORE, _GRIFFIN_KUMAR = "V3", "core", "Griffin-Kumar"
#: Rows per batch.
SIZES = (60, 600, 6_000, 60_000)
_LINE = ["orderkey", "linenumber"]


class OuterViewKept:
    """A view kept by the engine alone over these relations; only lineitem changes."""

    def __init__(self, sql: str, rows: Mapping[str, pl.DataFrame], directory: Path) -> None:
        self.view: AnyView = parse_view("v3", sql, catalog())
        self.rows = dict(rows)
        self._version = 0
        logs = {relation: FrameLog() for relation in self.view.relations}
        vector = dict.fromkeys(self.view.sources, 0)
        self._mailbox = Mailbox[Frame](logs, vector)
        [self._lines] = [r for r in self.view.relations if r.name == "lineitem"]
        memories = Memories()
        self.questions = self.rows_read = 0
        #: Seconds that the answers took.
        self.asking = 0.0
        if isinstance(self.view, TreeView):
            finish(contents(self.view, self._mailbox, 0, memories=memories), self._ask)
        self._protocol = protocol("batched-sweep").begin_with(
            self.view, self._mailbox, lambda: Frame(pl.DataFrame()), memories
        )
        self._tables = ViewTables(directory, self.view)
        self._tables.define()
        one = pl.lit(1, pl.Int64).alias(COUNT)
        self._tables.begin(self.evaluated().with_columns(one), self._standing())
        self._tables.follow()

    def evaluated(self) -> pl.DataFrame:
        """The view of the relations as they are now, by DuckDB."""
        relations = {relation: self.rows[relation.name] for relation in self.view.relations}
        return evaluated(self.view.sql, relations)

    def current(self) -> pl.DataFrame:
        """The rows that readers of the Delta table see."""
        return pl.read_delta(str(self._tables.directory / "current"))

    def change(self, rows: pl.DataFrame, count: int) -> tuple[pl.DataFrame, float]:
        """The view's changes as these lines come or go, one by one, and the engine's seconds."""
        versions = np.arange(self._version + 1, self._version + rows.height + 1)
        changes = rows.with_columns(
            pl.lit(count, pl.Int64).alias(COUNT), pl.Series(VERSION, versions)
        )
        self._version += rows.height
        held = self.rows["lineitem"]
        gone = held.join(rows, on=_LINE, how="anti")
        self.rows["lineitem"] = pl.concat([gone, rows]) if count > 0 else gone
        self.questions = self.rows_read = 0
        self.asking = 0.0
        begun = time.process_time()
        self._mailbox.receive("lines", self._version, {self._lines: changes})
        which = np.zeros(rows.height, np.int64)
        self._mailbox.deliver_each(("lines",), which, versions)
        work = self._protocol.begin()
        assert work is not None
        [install] = finish(here(work), self._ask)
        self._mailbox.forget(self._mailbox.last_position)
        seconds = time.process_time() - begun - self.asking
        columns = [*self.view.schema, POSITION, COUNT]
        assert install.change is not None, "every size is large enough to change the view"
        return install.change.data.select(columns), seconds

    def apply(self, changes: pl.DataFrame, transactions: int) -> float:
        """Takes the last changes over into the Delta tables; the seconds of that."""
        new = np.arange(self._version - transactions + 1, self._version + 1)
        order = Deliveries(("lines",), new, np.zeros(transactions, np.int64), new)
        begun = time.process_time()
        self._tables.install(changes, self._standing(), order)
        self._tables.follow()
        return time.process_time() - begun

    def _standing(self) -> Standing:
        vector = {name: self._version * (name == "lines") for name in self.view.sources}
        tokens = {name: (version,) for name, version in vector.items()}
        return Standing(self._version, vector, tokens)

    def _ask(self, questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
        begun = time.process_time()
        answers = [self._answer(each) for each in questions]
        self.asking += time.process_time() - begun
        return answers

    def _answer(self, query: Question[Frame]) -> Snapshot[Frame]:
        assert isinstance(query, Query)
        rows = self.rows[query.relation.name]
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
class MeasuredView:
    """The figures of one view for one kind of change and one size of batch."""

    view: str
    change: str
    rows: int
    #: Seconds; Griffin and Kumar's expressions have only those of `engine`.
    engine: float
    asking: float = 0.0
    applying: float = 0.0
    questions: int = 0
    rows_read: int = 0
    #: Term → the rows of it that came or went.
    affected: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """All of the time in which the change is found."""
        return self.engine + self.asking


@dataclass(frozen=True)
class Report:
    """The whole measurement."""

    #: Term → its rows in V3.
    terms: Mapping[str, int]
    measured: Sequence[MeasuredView]


def measure(scale: float, repeats: int, directory: Path, sizes: Sequence[int] = SIZES) -> Report:
    """Measures insertions and deletions of all sizes, the views in turns; medians."""
    rows = tpch(scale)
    lines = rows["lineitem"].sample(max(sizes) * 2, seed=2)
    kept = {
        name: OuterViewKept(sql, rows, directory / name)
        for name, sql in ((V3, OUTER), (_CORE, CORE))
    }
    terms = _terms(kept[V3].current())
    runs: dict[tuple[str, str, int], list[MeasuredView]] = {}
    for size in sizes:
        for _ in range(repeats):
            for count in (-1, 1):
                for each in _changed(kept, lines.head(size), count):
                    runs.setdefault((each.view, each.change, size), []).append(each)
    last = lines.tail(max(sizes))
    for name, view in kept.items():
        view.apply(view.change(last, -1)[0], last.height)
        if not same_rows(view.current().drop(COUNT), view.evaluated()):
            raise SystemExit(f"{name}: `current` differs from DuckDB's result")
    return Report(terms, [_median(several) for several in runs.values()])


def _changed(
    kept: Mapping[str, OuterViewKept], lines: pl.DataFrame, count: int
) -> Iterator[MeasuredView]:
    """The figures of one batch: of both views, and of Griffin and Kumar's expressions."""
    change, size = "insert" if count > 0 else "delete", lines.height
    held = kept[V3].rows
    others = held | {"lineitem": held["lineitem"].join(lines, on=_LINE, how="anti")}
    affected = {}
    for name, each in kept.items():
        changes, engine = each.change(lines, count)
        applying = each.apply(changes, size)
        affected[name] = folded(changes.drop(POSITION))
        terms = _terms(affected[name])
        yield MeasuredView(
            name, change, size, engine, each.asking, applying, each.questions, each.rows_read, terms
        )
    begun = time.process_time()
    found = change_of_v3(others, lines, count, list(kept[V3].view.schema))
    seconds = time.process_time() - begun
    if not same_rows(folded(found), affected[V3]):
        raise SystemExit(f"{size} rows, {change}: Griffin and Kumar's change of V3 is another one")
    yield MeasuredView(_GRIFFIN_KUMAR, change, size, seconds)


def _median(several: Sequence[MeasuredView]) -> MeasuredView:
    """The same figures with the medians of the times."""
    times = ("engine", "asking", "applying")
    return replace(
        several[0],
        **{name: statistics.median(getattr(each, name) for each in several) for name in times},
    )


def _terms(rows: pl.DataFrame) -> dict[str, int]:
    """The number of rows of each term, signed or not, as in the paper's Table 1."""
    named = rows.select(
        pl.concat_str(
            pl.when(pl.col(key).is_not_null()).then(pl.lit(letters)).otherwise(pl.lit(""))
            for key, letters in (("custkey", "C"), ("orderkey", "OL"), ("partkey", "P"))
        ).alias("term"),
        pl.col(COUNT).abs(),
    )
    return dict(named.group_by("term").agg(pl.col(COUNT).sum()).sort("term").iter_rows())


def main(
    scale: Annotated[float, typer.Option(help="TPC-H's scale factor.")] = 0.1,
    repeats: Annotated[int, typer.Option(min=1, help="Runs, in turns.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Small batches, once.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    into: Annotated[Path | None, typer.Option(help="Draw the plot into this file (SVG).")] = None,
) -> None:
    """Measure an outer-join view, its core, and Griffin and Kumar's expressions."""
    with workplace("outerviews") as directory:
        if quick:
            report = measure(0.01, 1, directory, SIZES[:2])
        else:
            report = measure(scale, repeats, directory)
    if json:
        sys.stdout.write(orjson.dumps(asdict(report)).decode() + "\n")
    else:
        _show(report)
    if into is not None:
        into.write_text(drawn([_chart(report, change) for change in ("insert", "delete")]))


def _show(report: Report) -> None:
    console = Console(width=120)
    console.print(f"rows of V3: {_said(report.terms)}", highlight=False)
    shown = Table("change", "view", box=None, pad_edge=False)
    for heading in ("rows", "questions", "rows read", "asking, ms", "engine, ms", "applying, ms"):
        shown.add_column(heading, justify="right")
    shown.add_column("affected")
    for each in report.measured:
        counts = (each.rows, each.questions, each.rows_read)
        times = (each.asking, each.engine, each.applying)
        shown.add_row(
            each.change,
            each.view,
            *(f"{count:,}" for count in counts),
            *(f"{1000 * seconds:,.1f}" for seconds in times),
            _said(each.affected) if each.view == V3 else "",
        )
    console.print(shown)


def _said(terms: Mapping[str, int]) -> str:
    return ", ".join(f"{term} {number:,}" for term, number in terms.items())


def _chart(report: Report, change: str) -> Chart:
    series: dict[str, list[tuple[float, float]]] = {}
    for each in report.measured:
        if each.change == change:
            series.setdefault(each.view, []).append((each.rows, each.seconds * 1000))
            if each.view != _GRIFFIN_KUMAR:
                with_applying = (each.seconds + each.applying) * 1000
                series.setdefault(f"{each.view}, applied", []).append((each.rows, with_applying))
    return Chart(f"{change}: V3 and its core", "rows of lineitem", "CPU ms", series)


if __name__ == "__main__":
    typer.run(main)
