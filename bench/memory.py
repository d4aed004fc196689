"""The memory of the processes of a run, and of all that they start.

Shared pages are divided among the processes that share them (PSS, where the kernel has it); summed
resident sizes would count them once for each.
"""

import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Self

#: Reading the pages of a large process takes milliseconds from the process that is measured.
_EVERY_SECONDS = 1.0
_PROC = Path("/proc")


class PeakMemory:
    """Watches, inside `with`, all children that were started after it was created.

    Or one process with all that it starts.
    """

    def __init__(self, process: int | None = None) -> None:
        self._process = process
        #: Processes that already run are not watched: the broker.
        self._before = descendants(os.getpid()) if process is None else set()
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
        ours = command(os.getpid())
        while True:
            tree = descendants(self._process or os.getpid(), self._before)
            if self._process is not None:
                tree.add(self._process)
            # A child that has not yet become another program is still as large as we are.
            started = [each for each in tree if command(each) != ours]
            self.bytes = max(self.bytes, sum(map(_resident, started)))
            if self._over.wait(_EVERY_SECONDS):
                return


def descendants(root: int, but: Collection[int] = ()) -> set[int]:
    """All descendants of a process, without those in `but` and their descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it has just ended
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [root]
    while todo:
        new = [each for each in children.get(todo.pop(), ()) if each not in but]
        found.update(new)
        todo += new
    return found


def command(process: int) -> bytes:
    try:
        return (_PROC / str(process) / "cmdline").read_bytes()
    except OSError:
        return b""  # it has just ended


def _resident(process: int) -> int:
    try:
        text = (_PROC / str(process) / "smaps_rollup").read_text()
    except OSError:
        return 0  # it has just ended
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return int(sizes[0]) * 1024 if sizes else 0
