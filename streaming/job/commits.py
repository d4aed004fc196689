"""The commits of one view run in a thread of their own, while the job processes the next batch.

The thread makes them one after the other, in the order in which they were handed over. At most one
is queued, so a slow disk slows the batches down and nothing piles up. An error of the thread is
raised in the job's thread and ends the view: commits handed over later were not made, and Delta
says where to begin again.
"""

import queue
import threading
from collections.abc import Callable

_WAITING = 1


class Commits:
    """The thread that writes, and its queue."""

    def __init__(self, name: str) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_WAITING)
        #: The error that ended the writing.
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
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
        """Enqueues the next commit; waits while another one is queued."""
        self._raise()
        self._queue.put(commit)
        # After an error that came while this one waited for room, it will not be made.
        self._raise()

    @property
    def idle(self) -> bool:
        """Whether all commits handed over are made."""
        return self._queue.unfinished_tasks == 0

    def settle(self) -> None:
        """Returns when all commits handed over are made; raises the error if one failed."""
        self._queue.join()
        self._raise()

    def close(self) -> None:
        """Ends the thread after the commits handed over."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
