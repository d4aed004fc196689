"""Programs that belong to their owner: how each way ends them, and what they leave behind."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.owned import OwnedProcess

_PATIENCE_SECONDS = 60
#: Waits in a function whose name a stack shows, and exits when asked to.
_PROGRAM = """
import signal, sys, time

def stands_here():
    print("ready", flush=True)
    time.sleep(600)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
stands_here()
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[OwnedProcess]:
    environment = os.environ | {"PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-c", _PROGRAM]
    owned = OwnedProcess("program", command, tmp_path / "log", environment)
    try:
        _wait_until_ready(owned)
        yield owned
    finally:
        owned.kill()


def _wait_until_ready(program: OwnedProcess) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while "ready" not in program.last_words():
        assert program.ended() is None, program.last_words()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_aborted_program_says_where_it_stood(program: OwnedProcess) -> None:
    assert program.abort() == 256 - signal.SIGABRT
    assert "Fatal Python error: Aborted" in program.last_words(50)
    assert "in stands_here" in program.last_words(50)


def test_a_stopped_program_ends_in_its_own_way(program: OwnedProcess) -> None:
    assert program.stop() == 3
    assert program.last_words() == "ready"


def test_a_killed_program_says_nothing_more(program: OwnedProcess) -> None:
    assert program.kill() == 256 - signal.SIGKILL
    assert program.last_words() == "ready"


def test_an_ended_program_takes_orders_without_complaint(tmp_path: Path) -> None:
    gone = OwnedProcess("gone", [sys.executable, "-c", "raise SystemExit(4)"], tmp_path / "log")
    assert gone.wait(_PATIENCE_SECONDS) == 4
    assert [gone.stop(), gone.abort(), gone.kill()] == [4, 4, 4]


def test_a_program_that_died_of_a_signal_is_told_from_one_that_left(tmp_path: Path) -> None:
    code = f"import os; os.kill(os.getpid(), {signal.SIGSEGV.value})"
    fell = OwnedProcess("fell", [sys.executable, "-c", code], tmp_path / "log")
    assert fell.wait(_PATIENCE_SECONDS) == 256 - signal.SIGSEGV
