"""How many rows one side of a join has per join key, which decides who on the other is an orphan.

The numbers are remembered, so a change on this side needs to read what it meets and not, besides,
everything that it stands beside.
"""

from collections.abc import Sequence

import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.operators.memory import Memory, without
from protocols.operators.placed import added_up, among, presence

_NUMBER = "_number"


class Partners:
    """The rows of one side by the columns that it is joined on."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._by = list(columns)
        self._memory = Memory(self._by)

    def unknown(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Of these keys those whose rows have to be read."""
        return self._memory.find(wanted)[1]

    def presence(
        self,
        wanted: pl.DataFrame,
        asked: pl.DataFrame,
        there: pl.DataFrame,
        change: pl.DataFrame,
    ) -> pl.DataFrame:
        """From when until when there are rows of the wanted keys, as entries.

        `there` are the rows before the batch of the keys that were `asked`; the others are known.
        """
        numbers = self._counted(among(there, asked)).select(*self._by, COUNT)
        known, _ = self._memory.find(without(wanted, asked, self._by))
        if known is not None:
            remembered = known.select(*self._by, pl.col(_NUMBER).alias(COUNT))
            numbers = pl.concat([numbers, remembered])
        before = numbers.with_columns(pl.lit(BEGINNING, pl.Int64).alias(POSITION))
        steps = self._counted(change, POSITION)
        placed = pl.concat([before.select(steps.columns), steps])
        self._learn(wanted, placed)
        return presence(placed, self._by)

    def settle(self) -> None:
        """The batch is done."""
        self._memory.settle()

    def _counted(self, rows: pl.DataFrame, *also: str) -> pl.DataFrame:
        """The numbers of rows per key; one with a NULL is no key."""
        found = rows.select(*self._by, *also, COUNT).drop_nulls(self._by)
        return added_up(found)

    def _learn(self, wanted: pl.DataFrame, placed: pl.DataFrame) -> None:
        """Also of keys without rows it is known that they have none."""
        none = wanted.with_columns(pl.lit(0, pl.Int64).alias(COUNT)).select(*self._by, COUNT)
        sums = pl.concat([placed.select(*self._by, COUNT), none])
        self._memory.learn(sums.group_by(self._by).agg(pl.col(COUNT).sum().alias(_NUMBER)))
