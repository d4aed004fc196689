"""The whole system as a user runs it, for tests and `bench/crashes.py` to observe and to break.

A broker, three source processes and the streaming job: real processes, started through the command
line, each with its own log in one directory. This code does not look inside them; it reads their
progress from Delta and asks the sources.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from unittest import mock

from bench.memory import command, descendants
from infra.localbroker import LOOPBACK, free_port
from infra.owned import OwnedProcess
from protocols.errors import Unreachable, ViewsweepError
from sources.simulated.workloads import workload
from sources.wire.client import SourceClient
from tests.harness.running import ran
from tests.harness.waiting import eventually
from warehouse.definition import stored_view
from warehouse.standing import Standing
from warehouse.tables import ViewTables

WORKLOAD = workload("retail")

SOURCES = WORKLOAD.sources

#: The partitions of each source's topic: the last source has several.
PARTITIONS = {**dict.fromkeys(SOURCES, 1), SOURCES[-1]: 3}

#: The views of a `LiveSystem`: name → protocol.
VIEWS = {"kept": "sweep", "uncompensated": "naive"}

_VIEWSWEEP = [sys.executable, "-m", "cli.main"]

_SCALE = 60

_SEED = 11

#: Small batches: many commits to crash between, and visible progress of the view.
_BATCH = 100

#: Seconds that a job waits for a source: on a busy machine a restart takes long, and a job that
#: gives up would look broken.
_PATIENCE = 600


class LiveSystem:
    """Sources that commit, and jobs that keep views of them; all end with the context."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.lake = directory / "lake"
        #: A source restarts at the same port.
        self._ports = {name: free_port() for name in SOURCES}
        #: The running processes by name: sources, and jobs as `job-VIEW`.
        self._running: dict[str, OwnedProcess] = {}

    def __enter__(self) -> Self:
        (self.directory / "tmp").mkdir()
        self._make_sources()
        self._configure()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if error is not None:
            # The logs tell the reason, and are deleted at the end.
            error.add_note("\n".join(self._last_words()))
        for process in reversed(list(self._running.values())):
            process.stop()

    def _last_words(self) -> Iterator[str]:
        for name, process in self._running.items():
            is_stuck = name.startswith("job-") and process.ended() is None
            yield f"the last words of {name}:\n{process.last_words(12 if is_stuck else 4)}"
            if is_stuck:
                process.abort()
                yield f"where {name} was:\n{_without_callers(process.last_words(400))}"

    # -- sources ---------------------------------------------------------------------------------

    def topic(self, source: str) -> str:
        """The topic of a source; a given broker may have topics of earlier runs."""
        return f"{source}-{self.directory.parent.name}-{self._ports[source]}"

    def address(self, source: str) -> str:
        return f"grpc://{LOOPBACK}:{self._ports[source]}"

    def initial(self, source: str) -> Path:
        """A copy of the source's file from before its first commit."""
        return self.directory / f"{source}-initial.db"

    def _make_sources(self) -> None:
        for name in SOURCES:
            ready = f"--workload {WORKLOAD.name} --scale {_SCALE} --seed {_SEED}"
            self.done(f"sources init {name}.db --source {name} {ready}")
            shutil.copy(self.directory / f"{name}.db", self.initial(name))

    def serve(self, source: str, transactions: int | None = None, rate: float = 60.0) -> None:
        """(Re)starts a source whose workload commits up to this many transactions, or for ever."""
        self.stop(source)
        # Written again when it answers; the old file would say so too early.
        (self.directory / f"{source}.address").unlink(missing_ok=True)
        total = "" if transactions is None else f" --transactions {transactions}"
        self._start(
            source,
            f"sources serve {source}.db --broker {self.bootstrap} --topic {self.topic(source)}"
            f" --partitions {PARTITIONS[source]}"
            f" --port {self._ports[source]} --address-file {source}.address"
            f" --workload {WORKLOAD.name} --rate {rate / len(SOURCES):.3f}{total}",
        )

    def serve_all(self, transactions: int | None = None, rate: float = 60.0) -> None:
        """(Re)starts all sources, and waits until each of them answers."""
        for name in SOURCES:
            self.serve(name, transactions, rate)
        eventually(self._all_answer, "all sources answer")

    def _all_answer(self) -> bool:
        for name in SOURCES:
            self.refuse_ended(name)
        return all((self.directory / f"{name}.address").exists() for name in SOURCES)

    def status(self, source: str) -> dict[str, Any]:
        with SourceClient(self.address(source), source=source) as client:
            return client.status()

    def wait_until_published(self, transactions: int) -> None:
        """Waits until every source has committed and published this many transactions."""

        def are_there() -> bool:
            for name in SOURCES:
                self.refuse_ended(name)
            # A busy source may not answer in time.
            with contextlib.suppress(Unreachable):
                return all(self.status(name)["published"] >= transactions for name in SOURCES)
            return False

        eventually(are_there, f"{transactions} transactions of each source are published")

    # -- jobs ------------------------------------------------------------------------------------

    def _configure(self) -> None:
        sources = "".join(
            f'\n[sources.{name}]\naddress = "{self.address(name)}"\ntopic = "{self.topic(name)}"\n'
            for name in SOURCES
        )
        views = "".join(
            f'\n[views.{view}]\nsql = "view.sql"\nprotocol = "{protocol}"\n'
            for view, protocol in VIEWS.items()
        )
        (self.directory / "view.sql").write_text(WORKLOAD.view)
        (self.directory / "warehouse.toml").write_text(
            f'[warehouse]\npath = "lake"\n\n[kafka]\nbootstrap = "{self.bootstrap}"\n'
            f"{sources}{views}\n[job]\nrecords_per_batch = {_BATCH}\n"
            f"patience_seconds = {_PATIENCE}\n"
        )

    def start_job(self, view: str = "kept") -> OwnedProcess:
        return self._start(f"job-{view}", f"run --config warehouse.toml --view {view}")

    def stop(self, name: str) -> None:
        """Stops a source or a job properly, if it runs."""
        if name in self._running:
            self._running.pop(name).stop()

    def kill(self, name: str) -> None:
        """Ends a source or a job with SIGKILL."""
        self._running.pop(name).kill()

    def programs(self, name: str) -> list[int]:
        """The process of a source or a job itself, without its child processes."""
        return _below(self._running[name].pid, "cli.main")

    def jvms(self, view: str = "kept") -> list[int]:
        """The processes of Spark below the job that keeps the view."""
        return _below(self._running[f"job-{view}"].pid, "org.apache.spark.deploy")

    def refuse_ended(self, name: str) -> None:
        """Fails if a process of the system has ended by itself."""
        process = self._running.get(name)
        if process is not None and process.ended() is not None:
            raise RuntimeError(f"{name} ended by itself:\n{process.last_words()}")

    def has_ended(self, name: str) -> bool:
        return self._running[name].ended() is not None

    def ended_with(self, name: str) -> int | None:
        """The exit code of a source or a job that has ended."""
        return self._running[name].ended()

    # -- the progress of a view ------------------------------------------------------------------

    def tables(self, view: str = "kept") -> ViewTables:
        return ViewTables(self.lake, stored_view(self.lake / view))

    def standing(self, view: str = "kept") -> Standing | None:
        """The standing of the view; None before its first state."""
        if (self.lake / view / "changes" / "_delta_log").exists():
            with contextlib.suppress(ViewsweepError):
                return self.tables(view).standing()
        return None

    def wait_for_first_state(self, view: str = "kept") -> None:
        def is_there() -> bool:
            self.refuse_ended(f"job-{view}")
            return self.standing(view) is not None

        eventually(is_there, f"the first state of {view}")

    def wait_until_installed(self, versions: int, view: str = "kept") -> None:
        """Waits until the view stands at this version of every source."""

        def is_there() -> bool:
            self.refuse_ended(f"job-{view}")
            standing = self.standing(view)
            return standing is not None and set(standing.vector.values()) == {versions}

        eventually(is_there, f"{view} stands at version {versions} of every source")

    # -- the command line ------------------------------------------------------------------------

    def verdict(self, view: str = "kept") -> tuple[int, dict[str, Any]]:
        """Exit code and answer of the checker on the trace of the view so far."""
        ran = self.run(f"check {self.trace(view)} --json")
        if ran.returncode not in (0, 1):
            raise RuntimeError(ran.stderr)
        return ran.returncode, json.loads(ran.stdout)

    def trace(self, view: str = "kept") -> Path:
        """Writes the trace of the view so far."""
        file = self.directory / f"{view}.jsonl"
        self.done(f"trace {file} --config warehouse.toml --view {view}")
        return file

    def done(self, arguments: str) -> str:
        """The output of a command, which must succeed."""
        ran = self.run(arguments)
        if ran.returncode:
            raise RuntimeError(f"viewsweep {arguments}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def run(self, arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command that ends by itself; only what runs beside the test gets a process."""
        with mock.patch.dict(os.environ, self._environment(), clear=True):
            return ran(arguments.split(), self.directory)

    def _environment(self) -> dict[str, str]:
        """Killed processes leave their temporary files where they are deleted with the system."""
        return environment() | {"TMPDIR": str(self.directory / "tmp")}

    def _start(self, name: str, arguments: str) -> OwnedProcess:
        command = ["env", "-C", str(self.directory), *_VIEWSWEEP, *arguments.split()]
        process = OwnedProcess(name, command, self.directory / f"{name}.log", self._environment())
        self._running[name] = process
        return process


def _below(process: int, word: str = "") -> list[int]:
    """The processes below this one that have the word in their commands."""
    return [
        each.pid for each in descendants(process) if any(word in part for part in command(each))
    ]


def _without_callers(stacks: str) -> str:
    """Shortens the stacks of faulthandler to the innermost three frames of each thread."""
    kept, left = [], 0
    for line in stacks.splitlines():
        is_thread = "(most recent call first)" in line
        left = 4 if is_thread else left - 1
        if left > 0 and (is_thread or line.startswith("  File")):
            kept.append(line)
    return "\n".join(kept)


def environment() -> dict[str, str]:
    """Our environment without the broker: the configuration names the broker of the test.

    An aborted program prints the stacks of its threads.
    """
    ours = {key: value for key, value in os.environ.items() if key != "VIEWSWEEP_BROKER"}
    return ours | {"PYTHONFAULTHANDLER": "1"}
