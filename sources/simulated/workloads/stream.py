"""Runs a workload: grows, changes and shrinks its relations, and never breaks its own rules.

A source holds one or more relations; with several, some of its transactions insert into two. It
knows nothing of other sources, not even here. A link to a relation of another source is a number
from the initial range there, or a little beyond: some of the linked rows come later, and some are
gone, as between real databases.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog, Relation
from sources.simulated.workloads.dice import Dice
from sources.transaction import RowChange, Transaction

Row = tuple[Any, ...]

#: The shares of transactions that insert and that modify; the others delete.
_INSERTS = 0.7
_MODIFICATIONS = 0.2
#: The share of transactions that change several rows, two to four.
_OF_SEVERAL_ROWS = 0.1
_MOST_ROWS = 4
#: The share of insertions that also insert into another relation of the source, if it has several.
_OF_TWO_RELATIONS = 0.15


@dataclass(frozen=True)
class Table:
    """A relation with a key `id`, its first column, and how its rows come and change."""

    relation: Relation
    #: The initial number of rows, for a scale.
    size: Callable[[int], int]
    #: New rows with these ids, inserted by one transaction.
    fresh: Callable[[Dice, int, Sequence[int]], list[Row]]
    #: The new versions of these rows, changed by one transaction, in their order; all differ.
    changed: Callable[[Dice, int, Sequence[Row]], list[Row]]


@dataclass(frozen=True)
class Workload:
    """Sources that belong together, and views over them."""

    name: str
    view: str
    #: Source → its relations.
    tables: Mapping[str, tuple[Table, ...]]
    #: Name → a view that is more than an inner join.
    further: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.tables)

    @property
    def catalog(self) -> Catalog:
        """The relations of all its sources."""
        tables = (table for of_source in self.tables.values() for table in of_source)
        return Catalog(tuple(table.relation for table in tables))

    def view_named(self, name: str | None) -> str:
        """The SQL of the view with this name; without one, that of the main view, an inner join."""
        if name is None:
            return self.view
        if name not in self.further:
            known = f"it has {', '.join(self.further)}" if self.further else "it has no others"
            raise WrongUse(
                f"workload {self.name} has no view {name!r} besides its main one; {known}"
            )
        return self.further[name]

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
    """The initial rows and the transactions of one source."""

    def __init__(self, tables: tuple[Table, ...], scale: int, purpose: tuple[object, ...]) -> None:
        self._tables = tables
        self._scale = scale
        self._purpose = purpose

    @property
    def catalog(self) -> Catalog:
        return Catalog(tuple(table.relation for table in self._tables))

    def initial_rows(self) -> dict[str, pl.DataFrame]:
        """The rows of version 0, by relation."""
        return {table.relation.name: self._frame(table) for table in self._tables}

    def _frame(self, table: Table) -> pl.DataFrame:
        cells = zip(*self._first_rows(table), strict=True)
        columns = zip(table.relation.columns, cells, strict=True)
        return pl.DataFrame(
            [pl.Series(name, found, dtype=type_.dtype) for (name, type_), found in columns]
        )

    def transactions(self) -> Iterator[Transaction]:
        """Endless; each one is valid after those before it, and changes something."""
        dice = Dice(*self._purpose, "transactions")
        stories = [_Story(table, self._scale, self._first_rows(table)) for table in self._tables]
        while True:
            story = stories[0] if len(stories) == 1 else dice.pick(stories)
            changes = story.changes(dice)
            inserts = all(change.count > 0 for change in changes)
            if len(stories) > 1 and inserts and dice.chance(_OF_TWO_RELATIONS):
                changes += dice.other(stories, story).insertion(dice, 1)
            yield Transaction(tuple(changes))

    def _first_rows(self, table: Table) -> list[Row]:
        which = () if len(self._tables) == 1 else (table.relation.name,)
        dice, scale = Dice(*self._purpose, *which, "rows"), self._scale
        ids = range(1, table.size(scale) + 1)
        return [row for each in ids for row in table.fresh(dice, scale, (each,))]


class _Story:
    """The changing rows of one relation."""

    def __init__(self, table: Table, scale: int, rows: list[Row]) -> None:
        self._table = table
        self._scale = scale
        self._rows = rows
        self._next_id = len(rows) + 1
        self._name = table.relation.name

    def changes(self, dice: Dice) -> list[RowChange]:
        """The changes of the next transaction."""
        size = 2 + dice.below(_MOST_ROWS - 1) if dice.chance(_OF_SEVERAL_ROWS) else 1
        if dice.chance(_INSERTS) or len(self._rows) <= _MOST_ROWS:
            return self.insertion(dice, size)
        if dice.chance(_MODIFICATIONS / (1 - _INSERTS)):
            return self._modification(dice, size)
        gone = _take(self._rows, dice.below(len(self._rows) - size + 1), size)
        return [RowChange(self._name, row, -1) for row in gone]

    def insertion(self, dice: Dice, size: int) -> list[RowChange]:
        ids = range(self._next_id, self._next_id + size)
        new = self._table.fresh(dice, self._scale, ids)
        self._next_id += size
        self._rows += new
        return [RowChange(self._name, row, 1) for row in new]

    def _modification(self, dice: Dice, size: int) -> list[RowChange]:
        """Modifies neighbouring rows, more often early ones, which also have more links."""
        start = dice.skewed_below(len(self._rows) - size + 1)
        old = self._rows[start : start + size]
        new = self._table.changed(dice, self._scale, old)
        self._rows[start : start + size] = new
        changes: list[RowChange] = []
        for before, after in zip(old, new, strict=True):
            changes += (RowChange(self._name, before, -1), RowChange(self._name, after, 1))
        return changes


def _take(rows: list[Row], start: int, size: int) -> list[Row]:
    """Removes neighbouring rows; the last rows take their places, so that no others move."""
    taken = rows[start : start + size]
    for place in reversed(range(start, start + size)):
        last = rows.pop()
        if place < len(rows):
            rows[place] = last
    return taken
