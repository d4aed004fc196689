"""How many rows one side of a join has per join key, which decides who on the other is an orphan.

The numbers are remembered, so a change on this side needs to read what it meets and not, besides,
everything that it stands beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import picked, with_columns
from protocols.operators.counting import Counted
from protocols.operators.keys import Asked, These
from protocols.operators.memory import Memory
from protocols.operators.placed import added_up, among, entries, in_the_end, running, throughout

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

    def __init__(self, columns: Sequence[str], memory: Memory, counted: Counted) -> None:
        self._by = list(columns)
        self._memory = memory
        self._counted = counted

    def wanted(self, keys: pl.DataFrame) -> Wanted:
        """What is known of these keys and what has to be read."""
        return Wanted(*self._memory.find(keys))

    def numbers(
        self, wanted: Wanted, there: pl.DataFrame, change: pl.DataFrame, cut: int
    ) -> pl.DataFrame:
        """How many rows the wanted keys have from when on (see `running`).

        `there` has at least all rows before the batch of the keys that were not known.
        """
        # Also of keys without rows it is known that they have none.
        none = with_columns(picked(wanted.unknown, self._by), {COUNT: 0})
        before = [none, self._rows(among(there, wanted.unknown))]
        if wanted.known is not None:
            before.append(picked(wanted.known, [*self._by, (COUNT, _NUMBER)]))
        found = running(entries(pl.concat(before), self._rows(change, POSITION)), self._by)
        self._counted.behind(cut).check(found, self._by)
        self._memory.learn(self._numbered(in_the_end(found)))
        return found

    def counted(self, rows: pl.DataFrame, keys: Asked) -> pl.DataFrame:
        """Of these keys the numbers of rows, as they are remembered; `rows` has all of theirs."""
        parts = [self._rows(rows)]
        if isinstance(keys, These):
            parts.append(with_columns(keys.rows, {COUNT: 0}))
        found = running(throughout(pl.concat(parts, how="diagonal")), self._by)
        return self._numbered(in_the_end(found))

    def seen(self, rows: pl.DataFrame, cut: int) -> None:
        """All rows of the side as of a cut."""
        counted = added_up(self._rows(rows))
        self._counted.behind(cut).check(counted, self._by)
        self._memory.seen(self._numbered(counted), all_of_them=True)

    def settle(self) -> None:
        """The batch is done."""
        self._memory.settle()

    def _rows(self, rows: pl.DataFrame, *also: str) -> pl.DataFrame:
        """The rows by their keys; one with a NULL is no key."""
        found = picked(rows, [*self._by, *also, COUNT])
        if any(found.get_column(name).null_count() for name in self._by):
            found = found.drop_nulls(self._by)
        return found

    def _numbered(self, counted: pl.DataFrame) -> pl.DataFrame:
        """Keys with their numbers of rows, as they are remembered."""
        return picked(counted, [*self._by, (_NUMBER, COUNT)])
