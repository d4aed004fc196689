"""The costs of a view after thousands of commits and after its first ones: `bench/commits.py`.

Two views of the same content in one process, one young and one old, measured in turns; the ratio
counts. Each commit changes a few rows, `current` follows each of them, and the upkeep runs as often
as in a job. CPU time of the process, so that a busy machine does not matter; medians.

    append     one batch into `changes` and `progress`
    follow     `current` takes it over
    open       another process finds the view and its standing
    read       all of `current`, by Polars
    at         the view at its position, summed from `changes`

A second table: the time of `follow` for the same thousand rows against the size of `current`.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from infra.workplace import workplace
from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.types import column_type
from protocols.exchange.deliveries import Deliveries
from protocols.views.catalog import Catalog, Relation
from protocols.views.sql import parse_view
from warehouse.progress import QUESTION
from warehouse.standing import Standing
from warehouse.tables import ViewTables
from warehouse.upkeep import tidy

_COLUMNS = (("id", column_type("BIGINT")), ("t", column_type("VARCHAR")))
_VIEW = parse_view(
    "v", "SELECT r.id, r.t FROM a.r r", Catalog((Relation("a", "r", _COLUMNS, ("id",)),))
)
_TEXTS = np.array([f"some text {number}" for number in range(1000)], object)


class ChangingView:
    """A view whose rows are modified, a few in each commit."""

    def __init__(self, directory: Path, rows: int, tidy_every: int) -> None:
        self.tables = ViewTables(directory, _VIEW)
        self._tidy_every = tidy_every
        self._random = np.random.default_rng(1)
        self._texts = self._random.integers(0, len(_TEXTS), rows)
        self.position = 0
        self.upkeep_seconds = 0.0
        self.tables.define()
        self.tables.begin(_frame(np.arange(rows), self._texts, 1), self._standing())
        self.tables.follow()

    def _standing(self) -> Standing:
        return Standing(self.position, {"a": self.position}, {"a": (self.position,)})

    def commit(self, rows: int) -> None:
        """One batch of one transaction, as the job commits it."""
        self.position += 1
        ids = self._random.choice(len(self._texts), rows, replace=False)
        before, after = self._texts[ids], (self._texts[ids] + 1) % len(_TEXTS)
        self._texts[ids] = after
        changes = pl.concat([_frame(ids, before, -1), _frame(ids, after, 1)])
        position = np.array([self.position], np.int64)
        order = Deliveries(("a",), position, np.zeros(1, np.int64), position)
        placed = changes.with_columns(pl.lit(self.position, pl.Int64).alias(POSITION))
        self.tables.install(placed, self._standing(), order)
        self.tables.record(_delivered(position))

    def live(self, commits: int, rows: int) -> None:
        """Makes so many commits; `current` follows each, and the upkeep runs now and then."""
        for number in range(1, commits + 1):
            self.commit(rows)
            self.tables.follow()
            if self._tidy_every and number % self._tidy_every == 0:
                self.upkeep_seconds += _cpu(self._tidy)

    def _tidy(self) -> None:
        tidy(self.tables)
        self.tables.catch_up()

    def refuse_wrong_rows(self) -> None:
        """Asserts that the view has the rows that numpy has kept beside it."""
        found = _read(self.tables).sort("id")
        assert found["t"].to_list() == _TEXTS[self._texts].tolist()
        assert found[COUNT].unique().to_list() == [1]


def _frame(ids: Any, texts: Any, count: int) -> pl.DataFrame:
    columns = {"id": ids, "t": pl.Series(_TEXTS[texts], dtype=pl.String)}
    return pl.DataFrame(columns).with_columns(pl.lit(count, pl.Int64).alias(COUNT))


def _delivered(position: Any) -> pl.DataFrame:
    return pl.DataFrame({"position": position, "source": ["a"], "version": position}).with_columns(
        pl.lit(None, pl.Datetime("us")).alias("committed_at"),
        pl.lit(0, pl.Int64).alias("skipped"),
        pl.lit(None, pl.List(QUESTION)).alias("questions"),
        pl.lit(True).alias("shown"),
    )


def _read(tables: ViewTables) -> pl.DataFrame:
    return pl.read_delta(str(tables.directory / "current"))


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _measured(kept: ChangingView, rows: int) -> dict[str, float]:
    tables = kept.tables
    return {
        "append": _cpu(lambda: kept.commit(rows)),
        "follow": _cpu(tables.follow),
        "open": _cpu(lambda: ViewTables(tables.directory.parent, _VIEW).standing()),
        "read": _cpu(lambda: _read(tables)),
        "at": _cpu(lambda: tables.at(kept.position)),
    }


def ages(young: int, old: int, rows: int, changed: int, tidy_every: int) -> list[dict[str, Any]]:
    """One row per operation: milliseconds of CPU after `young` and after `old` commits."""
    with workplace("bench") as directory:
        aged = ChangingView(directory / "old", rows, tidy_every)
        aged.live(old, changed)
        fresh = ChangingView(directory / "young", rows, tidy_every)
        fresh.live(young, changed)
        turns = [(_measured(fresh, changed), _measured(aged, changed)) for _ in range(15)]
        for kept in (fresh, aged):
            kept.refuse_wrong_rows()
        upkeep = 1000 * aged.upkeep_seconds / old
    found = []
    for what in turns[0][0]:
        before, after = (
            1000 * statistics.median(turn[age][what] for turn in turns) for age in (0, 1)
        )
        ratio = round(after / before, 2)
        found.append({"what": what, "young_ms": before, "old_ms": after, "ratio": ratio})
    return [*found, {"what": "upkeep per commit", "young_ms": 0.0, "old_ms": upkeep, "ratio": None}]


def sizes(changed: int) -> list[dict[str, Any]]:
    """One row per size of `current`: milliseconds of CPU to take over the same change."""
    found = []
    with workplace("bench") as directory:
        views = {
            rows: ChangingView(directory / str(rows), rows, 0) for rows in (10**4, 10**5, 10**6)
        }
        costs: dict[int, list[float]] = {rows: [] for rows in views}
        for _ in range(5):
            for rows, kept in views.items():
                kept.commit(changed)
                costs[rows].append(_cpu(kept.tables.follow))
        for rows, each in costs.items():
            found.append({"rows": rows, "follow_ms": 1000 * statistics.median(each)})
    return found


def main(
    young: Annotated[int, typer.Option(help="Commits of the young view.")] = 20,
    old: Annotated[int, typer.Option(help="Commits of the old view.")] = 2000,
    rows: Annotated[int, typer.Option(help="Rows of both.")] = 10_000,
    changed: Annotated[int, typer.Option(help="Rows that a commit modifies.")] = 10,
    tidy_every: Annotated[int, typer.Option(help="Commits between upkeeps; 0 for none.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Measure the costs of a view after few commits and after many."""
    settings = {"young": young, "old": old, "rows": rows, "changed": changed}
    by_age = ages(young, old, rows, changed, tidy_every)
    by_size = sizes(500)
    if as_json:
        settings["tidy_every"] = tidy_every
        print(json.dumps({"settings": settings, "ages": by_age, "sizes": by_size}))
        return
    _show(f"CPU ms after {young} and {old} commits, upkeep every {tidy_every} (0: never)", by_age)
    _show("CPU ms in which current takes over 1,000 changes", by_size)


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0], title=title, box=None)
    for row in rows:
        table.add_row(*(f"{v:,.2f}" if isinstance(v, float) else f"{v}" for v in row.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
