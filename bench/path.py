"""How fast and how fresh the whole path is on this machine: `make bench`.

Two runs with everything real (broker, source processes, Spark, Delta), each judged by the checker:

    steady     a given rate; freshness is the time from the commit at the source to the commit in
               Delta, of the updates after the first seconds
    backlog    the sources commit as fast as they can; updates per second while the job catches up

Prints a table, the share of each step of a micro-batch, and with --json everything for programs.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from infra.broker import which_broker
from protocols.checking.checker import check
from protocols.checking.trace import read_trace
from streaming.localsystem import Load, LocalSystem
from streaming.tracing import write_live_trace

#: Updates committed while Spark was still starting say nothing about the steady state.
_WARMING_SECONDS = 20


def main(
    rate: Annotated[float, typer.Option(help="Updates per second of the steady run.")] = 50.0,
    seconds: Annotated[float, typer.Option(help="Length of the steady run.")] = 90.0,
    backlog: Annotated[int, typer.Option(help="Updates of the backlog run.")] = 5000,
    protocol: Annotated[str, typer.Option(help="Which protocol keeps the view.")] = "sweep",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure the whole path on this machine."""
    steady = _run(Load("retail", int(rate * seconds), rate), protocol, _steady)
    caught_up = _run(Load("retail", backlog, 100_000.0), protocol, _backlog)
    if as_json:
        print(json.dumps({"steady": steady, "backlog": caught_up}))
    else:
        _show(steady, caught_up)


def _run(
    load: Load, protocol: str, figures: Callable[[pl.DataFrame], dict[str, Any]]
) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="viewsweep-bench-") as directory,
        which_broker() as broker,
        LocalSystem(Path(directory), broker.bootstrap, load, protocol) as system,
    ):
        system.make_sources()
        system.serve()
        job, since = system.start_job(), time.monotonic()
        while not system.everything_is_installed():
            system.refuse_to_wait_for(job, since)
            time.sleep(0.5)
        summary = system.stop_job(job)
        tables = system.tables()
        assert tables is not None
        return {
            "settings": vars(load) | {"protocol": protocol},
            "verdict": _verdict(system),
            **figures(tables.progress()),
            "queries_per_update": summary["queries"] / summary["updates"],
            "step_seconds": summary["step_seconds"],
        }


def _verdict(system: LocalSystem) -> str:
    configuration = system.configuration()
    trace = system.directory / "trace.jsonl"
    write_live_trace(configuration, configuration.view(None), trace)
    with trace.open("rb") as lines:
        verdict = check(read_trace(lines))
    return f"{verdict.verdict}: {verdict.reached}"


def _steady(progress: pl.DataFrame) -> dict[str, Any]:
    warming = pl.col("committed_at").min() + pl.duration(seconds=_WARMING_SECONDS)
    warm = progress.filter(pl.col("committed_at") > warming)
    delay = (warm["installed_at"] - warm["committed_at"]).dt.total_microseconds() / 1000
    return {
        "updates": warm.height,
        "freshness_p50_ms": delay.quantile(0.5),
        "freshness_p99_ms": delay.quantile(0.99),
    }


def _backlog(progress: pl.DataFrame) -> dict[str, Any]:
    batches = progress.group_by("installed_at").len().sort("installed_at")
    # The first batch's beginning is not known; it counts as the start of the clock.
    installed = batches["len"][1:].sum()
    span = (batches["installed_at"][-1] - batches["installed_at"][0]).total_seconds()
    return {"updates": progress.height, "updates_per_s": installed / span if span else None}


def _show(steady: dict[str, Any], backlog: dict[str, Any]) -> None:
    console = Console()
    table = Table("run", "updates", "result", "verdict")
    fresh = f"p50 {steady['freshness_p50_ms']:,.0f} ms, p99 {steady['freshness_p99_ms']:,.0f} ms"
    rate = f"{steady['settings']['rate']:g} updates/s"
    table.add_row(f"steady, {rate}", str(steady["updates"]), fresh, steady["verdict"])
    speed = f"{backlog['updates_per_s']:,.0f} updates/s"
    table.add_row("backlog", str(backlog["updates"]), speed, backlog["verdict"])
    console.print(table)
    for name, run in (("steady", steady), ("backlog", backlog)):
        steps = run["step_seconds"]
        # Asking and the lookahead happen inside the sweep.
        local = steps["sweep"] - steps["asking"] - steps["lookahead"]
        outer = {**steps, "sweep, local part": local}
        del outer["sweep"]
        total = sum(outer.values())
        shares = ", ".join(f"{step} {spent / total:.0%}" for step, spent in outer.items())
        console.print(f"{name}: {total:.1f} s in batches: {shares}")


if __name__ == "__main__":
    typer.run(main)
