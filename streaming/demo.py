"""`viewsweep demo`: everything for real on one machine, and a verdict at the end.

A Kafka broker, one process per source, the Spark job and the checker, exactly as a user would start
them by hand (README, "By hand"); this file only starts them in turn and watches.
"""

import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from infra.broker import which_broker
from infra.owned import OwnedProcess
from protocols.checking.checker import Verdict
from protocols.checking.checker import check as judge
from protocols.checking.levels import claimed_by
from protocols.checking.trace import read_trace
from protocols.errors import Unreachable, ViewsweepError, WrongUse
from protocols.maintenance.registry import PROTOCOLS
from protocols.maintenance.registry import protocol as protocol_named
from sources.workloads import WORKLOADS
from sources.workloads import workload as workload_named
from streaming.checking import show_verdict
from streaming.configuration import read_configuration
from streaming.tracing import write_live_trace
from warehouse.definition import stored_view
from warehouse.tables import ViewTables

_PATIENCE_SECONDS = 240
_VIEWSWEEP = [sys.executable, "-m", "streaming.commandline"]
_CONFIGURATION = """\
# Made by `viewsweep demo`; it is a complete configuration like any other.
[warehouse]
path = "lake"

[kafka]
bootstrap = "{bootstrap}"
{sources}
[views.demo]
sql = "view.sql"
protocol = "{protocol}"
"""


@dataclass(frozen=True)
class Plan:
    """What the demo is asked to do."""

    protocol: str
    workload: str
    updates: int
    rate: float
    seed: int


def demo(
    protocol: Annotated[
        str, typer.Option(help=f"Which protocol keeps the view: {', '.join(PROTOCOLS)}.")
    ] = "sweep",
    workload: Annotated[
        str, typer.Option(help=f"What the sources do: {', '.join(WORKLOADS)}.")
    ] = "retail",
    updates: Annotated[
        int, typer.Option(min=1, help="How many transactions, over all sources.")
    ] = 3000,
    rate: Annotated[
        float, typer.Option(min=1, help="Transactions per second, over all sources.")
    ] = 100.0,
    seed: Annotated[int, typer.Option(help="Seed of the workload.")] = 7,
    broker: Annotated[
        str | None, typer.Option(help="A Kafka broker to use instead of starting one.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Leave everything in this (new) directory to look at.")
    ] = None,
) -> None:
    """Show it all at work: broker, sources, job, and the checker's verdict on the run.

    Exit code 0 when the run was as consistent as the protocol claims, 1 when it was not; with
    --protocol naive, which takes no errors out of answers, it is not.
    """
    protocol_named(protocol)
    workload_named(workload)
    plan = Plan(protocol, workload, updates, rate, seed)
    with _directory(keep) as directory, which_broker(broker, _say) as kafka:
        _say(kafka.description)
        verdict = _Demo(plan, directory, kafka.bootstrap).run()
    raise typer.Exit(0 if verdict.verdict == "valid" and _was_concurrent(verdict) else 1)


