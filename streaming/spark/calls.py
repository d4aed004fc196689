"""Calls that other threads hand to the job's thread, which alone touches the state of the views.

    Spark's callback   call ──> queue ──> make_next   the job's thread
                         ^───── outcome ─────┘

The caller waits until its call is made or refused.
"""

import queue
from collections.abc import Callable
from concurrent.futures import Future

from streaming.stopping import Stopped


class Calls:
    """The queue of calls, and the way back of their outcomes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], Future[None]]]
        self._queue = queue.SimpleQueue()
        self._closed = False

    def call(self, do: Callable[[], object]) -> None:
        """Returns when the job's thread has made the call; raises the error of the call.

        Raises Stopped if the call is not made, because `close` came before its turn.
        """
        outcome: Future[None] = Future()
        self._queue.put((do, outcome))
        # Looked at after the call is in the queue, so either `close` or this thread refuses it.
        if self._closed:
            self._refuse_waiting()
        outcome.result()

    def make_next(self, seconds: float) -> bool:
        """Makes the next call, if one comes in so many seconds; raises its error here as well.

        Returns whether one came.
        """
        try:
            do, outcome = self._queue.get(timeout=seconds)
        except queue.Empty:
            return False
        try:
            do()
        except BaseException as error:
            outcome.set_exception(error)
            raise
        outcome.set_result(None)
        return True

    def close(self) -> None:
        """Refuses the calls that wait, and all that come later."""
        self._closed = True
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while True:
            try:
                _, outcome = self._queue.get_nowait()
            except queue.Empty:
                return
            outcome.set_exception(Stopped())
