"""Spark's JVM is killed under a running job, or a batch fails: one message, and the job resumes."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from tests.harness.system import LiveSystem
from tests.harness.waiting import eventually, patience

TRANSACTIONS = 30


@pytest.fixture(scope="module")
def system(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """Sources that have committed, and a job that keeps its view."""
    directory = tmp_path_factory.mktemp("live")
    with LiveSystem(directory, broker.bootstrap) as system:
        system.serve_all(TRANSACTIONS)
        system.wait_until_published(TRANSACTIONS)
        yield system


def opened(process: int) -> list[str]:
    """The open files of a process."""
    found = []
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return found


def said(system: LiveSystem) -> list[str]:
    """The job's messages without its progress lines."""
    lines = (system.directory / "job-kept.log").read_text().splitlines()
    return [line for line in lines if not line.startswith("position ")]


def test_a_killed_jvm_is_one_message_and_exit_3_and_the_same_command_goes_on(
    system: LiveSystem,
) -> None:
    place = system.directory / "tmp"
    job = system.start_job()
    system.wait_until_installed(TRANSACTIONS)
    eventually(lambda: any("keeping it" in line for line in said(system)), "the stream runs")
    [jvm] = system.jvms("kept")
    assert {file.name.partition("-")[0] for file in place.glob("viewsweep-job-*/*")} >= {"spark"}
    elsewhere = tuple(f"{tempfile.gettempdir()}/{name}-" for name in ("spark", "blockmgr"))
    assert not [file for file in opened(jvm) if file.startswith(elsewhere)]
    before = len(said(system))
    os.kill(jvm, signal.SIGKILL)
    assert job.wait(patience()) == 3
    [message] = said(system)[before:]
    assert "viewsweep: Spark's JVM has ended" in message
    assert "the same command goes on" in message
    system.serve_all(2 * TRANSACTIONS)
    assert list(place.iterdir()) == [], "the job has removed what its JVM left"
    system.start_job()
    system.wait_until_installed(2 * TRANSACTIONS)
    system.stop("job-kept")
    assert list(place.iterdir()) == []
    code, verdict = system.verdict()
    assert code == 0, verdict["contradiction"]


def test_a_killed_job_leaves_a_directory_that_the_next_start_removes(system: LiveSystem) -> None:
    place = system.directory / "tmp"
    system.start_job()
    eventually(lambda: bool(list(place.glob("viewsweep-job-*/spark-*"))), "Spark has its files")
    [left] = place.iterdir()
    system.kill("job-kept")
    assert left.exists()
    system.start_job()
    eventually(lambda: not left.exists(), "what the killed job left is gone")
    eventually(lambda: bool(list(place.glob("viewsweep-job-*/spark-*"))), "Spark has its files")
    system.stop("job-kept")
    assert list(place.iterdir()) == []
