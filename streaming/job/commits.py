"""Commits go on while the next batch is at work.

They are made one after the other, in the order in which they were handed over, by one thread; at
most one waits behind the one at work, so a slow disk slows the batches down and nothing piles up.
What goes wrong in it is raised in the job's thread, which then ends as well: whatever was handed
over later was not committed, and Delta says where to begin again.
"""

import queue
import threading
from collections.abc import Callable

_WAITING = 1


class Commits:
    """The thread that writes, and its queue."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_WAITING)
        #: What ended the writing.
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            try:
                # After an error nothing may follow: it would be a gap.
                if self._error is None:
                    commit()
            except BaseException as error:
                self._error = error
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def hand_over(self, commit: Callable[[], None]) -> None:
        """The next thing to do; waits while another one waits already."""
        self._raise()
        self._queue.put(commit)
        # What went wrong while we waited for room: this one will not be done any more.
        self._raise()

    @property
    def idle(self) -> bool:
        """Whether all that was handed over is done."""
        return self._queue.unfinished_tasks == 0

    def settle(self) -> None:
        """Returns when everything handed over is done; raises what went wrong."""
        self._queue.join()
        self._raise()

    def close(self) -> None:
        """Ends the thread after what was handed over."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
