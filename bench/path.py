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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from infra.broker import which_broker
from protocols.checking.checker import check
from protocols.checking.trace import read_trace
from protocols.maintenance.registry import DEFAULT
from sources.client import SourceClient
from streaming.localsystem import Load, LocalSystem
from streaming.tracing import write_live_trace

#: Updates committed while Spark was still starting say nothing about the steady state.
_WARMING_SECONDS = 20


def main(
    rate: Annotated[float, typer.Option(help="Updates per second of the steady run.")] = 50.0,
    seconds: Annotated[float, typer.Option(help="Length of the steady run.")] = 90.0,
    backlog: Annotated[int, typer.Option(help="Updates of the backlog run.")] = 5000,
    protocol: Annotated[str, typer.Option(help="Which protocol keeps the view.")] = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure the whole path on this machine."""
    steady = _steady(Load("retail", int(rate * seconds), rate), protocol)
    caught_up = _backlog(Load("retail", backlog, 100_000.0), protocol)
    if as_json:
        print(json.dumps({"steady": steady, "backlog": caught_up}))
    else:
        _show(steady, caught_up)


@contextmanager
def _system(load: Load, protocol: str) -> Iterator[LocalSystem]:
    with (
        tempfile.TemporaryDirectory(prefix="viewsweep-bench-") as directory,
        which_broker() as broker,
        LocalSystem(Path(directory), broker.bootstrap, load, protocol) as system,
    ):
        system.make_sources()
        yield system


def _steady(load: Load, protocol: str) -> dict[str, Any]:
    with _system(load, protocol) as system:
        system.serve()
        summary, progress = _kept(system)
        warming = pl.col("committed_at").min() + pl.duration(seconds=_WARMING_SECONDS)
        warm = progress.filter(pl.col("committed_at") > warming)
        delay = (warm["installed_at"] - warm["committed_at"]).dt.total_microseconds() / 1000
        return {
            **_common(system, protocol, summary),
            "updates": warm.height,
            "freshness_p50_ms": delay.quantile(0.5),
            "freshness_p99_ms": delay.quantile(0.99),
        }


def _backlog(load: Load, protocol: str) -> dict[str, Any]:
    """The first state and a few updates, then everything at once while no job runs."""
    with _system(replace(load, transactions=30), protocol) as system:
        system.serve()
        _kept(system)
        system.stop_sources()
        system.load = load
        addresses = system.serve()
        _wait_until_published(addresses, load.share)
        summary, progress = _kept(system)
        batches = progress.group_by("installed_at").len().sort("installed_at")
        mine = batches.tail(summary["batches"])
        # When the first batch was begun is not known: it starts the clock.
        span = (mine["installed_at"][-1] - mine["installed_at"][0]).total_seconds()
        return {
            **_common(system, protocol, summary),
            "updates": summary["updates"],
            "updates_per_s": mine["len"][1:].sum() / span if span else None,
        }


def _kept(system: LocalSystem) -> tuple[dict[str, Any], pl.DataFrame]:
    """Runs the job until everything is installed; its figures and the `progress` table."""
    job, since = system.start_job(), time.monotonic()
    while not (system.everything_is_installed() and "keeping it" in job.last_words(1000)):
        system.refuse_to_wait_for(job, since)
        time.sleep(0.5)
    summary = system.stop_job(job)
    job.log.unlink()
    tables = system.tables()
    assert tables is not None
    return summary, tables.progress()


def _wait_until_published(addresses: dict[str, str], version: int) -> None:
    for source, address in addresses.items():
        with SourceClient(address, source=source) as client:
            while client.status()["published"] < version:
                time.sleep(0.5)


def _common(system: LocalSystem, protocol: str, summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "settings": vars(system.load) | {"protocol": protocol},
        "verdict": _verdict(system),
        "queries_per_update": summary["queries"] / max(summary["updates"], 1),
        "step_seconds": summary["step_seconds"],
    }


def _verdict(system: LocalSystem) -> str:
    configuration = system.configuration()
    trace = system.directory / "trace.jsonl"
    write_live_trace(configuration, configuration.view(None), trace)
    with trace.open("rb") as lines:
        verdict = check(read_trace(lines))
    return f"{verdict.verdict}: {verdict.reached}"


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
