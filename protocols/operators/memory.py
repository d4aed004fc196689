"""The memory of an operator: the groups it knows between batches, so that it need not ask again.

It holds a row per group: the group's number of rows, its sums, its least value; or the number of
partners of a join key. It is only a copy of what the sources could tell: any other group is read as
of the cut before the batch, and remembered from then on. So a memory may be empty (after a restart)
or forget (when it is full) at any time, nothing has to be stored or recovered, and no relation is
kept.

Finding a few groups must not cost as much as there are groups, and neither must learning them. So
each batch of learnt groups is a part of its own, sorted by the hashes of the groups, and merged
with parts that are not much larger: there are few parts, each much smaller than the one before it.
Equal hashes only say that groups may be equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.frame import all_equal, chosen, once, picked, row_hashes, taken
from protocols.operators.keys import NOBODY, Nobody, These

#: The most groups that are remembered. When there are more, those that were learnt longest ago are
#: forgotten, until a tenth of the room is free.
ROOM = 1_000_000
#: A part is merged with the next one unless it is more than this many times as large.
_MUCH = 4


@dataclass(frozen=True, eq=False)
class _Part:
    """Groups in the order of their hashes; no two have the same hash."""

    rows: pl.DataFrame
    hashes: NDArray[np.uint64]
    #: The batch in which each was learnt.
    learnt: NDArray[np.int64]

    def gathered(self, places: NDArray[np.intp]) -> "_Part":
        """The groups at some places."""
        return _Part(taken(self.rows, places), self.hashes[places], self.learnt[places])


class Memory:
    """Rows by some of their columns, which are unique."""

    def __init__(self, by: list[str], room: int = ROOM) -> None:
        self._by = by
        self._room = room
        #: The last part that has a group is right about it. There is no part until something is
        #: learnt.
        self._parts: list[_Part] = []
        #: The number of batches so far.
        self._batches = 0
        #: Waiting for the end of the batch: groups as they are then, and groups that were read.
        self._learnt: pl.DataFrame | None = None
        self._seen: pl.DataFrame | None = None
        #: Whether all existing groups were seen, so that all others are known to be empty.
        self._knows_all = self._saw_all = False

    def find(self, wanted: pl.DataFrame) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """The groups among these that are remembered, and those that are not."""
        if not self._parts:
            return None, wanted.clear() if self._knows_all else wanted
        hashes = row_hashes(wanted, self._by).to_numpy()
        # Sorted keys are found in roughly one pass.
        places = np.argsort(hashes)
        hashes, rest = hashes[places], taken(wanted, places)
        known = [self._parts[0].rows.clear()]
        for part in reversed(self._parts):
            rows, found = self._known(part, rest, hashes)
            if found.any():
                known.append(rows)
                hashes, rest = hashes[~found], chosen(rest, ~found)
        return pl.concat(known), rest.clear() if self._knows_all else rest

    def learn(self, rows: pl.DataFrame) -> None:
        """Stores the groups that a batch changes, in their state after the batch."""
        self._learnt = rows

    def seen(self, rows: pl.DataFrame, all_of_them: bool = False) -> None:
        """Takes groups as they were before the batch; they stay so unless `learn` gets them too."""
        if all_of_them or not self._saw_all:
            self._seen, self._saw_all = rows, all_of_them

    def settle(self) -> None:
        """Ends the batch: from now on the memory is true of the state after it."""
        self._batches += 1
        self._knows_all = self._knows_all or self._saw_all
        for rows in (self._seen, self._learnt):
            if rows is not None and not rows.is_empty():
                self._add(rows)
        self._learnt, self._seen, self._saw_all = None, None, False

    @property
    def knows_all(self) -> bool:
        """Whether groups that are not remembered are known to be empty."""
        return self._knows_all

    def sample(self, most: int, rng: Random) -> These | Nobody:
        """Some of the groups that are remembered."""
        if not self._parts:
            return NOBODY
        (part,) = rng.choices(self._parts, [part.rows.height for part in self._parts])
        places = rng.sample(range(part.rows.height), min(most, part.rows.height))
        return These(picked(part.rows[places], self._by))

    def everything(self) -> These | Nobody:
        """All groups that are remembered."""
        if not self._parts:
            return NOBODY
        return These(once(pl.concat([picked(part.rows, self._by) for part in self._parts])))

    def _known(
        self, part: _Part, wanted: pl.DataFrame, hashes: NDArray[np.uint64]
    ) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
        """The rows of a part for these groups, and for which of them it has one."""
        places = np.searchsorted(part.hashes, hashes)
        places[places == len(part.hashes)] = 0
        found = part.hashes[places] == hashes
        if not found.any():
            return part.rows.clear(), found
        rows, asked = taken(part.rows, places[found]), picked(chosen(wanted, found), self._by)
        if picked(rows, self._by).equals(asked):
            return rows, found
        # Another group has the same hash.
        columns = [(rows.get_column(name), asked.get_column(name)) for name in self._by]
        same = np.logical_and.reduce([ours.eq_missing(theirs) for ours, theirs in columns])
        found[found] = same
        return rows.filter(same), found

    def _add(self, rows: pl.DataFrame) -> None:
        """Adds rows, which replace those known of their groups."""
        if self._parts:
            rows = picked(rows, self._parts[0].rows.columns)
        hashes = row_hashes(rows, self._by).to_numpy()
        part = _Part(rows, hashes, np.full(len(hashes), self._batches))
        several, height = [part.gathered(np.argsort(hashes))], rows.height
        while self._parts and self._parts[-1].rows.height <= _MUCH * height:
            several.insert(0, self._parts.pop())
            height += several[0].rows.height
        self._parts.append(self._merged(several))
        if sum(part.rows.height for part in self._parts) > self._room:
            self._keep_to_the_room()

    def _merged(self, parts: list[_Part]) -> _Part:
        """Merges several parts; of a group the last row counts."""
        hashes = np.concatenate([part.hashes for part in parts])
        learnt = np.concatenate([part.learnt for part in parts])
        whole = _Part(pl.concat([part.rows for part in parts]), hashes, learnt)
        # Equal hashes keep their order; sorted stretches are merged in one pass.
        places = np.argsort(hashes, kind="stable")
        again = hashes[places[1:]] == hashes[places[:-1]]
        older, newer = places[:-1][again], places[1:][again]
        if not all_equal(whole.rows, self._by, older, newer):
            # Another group of the same hash is forgotten.
            self._knows_all = False
        return whole.gathered(places[np.append(~again, True)])

    def _keep_to_the_room(self) -> None:
        """Forgets the groups that were learnt longest ago."""
        whole = self._merged(self._parts)
        room = self._room - self._room // 10
        if whole.rows.height > room:
            newest = np.argsort(-whole.learnt, kind="stable")[:room]
            whole, self._knows_all = whole.gathered(np.sort(newest)), False
        self._parts = [whole]


class Memories:
    """The memories of all operators of one view, so that later operators can go on with them."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[int, int], Memory] = {}

    def of(self, place: int, side: int, by: list[str]) -> Memory:
        """The memory of an operator (by its number in the tree), or of one side of it."""
        return self._by_place.setdefault((place, side), Memory(by))

    def at(self, place: int) -> Iterator[tuple[int, Memory]]:
        """The memories of one operator, each with its side."""
        for (operator, side), memory in self._by_place.items():
            if operator == place:
                yield side, memory
