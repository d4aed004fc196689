"""The whole system as a user runs it, for tests and `bench/crashes.py` to observe and to break.

A broker, three source processes and the streaming job: real processes, started through the command
line, each with its own log in one directory. This code does not look inside them; it reads their
progress from Delta and asks the sources.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import polars as pl
from deltalake import DeltaTable

from bench.memory import command, descendants
from infra.localbroker import LOOPBACK, LocalBroker, free_port
from infra.owned import OwnedProcess
from protocols.errors import Unreachable, ViewsweepError
from sources.simulated.workloads import workload
from sources.wire.client import SourceClient
from tests.harness.waiting import eventually, patience
from warehouse.definition import stored_view
from warehouse.order import order_from_note
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
        return subprocess.run(
            [*_VIEWSWEEP, *arguments.split()],
            cwd=self.directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(),
        )

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


# -- crashes -------------------------------------------------------------------------------------

Part = Literal["job", "jvm", "source", "broker"]
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Crash:
    """The part that is killed or stopped, when, and how long it stays down."""

    #: The JVM is Spark's, a child of the job.
    part: Part
    #: With SIGSTOP instead of SIGKILL: it continues as it was, without noticing.
    stopped: bool
    #: One of the sources, if the part is one.
    source: str
    #: Whether the view makes progress first; otherwise the crash may hit the last restart.
    after_progress: bool
    #: Seconds before the crash, after that progress or after the last restart.
    pause: float
    away: float
    #: Whether the job finds its Spark checkpoint deleted when it comes back.
    without_checkpoint: bool


def crashes(
    kills: Mapping[Part, int], seed: int, stops: Mapping[Part, int] | None = None
) -> list[Crash]:
    """Draws kills and stops of each part and their moments from the seed; one killed job loses its
    checkpoint.
    """
    dice = random.Random(seed)
    victims = [(part, False) for part, count in kills.items() for _ in range(count)]
    victims += [(part, True) for part, count in (stops or {}).items() for _ in range(count)]
    dice.shuffle(victims)
    loses_checkpoint = dice.choice([i for i, each in enumerate(victims) if each == ("job", False)])
    return [
        _crash(dice, part, stopped, i == loses_checkpoint)
        for i, (part, stopped) in enumerate(victims)
    ]


def _crash(dice: random.Random, part: Part, stopped: bool, loses_checkpoint: bool) -> Crash:
    # A job that has installed a batch since its start has a checkpoint to lose.
    after_progress = loses_checkpoint or dice.random() < 0.75
    # Long enough to hit a running batch, or any point of a start with its recovery.
    pause = dice.uniform(0, 2.5 if after_progress else 12)
    away = STOP_SECONDS if stopped else dice.uniform(0, 1.5)
    source = dice.choice(SOURCES)
    return Crash(part, stopped, source, after_progress, pause, away, loses_checkpoint)


class CrashingSystem:
    """A live system under load whose parts are killed one after the other."""

    def __init__(self, system: LiveSystem, broker: LocalBroker, rate: float = 12.0) -> None:
        self._system = system
        self._broker = broker
        self._rate = rate
        #: How often the job ended with a message because a part was down, and was started again.
        self.gave_up = 0

    def start(self) -> None:
        """Starts sources that commit without end, and a job; waits for its first state."""
        self._system.serve_all(rate=self._rate)
        self._system.wait_until_published(1)
        self._system.start_job()
        self._system.wait_for_first_state()

    def suffer(self, crash: Crash) -> int:
        """Runs one crash and the restart; returns the position at which it happened."""
        if crash.after_progress:
            self._wait_for_progress()
        time.sleep(crash.pause)
        position = self._position()
        if crash.stopped:
            self._stop(crash)
        elif crash.part == "job":
            self._crash_job(crash)
        elif crash.part == "jvm":
            self._crash_jvm(crash)
        elif crash.part == "source":
            self._system.kill(crash.source)
            time.sleep(crash.away)
            self._system.serve(crash.source, rate=self._rate)
        else:
            self._broker.kill()
            time.sleep(crash.away)
            self._broker.restart()
        return position

    def _stop(self, crash: Crash) -> None:
        """Stops the part and continues it; if it ended meanwhile, its supervisor restarts it."""
        processes = self._processes_of(crash)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            if number == signal.SIGSTOP:
                time.sleep(crash.away)

    def _processes_of(self, crash: Crash) -> list[int]:
        if crash.part == "jvm":
            return self._jvms()
        if crash.part == "broker":
            assert self._broker.pid is not None
            return _below(self._broker.pid)
        name = crash.source if crash.part == "source" else "job-kept"
        return self._system.programs(name)

    def _crash_jvm(self, crash: Crash) -> None:
        """The job reports the crash and ends with 3; its supervisor starts it again."""
        for process in self._jvms():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        eventually(lambda: self._system.has_ended("job-kept"), "the job ends without its JVM")
        time.sleep(crash.away)
        code = self._system.ended_with("job-kept")
        if code != 3:
            raise RuntimeError(f"without its JVM the job ended with {code}")
        self._system.stop("job-kept")
        self._system.start_job()

    def _jvms(self) -> list[int]:
        """The JVMs of Spark, once they have been started."""
        self._eventually(lambda: bool(self._system.jvms()), "the job has a JVM")
        return self._system.jvms()

    def _crash_job(self, crash: Crash) -> None:
        self._system.kill("job-kept")
        time.sleep(crash.away)
        if crash.without_checkpoint:
            checkpoint = self._system.lake / "kept" / "checkpoint"
            # At once, since Spark's JVM may outlive the job for a moment.
            gone = checkpoint.rename(checkpoint.with_name("lost"))
            shutil.rmtree(gone, ignore_errors=True)
        self._system.start_job()

    def _wait_for_progress(self) -> None:
        before = self._position()
        self._eventually(lambda: self._position() > before, "the view moves on")

    def _position(self) -> int:
        standing = self._system.standing()
        return 0 if standing is None else standing.position

    def settle(self) -> dict[str, int]:
        """Stops the workloads; waits until the view reaches their versions, and returns these."""
        for name in SOURCES:
            # A workload of no transactions: nothing more is committed.
            self._system.serve(name, transactions=0)
        versions: dict[str, int] = {}

        def is_there() -> bool:
            with contextlib.suppress(ViewsweepError):
                versions.update({n: int(self._system.status(n)["version"]) for n in SOURCES})
            standing = self._system.standing()
            return standing is not None and dict(standing.vector) == versions

        self._eventually(is_there, "the view reaches the sources' last versions")
        self._system.stop("job-kept")
        return versions

    def _eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Waits, and like a supervisor restarts a job that gives up."""

        def or_restart() -> bool:
            if self._system.has_ended("job-kept"):
                self.gave_up += 1
                self._system.stop("job-kept")
                self._system.start_job()
            return condition()

        eventually(or_restart, what)


