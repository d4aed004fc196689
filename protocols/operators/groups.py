"""GROUP BY and DISTINCT: a row per group, worked out anew wherever a group changes.

The groups that a batch touches are read as they were before it, and `aggregates.py` says what they
are like at each position at which they change. A group's row at a position takes the place of the one before: minus the old, plus the new.
"""

import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION, UNTIL
from protocols.algebra.frame import empty_frame
from protocols.operators.aggregates import ROWS, aggregated
from protocols.operators.operator import Operator, Span, Task, before, no_change
from protocols.operators.placed import among, change_of, distinct, entries, within
from protocols.views import tree


class Group:
    """A grouping at work."""

    def __init__(self, node: tree.Group, below: Operator) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below
        self._node = node
        self._keys = list(node.keys)

    def change(self, span: Span) -> Task:
        change = yield from self._below.change(span)
        if change.is_empty():
            return no_change(self)
        touched = distinct(change, self._keys) if self._keys else None
        there = yield from before(self._below, span, touched)
        if touched is not None:
            there = among(there, touched)
        return self._replaced(self._rows(entries(there, change)))

    def before(self, span: Span, wanted: pl.DataFrame | None) -> Task:
        names = [] if wanted is None else [name for name in wanted.columns if name in self._keys]
        below = None if wanted is None or not names else distinct(wanted, names)
        rows = yield from before(self._below, span, below)
        if below is not None:
            rows = among(rows, below)
        found = self._rows(entries(rows, no_change(self._below)))
        if self._keys:
            found = found.filter(pl.col(ROWS) > 0)
        counted = found.with_columns(pl.lit(1, pl.Int64).alias(COUNT)).select(self.nothing.columns)
        return counted if wanted is None else among(counted, wanted)

    def settle(self) -> None:
        self._below.settle()

    def _rows(self, placed: pl.DataFrame) -> pl.DataFrame:
        """The rows of the groups at every position at which they change."""
        if not self._keys:
            # There is a group even over nothing.
            none = pl.DataFrame({POSITION: [BEGINNING], COUNT: [0]})
            placed = pl.concat([none, placed], how="diagonal").select(placed.columns)
        node = self._node
        return aggregated(placed, self._keys, node.aggregates, node.input.columns)

    def _replaced(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Each row in the place of the one before; a group without rows has none."""
        until = within(pl.col(POSITION).shift(-1), self._keys)
        spans = rows.with_columns(until.alias(UNTIL))
        if self._keys:
            spans = spans.filter(pl.col(ROWS) > 0)
        columns = [*self.nothing.columns[:-1], POSITION, COUNT]
        new = spans.with_columns(pl.lit(1, pl.Int64).alias(COUNT))
        old = spans.filter(pl.col(UNTIL).is_not_null()).with_columns(
            pl.col(UNTIL).alias(POSITION), pl.lit(-1, pl.Int64).alias(COUNT)
        )
        return change_of(pl.concat([new.select(columns), old.select(columns)]))
