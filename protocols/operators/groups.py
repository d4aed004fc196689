"""GROUP BY and DISTINCT: a row per group, worked out anew wherever a group changes.

The groups that a batch touches are read as they were before it, or remembered; `aggregates.py` says
what they are like at each position at which they change. A group's row there takes the place of
the one before: minus the old, plus the new. Without GROUP BY there is one group, which is there
even over nothing.
"""

from collections.abc import Callable

import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION, UNTIL
from protocols.algebra.frame import empty_frame
from protocols.operators.aggregates import ROWS, aggregated, in_doubt, is_remembered
from protocols.operators.memory import Memory
from protocols.operators.operator import Operator, Span, Task, before, no_change
from protocols.operators.placed import among, change_of, distinct, entries, within, without
from protocols.views import tree

#: What all rows agree in.
_EVERYTHING = "_everything"
_ONLY_GROUP = pl.DataFrame({_EVERYTHING: [0]}, schema_overrides={_EVERYTHING: pl.Int32})


class Group:
    """A grouping at work."""

    def __init__(
        self, node: tree.Group, below: Operator, memory: Callable[[list[str]], Memory]
    ) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below
        self._node = node
        self._by = list(node.keys) or [_EVERYTHING]
        self._memory = memory(self._by) if is_remembered(node.aggregates) else None

    def change(self, span: Span) -> Task:
        change = yield from self._below.change(span)
        if change.is_empty():
            return no_change(self)
        change = self._grouped(change)
        known, unknown = self._remembered(change)
        there = yield from self._read(span, unknown)
        rows = self._rows(entries(there, change), known)
        if self._memory is not None:
            self._memory.learn(rows.group_by(self._by, maintain_order=True).last())
        return self._replaced(rows)

    def before(self, span: Span, wanted: pl.DataFrame | None) -> Task:
        keys = self._named(wanted)
        known = asked = None
        if self._memory is not None and keys is not None and len(keys.columns) == len(self._by):
            known, keys = self._memory.find(keys)
            asked = keys
        there = yield from self._read(span, keys)
        rows = self._rows(entries(there, self._grouped(no_change(self._below))), asked=asked)
        if self._memory is not None:
            self._memory.seen(rows, all_of_them=wanted is None)
        if known is not None:
            rows = pl.concat([rows, known.select(rows.columns)])
        counted = self._there(rows).with_columns(pl.lit(1, pl.Int64).alias(COUNT))
        found = counted.select(self.nothing.columns)
        return found if wanted is None else among(found, wanted)

    def settle(self) -> None:
        self._below.settle()
        if self._memory is not None:
            self._memory.settle()

    # -- groups before the batch -----------------------------------------------------------------

    def _named(self, wanted: pl.DataFrame | None) -> pl.DataFrame | None:
        """What is wanted, by the columns that it is grouped by; None asks for all groups."""
        if not self._node.keys:
            return _ONLY_GROUP
        names = [] if wanted is None else [name for name in wanted.columns if name in self._by]
        return None if wanted is None or not names else distinct(wanted, names)

    def _remembered(self, change: pl.DataFrame) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """What is known of the groups that change, and the groups to be read."""
        touched = distinct(change, self._by)
        known, unknown = (None, touched) if self._memory is None else self._memory.find(touched)
        if known is None:
            return None, unknown
        again = in_doubt(change, self._by, self._node.aggregates, known)
        return without(known, again, self._by), pl.concat([unknown, again])

    def _read(self, span: Span, wanted: pl.DataFrame | None) -> Task:
        """The rows of these groups before the batch; None asks for all."""
        if not self._node.keys:
            nobody = wanted is not None and wanted.is_empty()
            rows = yield from before(self._below, span, pl.DataFrame() if nobody else None)
            return self._grouped(rows)
        rows = yield from before(self._below, span, wanted)
        return rows if wanted is None else among(rows, wanted)

    def _grouped(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with something to group by."""
        if self._node.keys:
            return rows
        return rows.with_columns(pl.lit(0).alias(_EVERYTHING))

    # -- rows ------------------------------------------------------------------------------------

    def _rows(
        self,
        placed: pl.DataFrame,
        known: pl.DataFrame | None = None,
        asked: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        """The groups at every position at which they change.

        Those that were asked for are among them even if there are no rows: that is known then, too.
        """
        if not self._node.keys and known is None and asked is None:
            asked = _ONLY_GROUP
        if asked is not None:
            none = asked.with_columns(
                pl.lit(BEGINNING, pl.Int64).alias(POSITION), pl.lit(0, pl.Int64).alias(COUNT)
            )
            placed = pl.concat([none, placed], how="diagonal").select(placed.columns)
        node = self._node
        return aggregated(placed, self._by, node.aggregates, node.input.columns, known)

    def _replaced(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Each row in the place of the one before."""
        until = within(pl.col(POSITION).shift(-1), self._by)
        spans = self._there(rows.with_columns(until.alias(UNTIL)))
        columns = [*self.nothing.columns[:-1], POSITION, COUNT]
        new = spans.with_columns(pl.lit(1, pl.Int64).alias(COUNT))
        old = spans.filter(pl.col(UNTIL).is_not_null()).with_columns(
            pl.col(UNTIL).alias(POSITION), pl.lit(-1, pl.Int64).alias(COUNT)
        )
        return change_of(pl.concat([new.select(columns), old.select(columns)]))

    def _there(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Groups without rows are not seen, unless there is only one."""
        return rows.filter(pl.col(ROWS) > 0) if self._node.keys else rows
