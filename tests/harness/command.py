"""`viewsweep run` in this process, or as a separate process, over a small world.

In this process a plain reader replaces Spark and gives the job everything in the topics as one
batch; all else is real.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cli import main as commandline
from streaming.job.job import Job
from streaming.job.running import Running
from streaming.settings.configuration import Configuration
from streaming.spark import sparkjob
from tests.harness.places import ROOT
from tests.harness.records import ends, records
from tests.harness.waiting import patience
from tests.harness.world import World


class OneBatch:
    """Replaces Spark: everything in the topics, once."""

    def __init__(
        self, job: Job, running: Running, configuration: Configuration, _report: object
    ) -> None:
        self.job = job
        self._running = running
        self._bootstrap = configuration.kafka.bootstrap

    def run(self, _spark: object, _once: bool) -> None:
        found = records(self._bootstrap, self._running.offsets)
        self._running.process(self._running.by_source(ends(found)))
        self._running.settle()


@dataclass
class Ended:
    """The end of a command: exit code and message."""

    code: int
    #: The one message, without the program's name; empty if there was none.
    message: str
    lines: list[str]


class Command:
    """`viewsweep run` over a world."""

    def __init__(
        self, world: World, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
    ) -> None:
        self.world = world
        self._capsys = capsys
        self._patch = patch
        patch.setattr(commandline, "_leave", sys.exit)
        patch.setattr(sparkjob, "_Stream", OneBatch)
        patch.setattr(sparkjob, "spark_session", lambda _report: None)
        patch.delenv("VIEWSWEEP_BROKER", raising=False)

    def run(self, *options: str, **changes: Any) -> Ended:
        file = self.world.write_configuration(**changes)
        self._patch.setattr(sys, "argv", ["viewsweep", "run", "--config", str(file), *options])
        with pytest.raises(SystemExit) as ended:
            commandline.main()
        lines = self._capsys.readouterr().err.splitlines()
        assert not any("Traceback" in line for line in lines)
        complaints = [line for line in lines if line.startswith("viewsweep: ")]
        assert len(complaints) <= 1
        message = complaints[0].removeprefix("viewsweep: ") if complaints else ""
        return Ended(int(ended.value.code or 0), message, lines)

    def goes_on(self, **changes: Any) -> None:
        """Checks that the command succeeds, and that the view is right and up to date."""
        self.world.wait_until_published()
        ended = self.run(**changes)
        assert (ended.code, ended.message) == (0, "")
        with self.world.job(**changes) as job:
            job.check()
            self.world.assert_complete(job.tables)
            assert job.tables.standing().vector == self.world.versions

    def is_refused(self, code: int, *parts: str, **changes: Any) -> Ended:
        """Checks that the command fails with this code and a message that contains all parts."""
        ended = self.run(**changes)
        assert ended.code == code
        for part in parts:
            assert part in ended.message
        return ended


@contextlib.contextmanager
def running(world: World, **changes: Any) -> Iterator["subprocess.Popen[str]"]:
    """The real command, in its own process group, as under a terminal."""
    file = world.write_configuration(**changes)
    command = [sys.executable, "-m", "cli.main", "run", "--config", str(file)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ctrl_c_at(process: "subprocess.Popen[str]", line: str) -> str:
    """Presses Ctrl-C when the line appears; returns stderr from there on."""
    assert process.stderr is not None
    watchdog = threading.Timer(patience(), process.kill)
    watchdog.start()
    for said in process.stderr:
        if line in said:
            os.killpg(process.pid, signal.SIGINT)
            break
    rest = process.stderr.read()
    process.wait()
    watchdog.cancel()
    return rest
