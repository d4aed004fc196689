"""How many rows one side of a join has per join key, which decides who on the other is an orphan.

The numbers are remembered, so a change on this side needs to read what it meets and not, besides,
everything that it stands beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.operators.memory import Memory
from protocols.operators.placed import added_up, among, entries, in_the_end, running

_NUMBER = "_number"


@dataclass(frozen=True)
class Wanted:
    """The keys whose rows a batch has to count."""

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
        return Wanted(*self._memory.find(keys))

    def numbers(self, wanted: Wanted, there: pl.DataFrame, change: pl.DataFrame) -> pl.DataFrame:
        """How many rows the wanted keys have from when on (see `running`).

        `there` has at least all rows before the batch of the keys that were not known.
        """
        # Also of keys without rows it is known that they have none.
        none = wanted.unknown.select(*self._by, pl.lit(0, pl.Int64).alias(COUNT))
        before = [none, self._rows(among(there, wanted.unknown))]
        if wanted.known is not None:
            before.append(wanted.known.select(*self._by, pl.col(_NUMBER).alias(COUNT)))
        found = running(entries(pl.concat(before), self._rows(change, POSITION)), self._by)
        self._memory.learn(in_the_end(found).rename({COUNT: _NUMBER}))
        return found

    def seen(self, rows: pl.DataFrame) -> None:
        """All rows of the side."""
        counted = added_up(self._rows(rows)).rename({COUNT: _NUMBER})
        self._memory.seen(counted, all_of_them=True)

    def settle(self) -> None:
        """The batch is done."""
        self._memory.settle()

    def _rows(self, rows: pl.DataFrame, *also: str) -> pl.DataFrame:
        """The rows by their keys; one with a NULL is no key."""
        return rows.select(*self._by, *also, COUNT).drop_nulls(self._by)
