"""Counts the rows of one side of a join per join key, which decides the other side's orphans.

The numbers are remembered, so a change on this side reads only the rows that it meets, and not also
those of its own side with the same keys.
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
class CountedKeys:
    """The keys whose rows a batch has to count."""

    #: The remembered keys with their numbers.
    known: pl.DataFrame | None
    #: The keys that are not remembered.
    unknown: pl.DataFrame


class Partners:
    """The rows of one side by the columns on which it is joined."""

    def __init__(
        self, columns: Sequence[str], memory: Memory, counted: Counted, nulls_equal: bool
    ) -> None:
        """Unless NULL equals NULL, rows with a NULL in the key are nobody's partners."""
        self._by = list(columns)
        self._nulls_equal = nulls_equal
        self._memory = memory
        self._counted = counted

    def wanted(self, keys: pl.DataFrame) -> CountedKeys:
        """Splits these keys into known ones, with their numbers, and those that have to be read."""
        return CountedKeys(*self._memory.find(keys))

    def numbers(
        self, wanted: CountedKeys, there: pl.DataFrame, change: pl.DataFrame, cut: int
    ) -> pl.DataFrame:
        """Counts the rows of the wanted keys at every position (see `running`).

        `there` has at least all rows before the batch of the keys that were not known.
        """
        # A key without rows is known too, with none.
        none = with_columns(picked(wanted.unknown, self._by), {COUNT: 0})
        before = [none, self._rows(among(there, wanted.unknown))]
        if wanted.known is not None:
            before.append(picked(wanted.known, [*self._by, (COUNT, _NUMBER)]))
        found = running(entries(pl.concat(before), self._rows(change, POSITION)), self._by)
        self._counted.behind(cut).check(found, self._by)
        self._memory.learn(self._numbered(in_the_end(found)))
        return found

    def counted(self, rows: pl.DataFrame, keys: Asked) -> pl.DataFrame:
        """Counts the rows of these keys, in the remembered form; `rows` has all rows of each."""
        parts = [self._rows(rows)]
        if isinstance(keys, These):
            parts.append(with_columns(keys.rows, {COUNT: 0}))
        found = running(throughout(pl.concat(parts, how="diagonal")), self._by)
        return self._numbered(in_the_end(found))

    def seen(self, rows: pl.DataFrame, cut: int) -> None:
        """Takes all rows of the side as of a cut."""
        counted = added_up(self._rows(rows))
        self._counted.behind(cut).check(counted, self._by)
        self._memory.seen(self._numbered(counted), all_of_them=True)

    def settle(self) -> None:
        """Ends the batch."""
        self._memory.settle()

    def _rows(self, rows: pl.DataFrame, *also: str) -> pl.DataFrame:
        """The rows that may be partners, by their keys."""
        found = picked(rows, [*self._by, *also, COUNT])
        if self._nulls_equal:
            return found
        if any(found.get_column(name).null_count() for name in self._by):
            found = found.drop_nulls(self._by)
        return found

    def _numbered(self, counted: pl.DataFrame) -> pl.DataFrame:
        """Keys with their numbers of rows, in the remembered form."""
        return picked(counted, [*self._by, (_NUMBER, COUNT)])
