"""An order in which sums at every position take one pass: row by row, positions ascending.

Rows are sorted by their hashes; no other order is needed. The sum over the entries of a row so far
is then the running sum over all entries minus its value before that row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import POSITION
from protocols.algebra.frame import all_equal, by_kind_and_position, picked, row_hashes
from protocols.operators import exactsums


@dataclass(frozen=True, eq=False)
class OrderedEntries:
    """Entries of rows in order. Those of a row at one position share a *step*."""

    #: The places of the entries that come first, second and so on.
    places: NDArray[np.intp]
    #: The last place of each step, where the sum includes the whole step.
    lasts: NDArray[np.intp]
    #: Whether a step is the first of its row.
    begins: NDArray[np.bool_]
    #: The places, in this order, of the first entry of each row and of the last entry of each step.
    _heads: NDArray[np.intp]
    _ends: NDArray[np.intp]

    def sums(self, values: pl.Series) -> pl.Series:
        """For each step, the sum of the row's values so far."""
        if isinstance(values.dtype, pl.Decimal):
            return self._exact_sums(values, values.dtype.scale)
        if values.dtype == pl.Binary():
            whole = self._whole_sums(exactsums.numbers(values))
            return exactsums.as_sums(values.name, whole)
        return pl.Series(values.name, self._whole_sums(values.to_numpy()))

    def _whole_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """The same for whole numbers."""
        ordered = values[self.places]
        running = np.cumsum(ordered)
        before = running[self._heads] - ordered[self._heads]
        sums: NDArray[Any] = running[self._ends] - before[self.rows]
        return sums

    def _exact_sums(self, values: pl.Series, scale: int) -> pl.Series:
        """The same for decimals."""
        ordered = values[self.places]
        if not _have_room(values, scale):
            return self._sums_one_by_one(ordered)
        running = ordered.cum_sum()
        before = running[self._heads] - ordered[self._heads]
        return running[self._ends] - before[self.rows]

    def _sums_one_by_one(self, ordered: pl.Series) -> pl.Series:
        """The same, without ever adding values of different rows."""
        rows = np.repeat(self.rows, np.diff(self._ends, prepend=-1))
        both = pl.DataFrame([ordered.alias("value"), pl.Series("row", rows)])
        running = both.select(pl.col("value").cum_sum().over("row").alias(ordered.name))
        return running.to_series()[self._ends]

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """The number of the row of each step."""
        return np.cumsum(self.begins) - 1

    @cached_property
    def steps(self) -> NDArray[np.intp]:
        """The number of the step of each entry, by its place."""
        found = np.empty(len(self.places), np.intp)
        lengths = np.diff(self._ends, prepend=-1)
        found[self.places] = np.repeat(np.arange(len(lengths)), lengths)
        return found

    @cached_property
    def stops(self) -> NDArray[np.intp]:
        """For each row, the number of the step after its last one."""
        return np.append(np.flatnonzero(self.begins)[1:], len(self.begins))


def in_order(placed: pl.DataFrame, by: Sequence[str]) -> OrderedEntries:
    """Orders entries by the rows in some of their columns."""
    at = placed.get_column(POSITION).to_numpy()
    kinds = row_hashes(placed, by).to_numpy() if by else np.zeros(placed.height, np.uint64)
    places, goes_on = by_kind_and_position(kinds, at)
    if not all_equal(placed, list(by), places[:-1][goes_on], places[1:][goes_on]):
        # Different rows share a hash.
        places, goes_on = by_kind_and_position(_told_apart(placed, by), at)
    at = at[places]
    begins, lasts = np.ones((2, len(places)), np.bool_)
    begins[1:] = ~goes_on
    lasts[:-1] = ~goes_on | (at[1:] != at[:-1])
    ends = np.flatnonzero(lasts)
    starts = ends - np.diff(ends, prepend=-1) + 1
    return OrderedEntries(places, places[ends], begins[starts], np.flatnonzero(begins), ends)


def _have_room(values: pl.Series, scale: int) -> bool:
    """Whether these decimals can be added in any order; a sum has 38 digits at most."""
    return bool(values.abs().cast(pl.Float64).sum() < 10.0 ** (37 - scale))


def _told_apart(placed: pl.DataFrame, by: Sequence[str]) -> NDArray[np.uint64]:
    """A number for each row; only equal rows share one."""
    number = "_number"
    rows = picked(placed, by)
    numbered = rows.unique(maintain_order=True).with_row_index(number)
    on = [*(pl.col(name) for name in by), pl.lit(1)]
    found = rows.join(numbered, on=on, how="left", nulls_equal=True, maintain_order="left")
    return found.get_column(number).cast(pl.UInt64).to_numpy()
