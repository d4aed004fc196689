"""What every workload does: grow, change and shrink its relations, never breaking its own rules.

A source knows nothing of the others, not even here. A link to another source's relation is a number
from the range that exists there at first, or a little beyond: some of the rows it points to come
later, and some are gone, as it is between real databases.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation
from sources.transaction import RowChange, Transaction
from sources.workloads.dice import Dice

Row = tuple[Any, ...]

#: Of all transactions, so many insert and so many modify; the others delete.
_INSERTS = 0.7
_MODIFICATIONS = 0.2
#: So many concern several rows, of which there are then two to four.
_OF_SEVERAL_ROWS = 0.1
_MOST_ROWS = 4


@dataclass(frozen=True)
class Table:
    """A relation with a key `id`, its first column, and how its rows come and change."""

    relation: Relation
    #: The number of rows at first, for a scale.
    size: Callable[[int], int]
    #: New rows with these ids, inserted by one transaction.
    fresh: Callable[[Dice, int, Sequence[int]], list[Row]]
    #: What one transaction makes of these rows, in their order; none stays as it is.
    changed: Callable[[Dice, int, Sequence[Row]], list[Row]]


@dataclass(frozen=True)
class Workload:
    """Sources that belong together, and a view over them."""

    name: str
    view: str
    tables: Mapping[str, Table]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.tables)

    def source(self, source: str, scale: int = 1000, seed: int = 0) -> "WorkloadSource":
        """One of its sources; the same scale and seed make the same source again."""
        if source not in self.tables:
            raise WrongUse(
                f"workload {self.name} has no source {source!r}; it has {', '.join(self.tables)}"
            )
        if scale < 1:
            raise WrongUse(f"workload {self.name}: the scale is {scale} and must be at least 1")
        return WorkloadSource(self.tables[source], scale, (self.name, source, scale, seed))


class WorkloadSource:
    """What one source holds at first, and what it commits from then on."""

    def __init__(self, table: Table, scale: int, purpose: tuple[object, ...]) -> None:
        self._table = table
        self._scale = scale
        self._purpose = purpose

    @property
    def catalog(self) -> Catalog:
        return Catalog((self._table.relation,))

    def initial_rows(self) -> dict[str, pl.DataFrame]:
        """The rows of version 0, by relation."""
        relation = self._table.relation
        columns = zip(relation.columns, zip(*self._first_rows(), strict=True), strict=True)
        frame = pl.DataFrame(
            [pl.Series(name, cells, dtype=type_.dtype) for (name, type_), cells in columns]
        )
        return {relation.name: frame}

    def transactions(self) -> Iterator[Transaction]:
        """Endless; each one is valid after those before it, and changes something."""
        dice, rows = Dice(*self._purpose, "transactions"), self._first_rows()
        name, next_id = self._table.relation.name, len(rows) + 1
        while True:
            size = 2 + dice.below(_MOST_ROWS - 1) if dice.chance(_OF_SEVERAL_ROWS) else 1
            if dice.chance(_INSERTS) or len(rows) <= _MOST_ROWS:
                new = self._table.fresh(dice, self._scale, range(next_id, next_id + size))
                next_id += size
                rows += new
                yield Transaction(tuple([RowChange(name, row, 1) for row in new]))
            elif dice.chance(_MODIFICATIONS / (1 - _INSERTS)):
                yield self._modification(dice, rows, size)
            else:
                gone = _take(rows, dice.below(len(rows) - size + 1), size)
                yield Transaction(tuple([RowChange(name, row, -1) for row in gone]))

    def _first_rows(self) -> list[Row]:
        dice, scale = Dice(*self._purpose, "rows"), self._scale
        ids = range(1, self._table.size(scale) + 1)
        return [row for each in ids for row in self._table.fresh(dice, scale, (each,))]

    def _modification(self, dice: Dice, rows: list[Row], size: int) -> Transaction:
        """Changes neighbours, oftener the early rows, which links lead to oftener as well."""
        name, start = self._table.relation.name, dice.skewed_below(len(rows) - size + 1)
        old = rows[start : start + size]
        new = self._table.changed(dice, self._scale, old)
        rows[start : start + size] = new
        changes: list[RowChange] = []
        for before, after in zip(old, new, strict=True):
            changes += (RowChange(name, before, -1), RowChange(name, after, 1))
        return Transaction(tuple(changes))


def _take(rows: list[Row], start: int, size: int) -> list[Row]:
    """Removes neighbours; the last rows take their places, so that nothing has to move up."""
    taken = rows[start : start + size]
    for place in reversed(range(start, start + size)):
        last = rows.pop()
        if place < len(rows):
            rows[place] = last
    return taken
