"""The memory of the processes of a run, and of all that they start.

Shared pages are divided among the processes that share them (PSS, where the kernel has it); summed
resident sizes would count them once for each.
"""

import threading
from typing import Self

import psutil

#: Reading the pages of a large process takes milliseconds from the process that is measured.
_EVERY_SECONDS = 1.0


class PeakMemory:
    """Watches, inside `with`, all children that were started after it was created.

    Or one process with all that it starts.
    """

    def __init__(self, process: int | None = None) -> None:
        self._root = None if process is None else psutil.Process(process)
        #: Processes that already run are not watched: the broker.
        self._before = set(psutil.Process().children())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        ours = command(psutil.Process())
        while True:
            # A child that has not yet become another program is still as large as we are.
            started = [each for each in self._watched() if command(each) != ours]
            self.bytes = max(self.bytes, sum(map(_resident, started)))
            if self._over.wait(_EVERY_SECONDS):
                return

    def _watched(self) -> list[psutil.Process]:
        started = {self._root} if self._root else set(psutil.Process().children()) - self._before
        return [each for root in started for each in (root, *descendants(root.pid))]


def descendants(root: int) -> list[psutil.Process]:
    """All that a process started, in turn; none if it has ended."""
    try:
        return psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command(process: psutil.Process) -> list[str]:
    """The words that started it; none if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _resident(process: psutil.Process) -> int:
    try:
        sizes = process.memory_full_info()
    except psutil.Error:
        return 0  # it has just ended
    return int(getattr(sizes, "pss", sizes.uss))
