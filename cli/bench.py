"""`viewsweep bench`: viewsweep and other engines, over one burst of updates.

Exit code: 0 when our results and states were right, 1 when one was wrong or a run of ours failed.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli import markdown
from infra.charts import Measured, medians, refuse_without_altair
from infra.options import taking
from sources.simulated.workloads import NAMES

_OURS = "viewsweep"
_ALONE = "viewsweep-engine"
#: Those of ours that are drawn beside the other engines; the rest are variants.
_COMPARED = {_OURS, _ALONE}
_LIMIT = "limit"
_MARK = "bench"


@dataclass(frozen=True)
class Benched:
    """The measurement: engines, load, repeats and output."""

    engines: Annotated[str | None, typer.Option(help="Only these engines, comma-separated.")] = None
    workload: Annotated[str, typer.Option(help=f"The workload: {NAMES}.")] = "chain4"
    base_rows: Annotated[
        int | None,
        typer.Option(min=100, help="Rows of all relations together.  [default: 1000000]"),
    ] = None
    updates: Annotated[
        int | None, typer.Option(min=100, help="Single-row transactions.  [default: 100000]")
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Send this many updates per second instead of one burst, and measure how fresh"
            " the view is.",
        ),
    ] = None
    seconds: Annotated[int, typer.Option(min=1, help="Duration with --rate.")] = 300
    repeats: Annotated[
        int,
        typer.Option(
            min=1, help="Runs per engine, alternating between engines; medians are shown."
        ),
    ] = 3
    quick: Annotated[
        bool, typer.Option("--quick", help="A small burst; its figures mean little.")
    ] = False
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw updates per second into this file (SVG), and those of viewsweep's variants"
            " into another one beside it (…-variants.svg)."
        ),
    ] = None
    into: Annotated[
        Path | None,
        typer.Option(
            help="Replace the table in this file, between <!-- bench --> and <!-- end of bench -->."
        ),
    ] = None


@taking(Benched)
def bench(options: Benched) -> None:
    """Measure viewsweep and other engines on this machine; compare each result with DuckDB's."""
    if options.into is not None:
        markdown.around(options.into, _MARK)
    if options.plot is not None:
        refuse_without_altair()
    report = _report(options)
    if options.plot is not None:
        _draw(report, options.plot)
    if options.into is not None:
        markdown.put(options.into, _MARK, _markdown(report))
    if options.json:
        sys.stdout.write(orjson.dumps(report).decode() + "\n")
    else:
        _show(report)
    raise typer.Exit(int(any(_failed(row) for row in report["rows"])))


def _report(options: Benched) -> dict[str, Any]:
    # Imported here: the engines import Spark and more, which no other command needs.
    from bench.burst import BurstSettings
    from bench.engines import engines as engines_of
    from bench.engines.path import SteadyPath
    from bench.sidebyside import side_by_side

    settings = BurstSettings(options.workload)
    if options.quick:
        settings = replace(settings, base_rows=20_000, updates=4_000, batch=1_000, states=10)
    settings = replace(
        settings,
        base_rows=options.base_rows or settings.base_rows,
        updates=options.updates or settings.updates,
    )
    names = None if options.engines is None else [e.strip() for e in options.engines.split(",")]
    chosen = engines_of(names)
    if options.rate is not None:
        chosen = [SteadyPath(options.rate)]
        settings = replace(settings, updates=int(options.rate * options.seconds))
    return side_by_side(chosen, settings, options.repeats, _say).to_json()


def _failed(row: dict[str, Any]) -> bool:
    """Whether it is a run of ours that failed or was wrong."""
    ours = row["engine"].startswith(_OURS)
    return ours and bool(row["right"] is False or row["wrong_states"] or row["failure"])


_HEADINGS = ("engine", "updates/s", "result", "wrong states", "memory, MB", "base rows kept")


