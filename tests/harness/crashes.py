"""Crashes of a live system's parts, and what must not be there afterwards."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
from deltalake import DeltaTable

from infra.localbroker import LocalBroker
from protocols.errors import ViewsweepError
from tests.harness.system import SOURCES, LiveSystem, _below
from tests.harness.waiting import eventually
from warehouse.order import order_from_note

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
