"""The log of one relation: its changes by version, as they were decoded. The mailbox reads it."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from protocols.algebra.delta import POSITION
from protocols.algebra.frame import Frame, picked

VERSION = "_version"


@dataclass(frozen=True)
class Room:
    """How much of a log may stay in memory, and how the rest is spilled."""

    bytes: int
    #: Returns the same rows, now without memory of their own.
    spill: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, eq=False)
class _Part:
    """A stretch of a log: rows in version order and, for searching, their versions beside them."""

    rows: pl.DataFrame
    versions: np.ndarray
    #: Its size in memory; 0 if it was spilled.
    bytes: int

    def after(self, version: int) -> int:
        """The index of the first row above a version."""
        return int(np.searchsorted(self.versions, version, side="right"))


def _part(rows: pl.DataFrame, size: float) -> _Part:
    return _Part(rows, rows[VERSION].to_numpy(), int(size))


class FrameLog:
    """The changes of one relation: frames with `_count` and `_version`."""

    def __init__(self, room: Room | None = None) -> None:
        #: Without one everything stays in memory.
        self._room = room
        #: In version order; none is empty. Changes arrive in small portions, so parts of similar
        #: size are merged: that keeps them few, and `between` is called for every answer. Spilled
        #: parts come first and are not merged again.
        self._parts: list[_Part] = []
        #: The last version of each part.
        self._ends: list[int] = []

    def append(self, changes: pl.DataFrame) -> None:
        if changes.is_empty():
            return
        smaller = len(self._parts)
        height = changes.height
        size = changes.estimated_size()
        while smaller and self._merges(self._parts[smaller - 1], height):
            smaller -= 1
            height += self._parts[smaller].rows.height
            size += self._parts[smaller].bytes
        merged = pl.concat([*(part.rows for part in self._parts[smaller:]), changes])
        self._parts[smaller:] = [_part(merged, size)]
        self._ends[smaller:] = [changes.item(-1, VERSION)]
        self._keep_to_the_room()

    def _merges(self, part: _Part, height: int) -> bool:
        """Whether a part is merged with the `height` rows that follow it."""
        return part.bytes > 0 and part.rows.height <= height

    def _keep_to_the_room(self) -> None:
        """Spills everything in memory, as one part, when it is more than there is room for."""
        if self._room is None or self.bytes <= self._room.bytes:
            return
        first = next(number for number, part in enumerate(self._parts) if part.bytes)
        rows = pl.concat([part.rows for part in self._parts[first:]])
        self._parts[first:] = [_part(self._room.spill(rows), 0)]
        self._ends[first:] = self._ends[-1:]

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        return sum(part.bytes for part in self._parts)

    def between(self, after: int, upto: int) -> Frame | None:
        found = self.versioned(after, upto)
        if found is None:
            return None
        return Frame(picked(found, [name for name in found.columns if name != VERSION]))

    def placed(self, after: int, upto: int, positions: Sequence[int]) -> Frame | None:
        found = self.versioned(after, upto)
        if found is None:
            return None
        index = found.get_column(VERSION).to_numpy() - (after + 1)
        place = pl.Series(POSITION, np.asarray(positions, dtype=np.int64)[index])
        columns = [found.get_column(name) for name in found.columns if name != VERSION]
        return Frame(pl.DataFrame([*columns, place]))

    def versioned(self, after: int, upto: int) -> pl.DataFrame | None:
        """The changes with `after < version <= upto`, each with its version; None for none."""
        first = bisect_right(self._ends, after)
        found = []
        for part in self._parts[first:]:
            start, stop = part.after(after), part.after(upto)
            if start >= stop:
                break
            found.append(part.rows[start:stop])
        return pl.concat(found) if found else None

    def rows(self) -> pl.DataFrame | None:
        """All changes, each with its version; None when there are none."""
        return pl.concat([part.rows for part in self._parts]) if self._parts else None

    def forget(self, upto: int) -> None:
        done = bisect_right(self._ends, upto)
        del self._parts[:done], self._ends[:done]
        if self._parts:
            first = self._parts[0]
            # A slice releases no memory; the next merge or the end of the part does.
            self._parts[0] = _part(first.rows[first.after(upto) :], first.bytes)
