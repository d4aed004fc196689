"""GROUP BY and DISTINCT: a row per group, computed again wherever a group changes.

The groups that a batch touches are read as they were before it, or remembered; `aggregates.py`
computes them at each position at which they change. The row of a group there replaces the one
before: minus the old, plus the new. Without GROUP BY there is one group, which is there even over
no rows.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.algebra.frame import empty_frame, taken
from protocols.operators.aggregates import (
    ROWS,
    Groups,
    aggregated,
    in_doubt,
    results,
)
from protocols.operators.counting import Counted
from protocols.operators.keys import (
    ALL,
    All,
    Asked,
    Keys,
    Nobody,
    These,
    agreeing,
    handed_on,
    these,
)
from protocols.operators.memory import Memory
from protocols.operators.operator import Operator, Span, Task, before, no_change
from protocols.operators.placed import distinct, entries, without
from protocols.operators.statements import statement
from protocols.views import tree

#: A column in which all rows agree.
_EVERYTHING = "_everything"
_ONLY_GROUP = pl.DataFrame({_EVERYTHING: [0]}, schema_overrides={_EVERYTHING: pl.Int32})


class GroupOperator:
    """The operator of a grouping."""

    def __init__(
        self,
        node: tree.Group,
        below: Operator,
        memory: Callable[[list[str]], Memory],
        allows_too_few: bool = False,
    ) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below
        self._node = node
        stated = statement(node)
        (self._names,), (self._asks,) = stated.names, stated.reads
        self._by = list(self._asks.by) or [_EVERYTHING]
        self._memory = memory(self._by) if stated.remembers else None
        self._counted = Counted(node, node.input, allows_too_few)

    def change(self, span: Span) -> Task:
        change = yield from self._below.change(span)
        if change.is_empty():
            return no_change(self)
        change = self._grouped(change)
        known, unknown = self._remembered(change)
        there = yield from self._read(span, these(unknown))
        groups = self._groups(span, entries(there, change), known)
        if self._memory is not None:
            self._memory.learn(groups.in_the_end)
        return self._replaced(groups)

    def before(self, span: Span, keys: Asked) -> Task:
        groups = yield from self._groups_before(span, self._named(keys))
        there = groups.filter(self._is_there(groups))
        # If nothing reads a column of it, the frame has no columns and so no rows.
        ones = pl.Series(COUNT, np.ones(there.height, np.int64))
        return agreeing(pl.DataFrame([*self._shown(there).get_columns(), ones]), keys)

    def _groups_before(self, span: Span, keys: Asked) -> Task:
        """Groups as they are remembered, or else as they are read."""
        memory = self._memory
        if isinstance(keys, All) or memory is None or keys.rows.width < len(self._by):
            groups = yield from self._groups_read(span, keys)
            return groups
        known, unknown = memory.find(keys.rows)
        if known is not None and unknown.is_empty():
            return known
        groups = yield from self._groups_read(span, these(unknown), unknown)
        return groups if known is None else pl.concat([groups, known.select(groups.columns)])

    def _groups_read(self, span: Span, keys: Keys, asked: pl.DataFrame | None = None) -> Task:
        """Reads groups and remembers them."""
        there = yield from self._read(span, keys)
        placed = entries(there, self._grouped(no_change(self._below)))
        rows = self._groups(span, placed, asked=asked)
        if self._memory is not None:
            self._memory.seen(rows.in_the_end, all_of_them=isinstance(keys, All))
        return rows.in_the_end

    def settle(self) -> None:
        self._below.settle()
        if self._memory is not None:
            self._memory.settle()

    def to_remember(self, _side: int, span: Span, keys: Asked) -> Task:
        """Reads groups in the form in which they are remembered, whether they are or not."""
        asked = keys.rows if isinstance(keys, These) else None
        groups = yield from self._groups_read(span, keys, asked)
        return groups

    # -- groups before the batch -----------------------------------------------------------------

    def _named(self, keys: Asked) -> Asked:
        """The keys by the columns that the rows are grouped by."""
        return handed_on(keys, self._names) if self._node.keys else These(_ONLY_GROUP)

    def _remembered(self, change: pl.DataFrame) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """The known ones of the groups that change, and the groups to be read."""
        touched = distinct(change, self._by)
        known, unknown = (None, touched) if self._memory is None else self._memory.find(touched)
        if known is None or not self._asks.doubted:
            return known, unknown
        again = in_doubt(change, self._by, self._node.aggregates, known)
        return without(known, again, self._by), pl.concat([unknown, again])

    def _read(self, span: Span, keys: Keys) -> Task:
        """Reads the rows of these groups before the batch."""
        if not self._asks.by and not isinstance(keys, Nobody):
            keys = ALL
        rows = yield from before(self._below, span, keys)
        return agreeing(self._grouped(rows), keys)

    def _grouped(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with a column to group by, even without GROUP BY."""
        if self._node.keys:
            return rows
        return rows.with_columns(pl.lit(0).alias(_EVERYTHING))

    # -- rows ------------------------------------------------------------------------------------

    def _groups(
        self,
        span: Span,
        placed: pl.DataFrame,
        known: pl.DataFrame | None = None,
        asked: pl.DataFrame | None = None,
    ) -> Groups:
        """Computes the groups at every position at which they change.

        Groups that were asked for are included even without rows: then that is known, too.
        """
        if not self._node.keys and known is None and asked is None:
            asked = _ONLY_GROUP
        if asked is not None:
            none = asked.with_columns(
                pl.lit(BEGINNING, pl.Int64).alias(POSITION), pl.lit(0, pl.Int64).alias(COUNT)
            )
            placed = pl.concat([none, placed], how="diagonal").select(placed.columns)
        node, counted = self._node, self._counted.behind(span.cut)
        return aggregated(placed, self._by, node.aggregates, node.input.columns, counted, known)

    def _replaced(self, groups: Groups) -> pl.DataFrame:
        """Replaces each row by the next one of its group, if they differ."""
        rows, at = self._shown(groups.rows), groups.rows.get_column(POSITION)
        is_there = self._is_there(groups.rows)
        was_there = np.roll(is_there, 1) & ~groups.begins
        same = is_there & was_there
        for each in self._node.aggregates:
            column = rows.get_column(each.name)
            same &= column.eq_missing(column.shift()).to_numpy()
        comes = np.flatnonzero(is_there & ~same & (at.to_numpy() > BEGINNING))
        goes = np.flatnonzero(was_there & ~same)
        new = _placed(taken(rows, comes), at[comes], 1)
        old = _placed(taken(rows, goes - 1), at[goes], -1)
        return pl.concat([new, old])

    def _shown(self, groups: pl.DataFrame) -> pl.DataFrame:
        """The groups with their aggregates."""
        aggregates = results(groups, self._node.aggregates).get_columns()
        return pl.DataFrame([*(groups.get_column(key) for key in self._node.keys), *aggregates])

    def _is_there(self, groups: pl.DataFrame) -> NDArray[np.bool_]:
        """Whether each group is shown: one without rows is not, unless it is the only group."""
        if not self._node.keys:
            return np.ones(groups.height, np.bool_)
        return groups.get_column(ROWS).to_numpy() > 0


def _placed(rows: pl.DataFrame, at: pl.Series, count: int) -> pl.DataFrame:
    """Rows as entries at these positions."""
    return pl.DataFrame([*rows, at, pl.Series(COUNT, np.full(rows.height, count, np.int64))])