def twice(system: LiveSystem, view: str = "kept") -> list[str]:
    """Describes deliveries that `progress` or `changes` holds more than once or not at all."""
    tables = system.tables(view)
    standing = tables.standing()
    recorded = tables.progress()
    expected = list(range(1, standing.position + 1))
    found = []
    if recorded["position"].to_list() != expected:
        found.append(f"progress: its positions are not 1 to {standing.position}, once each")
    changes = DeltaTable(system.lake / view / "changes")
    noted, delivered = list(_deliveries(changes)), list(recorded.select("source", "version").rows())
    if changes.history()[-1]["version"] > 0:
        # The beginning of the log has been cleaned up, as happens after some minutes.
        delivered = delivered[len(delivered) - len(noted) :]
    if not noted or noted != delivered:
        found.append("changes: its commits note other deliveries than progress")
    if len(set(noted)) != len(noted):
        found.append("changes: a transaction was installed twice")
    columns = [*tables.view.schema, "_position"]
    rows = tables.changes().select(columns).collect()
    if rows.is_duplicated().any():
        found.append("changes: a position holds the change of a row twice")
    if tables.changes().filter(pl.col("_position") > standing.position).collect().height:
        found.append("changes: there are rows beyond the last position")
    return found


def _deliveries(changes: DeltaTable) -> Iterator[tuple[str, int]]:
    """The deliveries named by the commits of `changes`, oldest first."""
    history: Sequence[dict[str, Any]] = list(reversed(changes.history()))
    for commit in history:
        if "viewsweep/order" in commit:
            order, _ = order_from_note(commit["viewsweep/order"])
            names = [order.sources[index] for index in order.source]
            yield from zip(names, order.version.tolist(), strict=True)
