"""The memory of a process and all its descendants, watched while something runs.

Pages that processes share are divided among them (PSS) where the kernel says so; summed resident
sizes would count them once for each.
"""

import os
import threading
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

_EVERY_SECONDS = 0.5
_PROC = Path("/proc")


class PeakMemory:
    """Watches from the beginning of `with` to its end."""

    def __init__(self, but: Collection[int] = (), root: int | None = None) -> None:
        #: Descendants that are left out, with theirs: the broker.
        self._but = frozenset(but)
        self._root = os.getpid() if root is None else root
        self._with_root = root is not None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            tree = descendants(self._root, self._but)
            roots = {self._root} if self._with_root else set()
            self.bytes = max(self.bytes, sum(_resident(each) for each in roots | tree))
            if self._over.wait(_EVERY_SECONDS):
                return


def descendants(root: int, but: Collection[int] = ()) -> set[int]:
    """All processes below this one, without those named and what is below them."""
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


def _resident(process: int) -> int:
    try:
        text = (_PROC / str(process) / "smaps_rollup").read_text()
    except OSError:
        return 0  # it has just ended
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return int(sizes[0]) * 1024 if sizes else 0
