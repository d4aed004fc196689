"""`viewsweep demo`: the real system on one machine, and a verdict at the end."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import polars as pl
import typer
from rich.console import Console
from rich.markup import escape

from cli.check import show_verdict
from infra.broker import which_broker
from infra.options import taking
from infra.owned import OwnedProcess
from infra.workplace import workplace
from protocols.checking.checker import check as judge
from protocols.checking.tracereading import read_trace
from protocols.checking.verdict import Verdict
from protocols.errors import WrongUse
from protocols.maintenance.registry import DEFAULT, PROTOCOLS
from protocols.maintenance.registry import protocol as protocol_named
from protocols.views.sql import parse_view
from sources.simulated.workloads import WORKLOADS
from sources.simulated.workloads import workload as workload_named
from streaming.figures.measuring import FRESH_SECONDS
from streaming.local.load import Load
from streaming.local.system import STREAMS, VIEW, Kind, LocalSystem

#: The further views of the workloads, besides their inner joins.
_FURTHER = ", ".join(f"{v} ({w.name})" for w in WORKLOADS.values() for v in w.further)

#: So many rows of the view are shown at the end.
_ROWS = 5
_FURTHER_ON = (
    "Go on with README.md, 'By hand' (the same, step by step) and 'Your own sources';"
    " docs/sources.md specifies a source of your own"
)


@dataclass(frozen=True)
class DemoOptions:
    """The demo's protocol, view and load."""

    protocol: Annotated[
        str, typer.Option(help=f"The protocol that keeps the view: {', '.join(PROTOCOLS)}.")
    ] = DEFAULT
    workload: Annotated[
        str | None,
        typer.Option(
            help=f"The sources' workload: {', '.join(WORKLOADS)}.",
            show_default="retail, or shop for a protocol that needs one source",
        ),
    ] = None
    view: Annotated[
        str | None,
        typer.Option(
            help=f"The view to keep: {_FURTHER}.",
            show_default="the workload's inner join",
        ),
    ] = None
    updates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of transactions, over all sources.",
            show_default="2100, or 100 for a protocol that needs one source",
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Transactions per second, over all sources.",
            show_default="60, or 3 for a protocol that needs one source",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 7
    sources: Annotated[
        Kind,
        typer.Option(
            help="The sources: simulated ones, or databases with Debezium; mixed has one of each."
        ),
    ] = "simulated"
    broker: Annotated[
        str | None, typer.Option(help="A Kafka broker to use instead of starting one.")
    ] = None
    keep: Annotated[Path | None, typer.Option(help="Keep all files in this (new) directory.")] = (
        None
    )
    json: Annotated[
        bool, typer.Option("--json", help="The job's figures and the verdict as JSON on stdout.")
    ] = False

    @property
    def load(self) -> Load:
        """The sources' load; by default one that the protocol can keep up with.

        The ECA family corrects each unanswered query for each update: its work grows with the cube
        of the backlog.
        """
        entry = protocol_named(self.protocol)
        usual = ("shop", 100, 3.0) if entry.one_source else ("retail", 2100, 60.0)
        chosen = workload_named(self.workload or usual[0])
        if self.sources != "simulated" and (entry.fifo or entry.one_source):
            able = [e.name for e in PROTOCOLS.values() if not (e.fifo or e.one_source)]
            raise WrongUse(
                f"protocol {self.protocol} cannot keep views over databases with Debezium; choose"
                f" one of: {', '.join(able)}"
            )
        entry.refuse_view(parse_view(VIEW, chosen.view_named(self.view), chosen.catalog))
        updates, rate = self.updates or usual[1], self.rate or usual[2]
        return Load(chosen.name, updates, rate, self.seed, view=self.view)


