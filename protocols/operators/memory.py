"""What an operator remembers between batches, so that it need not ask again.

A row per group: how many rows it has, its sums, its least value; or how many partners a join key
has. It is a copy of what the sources could tell, no more: what is not here is read as of the cut
before the batch, and remembered from then on. So a memory may be empty (after a restart) or forget
(when it is full) at any time, nothing has to be stored or recovered, and no relation is kept.

Finding a few groups among many must not cost what there are: most rows lie still, sorted by the
hashes of their groups, and those that were learnt since are few. Hashes only say what may be equal.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.frame import row_hashes
from protocols.operators.placed import among, without

#: How many groups are remembered; those that were not met for longest are forgotten.
ROOM = 1_000_000
#: The still rows are put in order anew when the recent ones are a tenth of them, and more than
_FEW = 1_000


class Memory:
    """Rows by some of their columns, which are unique."""

    def __init__(self, by: list[str], room: int = ROOM) -> None:
        self._by = by
        self._room = room
        #: None as long as nothing was learnt.
        self._still: pl.DataFrame | None = None
        self._hashes: NDArray[np.uint64] = np.array([], np.uint64)
        #: The place among the still rows of each hash.
        self._places: NDArray[np.int64] = np.array([], np.int64)
        #: Learnt since, in the place of still rows; the last ones at the end.
        self._recent: pl.DataFrame | None = None
        #: Waiting for the end of the batch: groups as they are then, and groups that were read.
        self._learnt: pl.DataFrame | None = None
        self._seen: pl.DataFrame | None = None
        #: Whether all groups that there are were seen, so that others are known to be empty.
        self._knows_all = self._saw_all = False

    def find(self, wanted: pl.DataFrame) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """What is known of these groups, and the groups that are not known."""
        if self._recent is None:
            return None, wanted
        known = among(self._recent, wanted)
        rest = without(wanted, known, self._by)
        if self._still is not None and not rest.is_empty():
            old = among(self._still[self._candidates(rest)], rest)
            known = pl.concat([known, old])
            if not self._knows_all:
                rest = without(rest, old, self._by)
        return known, rest.clear() if self._knows_all else rest

    def learn(self, rows: pl.DataFrame) -> None:
        """What the groups that a batch changes are like after it."""
        self._learnt = rows

    def seen(self, rows: pl.DataFrame, all_of_them: bool = False) -> None:
        """What groups were like before the batch, which does not change them unless learnt so."""
        if all_of_them or not self._saw_all:
            self._seen, self._saw_all = rows, all_of_them

    def settle(self) -> None:
        """The batch is done, and what is known is true of the state behind it."""
        parts = [part for part in (self._learnt, self._seen, self._recent) if part is not None]
        self._knows_all = self._knows_all or self._saw_all
        self._learnt, self._seen, self._saw_all = None, None, False
        if not parts:
            return
        self._recent = self._newest(parts)
        still = 0 if self._still is None else self._still.height
        if self._recent.height > max(_FEW, still // 10):
            self._put_in_order()

    def _newest(self, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """All rows; of a group the one in the first part that has it, which comes last."""
        rows, *older = parts
        for part in older:
            rows = pl.concat([without(part.select(rows.columns), rows, self._by), rows])
        return rows

    def _put_in_order(self) -> None:
        """The recent rows take their place among the others; the oldest may have to go."""
        assert self._recent is not None
        parts = [self._recent] if self._still is None else [self._recent, self._still]
        rows = self._newest(parts)
        self._knows_all = self._knows_all and rows.height <= self._room
        self._still, self._recent = rows.tail(self._room).rechunk(), rows.clear()
        hashes = row_hashes(self._still, self._by).to_numpy()
        self._places = np.argsort(hashes)
        self._hashes = hashes[self._places]

    def _candidates(self, wanted: pl.DataFrame) -> NDArray[np.int64]:
        """The places of the still rows with hashes like these groups."""
        # In ascending order they are found in one pass, by and large.
        hashes = np.sort(row_hashes(wanted, self._by).to_numpy())
        first = np.searchsorted(self._hashes, hashes, side="left")
        stop = np.searchsorted(self._hashes, hashes, side="right")
        lengths = stop - first
        steps = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        found: NDArray[np.int64] = self._places[np.repeat(first, lengths) + steps]
        return found


class Memories:
    """What all operators of one view remember, so that who comes later may go on with it."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[int, int], Memory] = {}

    def of(self, place: int, side: int, by: list[str]) -> Memory:
        """That of an operator (by its number in the tree), for its own use or that of a side."""
        return self._by_place.setdefault((place, side), Memory(by))
