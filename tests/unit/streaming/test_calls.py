"""Calls handed to the job's thread: who makes them, what comes back, and who is refused."""

import threading
from concurrent.futures import Future

import pytest

from streaming.spark.calls import Calls
from streaming.stopping import Stopped, begun

PATIENCE = 30.0


class _DiskError(Exception):
    """The error of a call."""


def _handed(calls: Calls, number: int, made: list[tuple[int, int]]) -> "Future[None]":
    """A call that notes its number and its thread, handed over in a thread of its own."""
    return begun(lambda: calls.call(lambda: made.append((number, threading.get_ident()))), "spark")


def test_a_call_is_made_by_the_thread_that_takes_it_and_its_caller_waits() -> None:
    calls, made = Calls(), list[tuple[int, int]]()
    for number in range(20):
        caller = _handed(calls, number, made)
        with pytest.raises(TimeoutError):
            caller.result(0.01)
        assert calls.make_next(PATIENCE)
        caller.result(PATIENCE)
    assert made == [(number, threading.get_ident()) for number in range(20)]


def test_without_a_call_the_thread_goes_on() -> None:
    assert not Calls().make_next(0.01)


def test_an_error_reaches_both_threads() -> None:
    calls = Calls()

    def fail() -> None:
        raise _DiskError("the disk is full")

    caller = begun(lambda: calls.call(fail), "spark")
    with pytest.raises(_DiskError, match="the disk is full"):
        calls.make_next(PATIENCE)
    with pytest.raises(_DiskError, match="the disk is full"):
        caller.result(PATIENCE)


def test_calls_that_wait_and_later_ones_are_refused_and_not_made() -> None:
    calls, made = Calls(), list[tuple[int, int]]()
    waiting = _handed(calls, 1, made)
    with pytest.raises(TimeoutError):
        waiting.result(0.05)
    calls.close()
    for refused in (waiting, _handed(calls, 2, made)):
        with pytest.raises(Stopped):
            refused.result(PATIENCE)
    assert not calls.make_next(0.01)
    assert made == []


def test_nobody_waits_for_ever_when_calls_and_the_end_cross() -> None:
    for _ in range(200):
        calls, made = Calls(), list[tuple[int, int]]()
        callers = [_handed(calls, number, made) for number in range(4)]
        calls.close()
        for caller in callers:
            with pytest.raises(Stopped):
                caller.result(PATIENCE)