@contextlib.contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        made = Path(tempfile.mkdtemp(prefix="viewsweep-demo-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    if keep.exists() and any(keep.iterdir()):
        raise WrongUse(f"--keep {keep}: the directory exists and is not empty")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()
    _say(f"everything is left in {keep}: topics are gone with the broker, the tables are in lake/")


class _Demo:
    """One run from the first source to the verdict."""

    def __init__(self, plan: Plan, directory: Path, bootstrap: str) -> None:
        self._plan = plan
        self._directory = directory
        self._bootstrap = bootstrap
        self._workload = workload_named(plan.workload)
        #: What has been started so far, to be ended in reverse.
        self._running = contextlib.ExitStack()

    def run(self) -> Verdict:
        with self._running:
            self._make_sources()
            addresses = self._serve()
            config = self._configure(addresses)
            job = self._start("job", "run --config warehouse.toml --summary summary.json")
            self._wait_until_installed(job, addresses)
            job.stop()
            return self._judge(config)

    def _make_sources(self) -> None:
        _say(f"making the sources {', '.join(self._workload.sources)} ({self._plan.workload})")
        makers = [
            self._start(
                f"init-{name}",
                f"sources init {name}.db --source {name}"
                f" --workload {self._plan.workload} --seed {self._plan.seed}",
            )
            for name in self._workload.sources
        ]
        for maker in makers:
            if maker.wait(_PATIENCE_SECONDS):
                raise ViewsweepError(f"{maker.name} failed:\n{maker.last_words()}")

    def _serve(self) -> dict[str, str]:
        names = self._workload.sources
        share = -(-self._plan.updates // len(names))
        servers = {
            name: self._start(
                name,
                f"sources serve {name}.db --broker {self._bootstrap}"
                f" --topic {self._topic(name)} --address-file {name}.address"
                f" --workload {self._plan.workload} --transactions {share}"
                f" --rate {self._plan.rate / len(names):.3f}",
            )
            for name in names
        }
        addresses = {name: self._address(name, server) for name, server in servers.items()}
        for name, address in addresses.items():
            _say(f"source {name} answers at {address}, and commits")
        return addresses

    def _topic(self, source: str) -> str:
        """A given broker may have topics of earlier demos."""
        return f"{source}-{self._directory.name}"

    def _address(self, name: str, server: OwnedProcess) -> str:
        file = self._directory / f"{name}.address"
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not file.exists():
            if server.ended() is not None or time.monotonic() > deadline:
                raise ViewsweepError(f"source {name} did not start:\n{server.last_words()}")
            time.sleep(0.05)
        return file.read_text().strip()

    def _configure(self, addresses: dict[str, str]) -> Path:
        sources = "".join(
            f'\n[sources.{name}]\naddress = "{address}"\ntopic = "{self._topic(name)}"\n'
            for name, address in addresses.items()
        )
        (self._directory / "view.sql").write_text(self._workload.view)
        config = self._directory / "warehouse.toml"
        text = _CONFIGURATION.format(
            bootstrap=self._bootstrap, sources=sources, protocol=self._plan.protocol
        )
        config.write_text(text)
        return config

    def _start(self, name: str, arguments: str) -> OwnedProcess:
        log = self._directory / f"{name}.log"
        command = ["env", "-C", str(self._directory), *_VIEWSWEEP, *arguments.split()]
        process = OwnedProcess(name, command, log)
        self._running.callback(process.stop)
        return process

    def _wait_until_installed(self, job: OwnedProcess, addresses: dict[str, str]) -> None:
        """Until the workloads have ended and the view stands at the sources' versions."""
        shown = 0
        share = -(-self._plan.updates // len(addresses))
        deadline = time.monotonic() + _PATIENCE_SECONDS + self._plan.updates / self._plan.rate
        while not self._all_installed(share):
            shown = _show_new_lines(job.log, shown)
            if job.ended() is not None:
                raise ViewsweepError(f"the job ended by itself:\n{job.last_words()}")
            if time.monotonic() > deadline:
                raise Unreachable(f"the job does not get there:\n{job.last_words()}")
            time.sleep(0.5)
        _show_new_lines(job.log, shown)

    def _all_installed(self, share: int) -> bool:
        directory = self._directory / "lake" / "demo"
        if not (directory / "changes").exists():
            return False
        with contextlib.suppress(ViewsweepError):
            vector = ViewTables(directory.parent, stored_view(directory)).standing().vector
            return all(version >= share for version in vector.values())
        return False

    def _judge(self, config: Path) -> Verdict:
        configuration = read_configuration(config)
        trace = self._directory / "trace.jsonl"
        write_live_trace(configuration, configuration.view(None), trace)
        self._summarise()
        with trace.open("rb") as lines:
            verdict = judge(read_trace(lines), claimed_by(self._plan.protocol))
        show_verdict(verdict)
        if not _was_concurrent(verdict):
            _say("[red]nothing was concurrent in this run, so it proves nothing[/red]")
        return verdict

    def _summarise(self) -> None:
        summary = json.loads((self._directory / "summary.json").read_text())
        steps = summary["step_seconds"]
        _say(
            f"{summary['updates']:,} updates installed in {summary['seconds']:.0f} s;"
            f" {summary['queries']:,} questions, {summary['corrected_answers']:,} of their answers"
            " held later updates"
        )
        _say(
            "seconds by step: " + ", ".join(f"{name} {spent:.1f}" for name, spent in steps.items())
        )


def _was_concurrent(verdict: Verdict) -> bool:
    return verdict.counts.compensated > 0


def _show_new_lines(log: Path, shown: int) -> int:
    lines = log.read_text(errors="replace").splitlines()
    for line in lines[shown:]:
        Console(stderr=True).print(f"[dim]{escape(line)}[/dim]", highlight=False, soft_wrap=True)
    return len(lines)


def _say(message: str) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)