@taking(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Run everything: broker, sources, job, and the checker's verdict on the run.

    Exit code 0 if the run was as consistent as the protocol claims, otherwise 1. With --protocol
    naive, which does not correct answers, expect 1.
    """
    load = options.load
    with (
        _directory(options.keep) as directory,
        which_broker(options.broker, _say) as kafka,
        LocalSystem(
            directory, kafka.bootstrap, load, options.protocol, on=options.sources, progress=_say
        ) as system,
    ):
        _say(kafka.description)
        figures = _play(system)
        _summarise(figures)
        _show_rows(system)
        verdict = _judge(system, options.protocol, options.json)
        if not figures["corrected_answers"]:
            _say("[red]nothing was concurrent in this run, so it proves nothing[/red]")
    _say(_FURTHER_ON)
    if options.json:
        whole = {"job": figures, "verdict": verdict.to_json()}
        sys.stdout.write(orjson.dumps(whole).decode() + "\n")
    raise typer.Exit(0 if verdict.verdict == "valid" and figures["corrected_answers"] else 1)


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with workplace("demo") as made:
            yield made
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise WrongUse(f"--keep {keep}: it exists and is not an empty directory")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()
    _say(f"kept in {keep}: the Delta tables in lake/demo, trace.jsonl, and the processes' logs")


def _play(system: LocalSystem) -> dict[str, Any]:
    """Runs sources and job until the last update is installed; returns the job's figures."""
    _say(f"making the sources {', '.join(system.load.sources)} ({system.load.workload})")
    system.make_sources()
    for name, address in system.serve(at_rest=True).items():
        _say(f"source {name} answers at {address}")
    job = system.start_job()
    shown = _wait(system, job, 0, lambda: STREAMS in job.log.read_text(errors="replace"))
    # Earlier commits would not be concurrent with anything.
    system.begin()
    load = system.load
    _say(f"the sources commit {load.transactions:,} transactions, {load.rate:g} a second")
    shown = _wait(system, job, shown, system.everything_is_installed)
    figures = system.stop_job(job)
    _show_new_lines(job, shown)
    return figures


def _wait(system: LocalSystem, job: OwnedProcess, shown: int, done: Callable[[], bool]) -> int:
    """Shows the job's messages until `done` is true; returns the number of lines shown."""
    since = time.monotonic()
    while not done():
        shown = _show_new_lines(job, shown)
        system.refuse_to_wait_for(job, since)
        time.sleep(0.5)
    return _show_new_lines(job, shown)


def _judge(system: LocalSystem, protocol: str, quietly: bool) -> Verdict:
    """The checker's verdict, shown unless it goes out as JSON."""
    configuration = system.configuration()
    trace = system.directory / "trace.jsonl"
    from streaming.tracing import write_live_trace

    write_live_trace(configuration, configuration.view(None), trace)
    with trace.open("rb") as lines:
        verdict = judge(read_trace(lines), PROTOCOLS[protocol].level)
    if not quietly:
        show_verdict(verdict)
    return verdict


def _summarise(summary: dict[str, Any]) -> None:
    skipped = summary["skipped_queries"]
    _say(
        f"{summary['updates']:,} updates installed with {summary['queries']:,} questions"
        + (f" ({skipped:,} more were not needed)" if skipped else "")
        + f"; {summary['corrected_answers']:,} answers already held later updates"
    )
    p50, p99 = (summary[f"freshness_{percent}_ms"] for percent in ("p50", "p99"))
    if p50 is not None:
        _say(
            "freshness, from the commit at a source to the commit in Delta, over the last"
            f" {FRESH_SECONDS:.0f} s: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms"
        )
    steps = ", ".join(f"{name} {spent:.1f}" for name, spent in summary["step_seconds"].items())
    _say(f"seconds by step: {steps}")


def _show_rows(system: LocalSystem) -> None:
    """Shows the first rows of the view as a reader finds them."""
    rows = pl.read_delta(str(system.directory / "lake" / VIEW / "current"))
    _say(f"the view has {rows.height:,} different rows; the first are")
    _say(f"[dim]{escape(rows.sort(rows.columns[0]).head(_ROWS).write_csv().rstrip())}[/dim]")


def _show_new_lines(job: OwnedProcess, shown: int) -> int:
    lines = job.log.read_text(errors="replace").splitlines()
    for line in lines[shown:]:
        Console(stderr=True).print(f"[dim]{escape(line)}[/dim]", highlight=False, soft_wrap=True)
    return len(lines)


def _say(message: str) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)
