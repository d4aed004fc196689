"""Ctrl-C ends `viewsweep run` wherever it waits: nothing is lost, and the same command resumes.

The time bound is far above the two seconds that are promised, and far below the time it took when
the job waited in the main thread (55 s with a dead broker).
"""

import os
import random
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.localbroker import LOOPBACK, LocalBroker
from streaming.spark import sparkjob
from tests.harness.command import Command, OneBatch, ctrl_c_at, running
from tests.harness.waiting import crowding, patience
from tests.harness.world import World, start

pytestmark = pytest.mark.world(transactions=12)


def _bound() -> float:
    """Seconds: 8, more on a busy machine, but always below those 55 s."""
    return min(8 * crowding(), 40)


def test_ctrl_c_while_waiting_for_a_dead_source(command: Command) -> None:
    command.world.sources["b"].stop_server()
    with running(command.world, patience_seconds=10 * patience()) as process:
        rest = ctrl_c_at(process, "trying again")
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert rest.count("viewsweep: stopped") == 1
    command.world.sources["b"].restart_server()
    command.goes_on()


def test_ctrl_c_in_the_first_state(command: Command) -> None:
    """The only test that may start Spark: the first state does not wait for it."""
    source = command.world.sources["a"]
    source.commit(*[("r", (10_000 + n, None, "p"), 1) for n in range(300)])
    command.world.wait_until_published()
    with running(command.world, page_rows=1) as process:
        rest = ctrl_c_at(process, "from a.r so far")
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert rest.count("viewsweep: stopped") == 1
    with command.world.job() as job:
        start(job)
    assert any("going on with the first state" in line for line in command.world.reports)
    command.goes_on()


@contextmanager
def stalled(port: int = 0) -> Iterator[socket.socket]:
    """A socket that accepts connections and does nothing else, like a process under SIGSTOP."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(50)
        yield listening


def _ctrl_c_when_connected(command: Command, listening: socket.socket, replaced: str) -> None:
    """Replaces a server by a stalled one, and stops the command while it waits for it."""
    instead = f"{LOOPBACK}:{listening.getsockname()[1]}"
    with running(command.world, toml={replaced: instead}) as process:
        assert select.select([listening], [], [], patience())[0]
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(_bound()) == 130
        assert process.stderr is not None
        said = process.stderr.read()
    assert said.count("viewsweep: stopped; what was committed stays") == 1
    assert "Traceback" not in said


def test_ctrl_c_while_a_broker_keeps_silent(command: Command) -> None:
    with stalled() as broker:
        _ctrl_c_when_connected(command, broker, command.world.bootstrap)
    command.goes_on()


def test_ctrl_c_while_a_query_server_keeps_silent(command: Command) -> None:
    server = command.world.sources["b"].address.removeprefix("grpc://")
    with stalled() as source:
        _ctrl_c_when_connected(command, source, server)
    command.goes_on()


def _endless() -> None:
    """Work that ignores a stop request."""
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(patience())
    raise AssertionError("it was waited for")


def test_ctrl_c_while_spark_starts(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []

    def starting(_report: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        waited.append(threading.Event().wait(patience()))

    monkeypatch.setattr(sparkjob, "spark_session", starting)
    command.is_refused(130, "stopped; what was committed stays")
    assert not waited
    monkeypatch.setattr(sparkjob, "spark_session", lambda _report: None)
    command.goes_on()


def test_ctrl_c_in_a_sweep_or_upkeep_that_does_not_end(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.goes_on()
    command.world.commit_at_random(random.Random(2), 12)

    def run(self: OneBatch, _spark: object, _once: bool) -> None:
        self.job.measures.phase = "keeping"
        _endless()

    with monkeypatch.context() as patch:
        patch.setattr(OneBatch, "run", run)
        ended = command.run()
    assert (ended.code, ended.message) == (0, "")
    for said in ("stopped without waiting longer; unfinished", "view v: stopped at position"):
        assert any(said in line for line in ended.lines)
    command.goes_on()


def test_ctrl_c_of_an_idle_view_whose_broker_has_died(
    mortal_broker: LocalBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With Spark, which waits a minute for its broker before it ends a stream."""
    with World(tmp_path, mortal_broker.bootstrap, "idle") as world:
        world.publish()
        with running(world) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "keeping it" in line:
                    break
            mortal_broker.kill()
            # Long enough for Spark to ask the broker once more.
            threading.Event().wait(2)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(_bound()) == 0
            assert "view v: stopped at position 0" in process.stderr.read()
        mortal_broker.restart()
        Command(world, capsys, monkeypatch).goes_on()


def test_that_spark_is_still_starting_is_said(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = threading.Event()

    def run(message: str) -> None:
        command.world.reports.append(message)
        if "still starting" in message:
            said.set()

    monkeypatch.setattr(sparkjob, "_SPARK_SECONDS", 0.1)
    monkeypatch.setattr("cli.run.report", run)
    monkeypatch.setattr(sparkjob, "spark_session", lambda _report: said.wait(patience()))
    assert command.run().code == 0
    assert said.is_set()
