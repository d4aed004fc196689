"""How many rows one side of a join has per join key, which decides who on the other is an orphan.

The numbers are remembered, so a change on this side needs to read what it meets and not, besides,
everything that it stands beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.operators.memory import Memory
from protocols.operators.placed import added_up, among, entries, presence

_NUMBER = "_number"


@dataclass(frozen=True)
class Wanted:
    """The keys whose rows a batch has to count."""

    keys: pl.DataFrame
    #: What is remembered of them.
    known: pl.DataFrame | None
    #: Those of which nothing is.
    unknown: pl.DataFrame


class Partners:
    """The rows of one side by the columns that it is joined on."""

    def __init__(self, columns: Sequence[str], memory: Memory) -> None:
        self._by = list(columns)
        self._memory = memory

    def wanted(self, keys: pl.DataFrame) -> Wanted:
        """What is known of these keys and what has to be read."""
        return Wanted(keys, *self._memory.find(keys))

    def presence(self, wanted: Wanted, there: pl.DataFrame, change: pl.DataFrame) -> pl.DataFrame:
        """From when until when there are rows of the wanted keys, as entries.

        `there` has at least all rows before the batch of the keys that were not known.
        """
        before = [self._counted(among(there, wanted.unknown))]
        if wanted.known is not None:
            before.append(wanted.known.select(*self._by, pl.col(_NUMBER).alias(COUNT)))
        steps = self._counted(change, POSITION)
        placed = entries(pl.concat(before), steps)
        self._learn(wanted.keys, placed)
        return presence(placed, self._by)

    def seen(self, rows: pl.DataFrame) -> None:
        """All rows of the side."""
        counted = self._counted(rows).rename({COUNT: _NUMBER})
        self._memory.seen(counted, all_of_them=True)

    def settle(self) -> None:
        """The batch is done."""
        self._memory.settle()

    def _counted(self, rows: pl.DataFrame, *also: str) -> pl.DataFrame:
        """The numbers of rows per key; one with a NULL is no key."""
        found = rows.select(*self._by, *also, COUNT).drop_nulls(self._by)
        return added_up(found)

    def _learn(self, keys: pl.DataFrame, placed: pl.DataFrame) -> None:
        """Also of keys without rows it is known that they have none."""
        none = keys.select(*self._by, pl.lit(0, pl.Int64).alias(COUNT))
        sums = pl.concat([placed.select(*self._by, COUNT), none])
        self._memory.learn(sums.group_by(self._by).agg(pl.col(COUNT).sum().alias(_NUMBER)))
