"""Stopping a job, even while it waits for something that may never come.

Only the main thread receives signals, and only between two steps of Python: not while it waits in
Kafka's client, gRPC or Py4J for something that is dead. So it only waits for the thread that works.
Work that has not ended in time is abandoned; a job may be abandoned anywhere, since only its
commits count.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
#: A person at a terminal waits for this long, a supervisor or a demo for longer.
_GRACE_SECONDS = {signal.SIGINT: 1.5, signal.SIGTERM: 8.0}
_LOOK_EVERY_SECONDS = 0.1


class Stopped(Exception):
    """The job had to stop while it waited; its current work is not committed."""


class Told:
    """Whether the work has to end, and by when."""

    def __init__(self, stopping: threading.Event) -> None:
        #: Set by a signal, or by the work itself.
        self.stopping = stopping
        self._deadline = math.inf

    def hear(self, number: int, _frame: FrameType | None = None) -> None:
        """The signal handler."""
        grace = _GRACE_SECONDS[signal.Signals(number)]
        self._deadline = min(self._deadline, time.monotonic() + grace)
        self.stopping.set()

    @property
    def too_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self._deadline


@contextmanager
def told_by_signals(stopping: threading.Event) -> Iterator[Told]:
    """Inside, SIGINT and SIGTERM set the event instead of raising something."""
    told = Told(stopping)
    before = {number: signal.signal(number, told.hear) for number in _GRACE_SECONDS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def begun(call: Callable[[], T], name: str) -> Future[T]:
    """The result of a call in a daemon thread, which the process does not wait for at its end.

    (It does wait for the threads of an executor.)
    """
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return result


def is_done(work: Future[T], stopping: threading.Event, seconds: float) -> bool:
    """Whether the work ends in so many seconds; Stopped if the event is set before."""
    until = time.monotonic() + seconds
    while not work.done() and time.monotonic() < until:
        if stopping.wait(_LOOK_EVERY_SECONDS):
            raise Stopped
    return work.done()


def wait_for(work: Future[T], told: Told, look: Callable[[], None]) -> bool:
    """Whether the work ended before the deadline; `look` is called now and then meanwhile."""
    while not told.too_late:
        try:
            work.exception(_LOOK_EVERY_SECONDS)
        except TimeoutError:
            look()
        else:
            return True
    return work.done()