def _show(report: dict[str, Any]) -> None:
    console = Console() if Console().is_terminal else Console(width=120)
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(_HEADINGS):
        side: Literal["left", "right"] = "right" if number in (1, 3, 4, 5) else "left"
        table.add_column(heading, justify=side)
    for row in report["rows"]:
        table.add_row(*map(escape, _cells(row)))
    console.print(table)
    settings = ", ".join(f"{name} {value}" for name, value in report["settings"].items())
    console.print(f"[dim]{escape(settings)}[/dim]")
    for row in report["rows"]:
        console.print(f"[dim]{escape(row['engine'])}: {escape(row['about'])}[/dim]")
        if row["p50_ms"] is not None:
            fresh = f"p50 {row['p50_ms']:,.0f} ms, p99 {row['p99_ms']:,.0f} ms"
            console.print(escape(f"{row['engine']}: freshness {fresh}"))
        if row["step_seconds"]:
            console.print(escape(f"{row['engine']}: {_shares(row['step_seconds'])}"))


def _cells(row: dict[str, Any]) -> list[str]:
    if row["missing"] or row["failure"]:
        why = f"not installed: {row['missing']}" if row["missing"] else f"failed: {row['failure']}"
        return [row["engine"], "-", why, "-", "-", "-"]
    result = {True: "right", False: "WRONG", None: "no view"}[row["right"]]
    checked = row["states_checked"]
    memory = row["peak_rss_bytes"]
    return [
        row["engine"],
        f"{row['updates_per_s']:,.0f}",
        result + (", inserts only" if row["inserts_only"] else ""),
        f"{row['wrong_states']} of {checked}" if checked else "-",
        f"{memory / 1e6:,.0f}" if memory else "-",
        f"{row['base_rows_kept']:,}",
    ]


def _measured(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in report["rows"] if row["updates_per_s"] is not None]


def _draw(report: dict[str, Any], into: Path) -> None:
    """One picture of us beside the others, and another one of our variants."""
    rows = _measured(report)
    ours = [row for row in rows if row["engine"].startswith(_OURS)]
    variants = [row for row in ours if row["engine"] not in _COMPARED]
    _draw_rows([row for row in rows if row not in variants], _role, report, into)
    if variants:
        _draw_rows(ours, _extent, report, into.with_stem(f"{into.stem}-variants"))


def _draw_rows(
    rows: Sequence[dict[str, Any]],
    kind: Callable[[dict[str, Any]], str],
    report: dict[str, Any],
    into: Path,
) -> None:
    if not rows:
        return
    settings = report["settings"]
    title = (
        f"Updates per second: {settings['updates']:,} updates of {settings['workload']} over"
        f" {settings['base_rows']:,} base rows, medians of {settings['repeats']}"
    )
    points = [
        Measured(r["engine"], r["updates_per_s"], r["runs"], kind(r), _remark(r)) for r in rows
    ]
    markdown.write(into, medians(title, points))
    _say(f"{into}: updates per second")


def _role(row: dict[str, Any]) -> str:
    if row["engine"] == _LIMIT:
        return "the limit"
    return "keeps all base rows" if row["base_rows_kept"] else "keeps no base rows"


def _extent(row: dict[str, Any]) -> str:
    return "engine alone" if row["engine"].startswith(_ALONE) else "whole path"


def _remark(row: dict[str, Any]) -> str:
    if row["right"] is False:
        return "(WRONG)"
    return f"({row['wrong_states']} states wrong)" if row["wrong_states"] else ""


def _markdown(report: dict[str, Any]) -> str:
    """The table, and the settings of the measurement."""
    rows = [[*_cells(row), row["about"]] for row in _measured(report)]
    settings = ", ".join(
        f"{name} {value}" for name, value in report["settings"].items() if name != "machine"
    )
    return f"{markdown.table([*_HEADINGS, 'what it is'], rows)}\n\n{settings}."


def _shares(steps: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in steps.items())


def _say(message: str) -> None:
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)
