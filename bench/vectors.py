"""Whether a vector of versions explains a state of the view.

Topics of several sources have no common order, so an engine may take their updates in any order
that keeps each source's own. Every state that it shows is then the view over *some* version of each
source; a state for which that is not true never existed.

Each row of the view has the revisions of the rows that it was joined from. Each of these rows
existed in its relation in the versions [revision, until). So a row of the view exists at the
vectors of a box, and one join over the histories gives all rows that ever exist, with their boxes.
A vector explains a state if exactly the rows of the state have it in their boxes:

1. it lies in the boxes of all rows of the state: in their intersection, from `low` to below
   `high`;
2. at `low` other rows may exist as well. Each such row has to be excluded: the vector is raised in
   one coordinate to the version at which the row ends, if that is still below `high`; if only one
   coordinate is possible, it is forced, else each is tried. Raising may let in further rows;
   nothing has to be lowered.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bench.burst import UNTIL, Base, Burst, evaluated
from protocols.algebra.delta import COUNT

_Numbers = NDArray[np.int64]
_ROW = "_row"


class Histories:
    """All rows that the view can have during a burst."""

    def __init__(self, burst: Burst) -> None:
        lives = [(base, base.history) for base in burst.bases]
        sql = burst.workload.view
        rows = evaluated(sql, {base.relation: life.drop(UNTIL) for base, life in lives})
        for base, life in lives:
            one = _singular(base)
            ends = life.select(
                pl.col("number").alias(f"{one}_id"),
                pl.col("revision").alias(f"{one}_revision"),
                pl.col(UNTIL).alias(f"{one}{UNTIL}"),
            )
            rows = rows.join(
                ends, on=[f"{one}_id", f"{one}_revision"], how="left", maintain_order="left"
            )
        ones = [_singular(base) for base in burst.bases]
        self._from = rows.select(f"{one}_revision" for one in ones).to_numpy()
        self._until = rows.select(f"{one}{UNTIL}" for one in ones).to_numpy()
        self._rows = rows.select(list(burst.view.schema)).with_row_index(_ROW)
        self._last = np.full(len(ones), burst.share)

    def explain(self, state: pl.DataFrame) -> list[int] | None:
        """A vector (versions in the order of the sources) whose view is this; None without one.

        The state has the view's columns and `_count`.
        """
        names = self._rows.columns[1:]
        there = state.join(self._rows, on=names, how="inner")[_ROW].to_numpy()
        if len(there) < state.height or (state[COUNT] != 1).any():
            return None
        low, high = self._box(there)
        wanted = np.zeros(len(self._rows), bool)
        wanted[there] = True
        return None if (low >= high).any() else self._raised(low, high, wanted)

    def _box(self, there: _Numbers) -> tuple[_Numbers, _Numbers]:
        """The box in which all these rows exist."""
        high = self._until[there].min(axis=0, initial=2**62)
        return self._from[there].max(axis=0, initial=0), np.minimum(high, self._last + 1)

    def _raised(self, low: _Numbers, high: _Numbers, wanted: NDArray[np.bool_]) -> list[int] | None:
        """The first vector found from `low` to below `high` at which no other rows exist."""
        while True:
            alive = ((self._from <= low) & (self._until > low)).all(axis=1)
            ends = self._until[alive & ~wanted]
            if not len(ends):
                return [int(version) for version in low]
            possible = ends < high
            ways = possible.sum(axis=1)
            if (ways == 0).any():
                return None
            forced = np.where(possible, ends, 0)[ways == 1]
            if not len(forced):
                return self._tried(low, high, wanted, ends[0])
            low = np.maximum(low, forced.max(axis=0))

    def _tried(
        self, low: _Numbers, high: _Numbers, wanted: NDArray[np.bool_], ends: _Numbers
    ) -> list[int] | None:
        """Tries each coordinate in which a row can be ended."""
        for place in np.flatnonzero(ends < high):
            raised = low.copy()
            raised[place] = ends[place]
            found = self._raised(raised, high, wanted)
            if found is not None:
                return found
        return None


def _singular(base: Base) -> str:
    """The name of a row of the relation in the view's columns."""
    return base.relation.name.removesuffix("s")
