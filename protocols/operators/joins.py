"""Joins of anything with anything: inner, left, full, and the two halves of EXISTS.

All pairs are found by columns for all positions of a batch at once (`placed.pairs`). What an outer
join pads with NULL, its *orphans*, is what has no partner:

    orphans = left - left joined with (presence of a partner)

Presence is taken per join key, or, where a pair has to satisfy more than equalities, per row of
the left side. So an orphan appears at the very position at which the last partner goes, and goes
when the first one comes. NULL in a join key meets nothing and is always an orphan.

Null extension is not linear. It is right here because it comes last: the sources are asked for
inner matches only, and answers are corrected before anything is padded.
"""

from collections.abc import Collection

import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.algebra.expressions import to_polars
from protocols.algebra.frame import Frame, empty_frame
from protocols.maintenance.questions import Maintenance
from protocols.maintenance.together import together
from protocols.operators.operator import Operator, Span, Task, before, no_change
from protocols.operators.placed import (
    added_up,
    among,
    change_of,
    columns_of,
    distinct,
    entries,
    keys,
    pairs,
    presence,
)
from protocols.views import tree


class Join:
    """A join at work."""

    def __init__(self, node: tree.Join, left: Operator, right: Operator) -> None:
        self._left, self._right = left, right
        self._kind = node.kind
        self._on = node.on
        self._test = None if node.condition is None else to_polars(node.condition)
        self._sides = node.left.columns, node.right.columns
        self._columns = node.columns
        self.nothing = empty_frame(node.columns).data

    # -- what it does ----------------------------------------------------------------------------

    def change(self, span: Span) -> Task:
        left, right = yield from together([self._left.change(span), self._right.change(span)])
        if left.is_empty() and right.is_empty():
            return no_change(self)
        # The partners of what changes; and to know who has none, the other partners of those.
        of_left = self._keys(0, left if self._kind == "full" else None, right)
        of_right = self._keys(1, left, None if self._kind == "inner" else right)
        there = yield from together(
            [before(self._left, span, of_left), before(self._right, span, of_right)]
        )
        placed = [entries(*each) for each in zip(there, (left, right), strict=True)]
        return change_of(self._rows(*placed))

    def before(self, span: Span, wanted: pl.DataFrame | None) -> Task:
        left, right = yield from self._sides_before(span, wanted)
        rows = self._rows(_at_once(left), _at_once(right)).drop(POSITION)
        return added_up(rows if wanted is None else among(rows, wanted))

    def settle(self) -> None:
        self._left.settle()
        self._right.settle()

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """The entries of the join of these entries."""
        if self._kind == "semi":
            return self._met(left, right)
        if self._kind == "anti":
            return _minus(left, self._met(left, right))
        parts = [self._joined(left, right)]
        if self._kind in ("left", "full"):
            parts.append(self._padded(_minus(left, self._met(left, right))))
        if self._kind == "full":
            parts.append(self._padded(_minus(right, self._met(right, left, turned=True))))
        return pl.concat([part.select(*self._columns, POSITION, COUNT) for part in parts])

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        found = pairs(left, right, self._on)
        return found if self._test is None else found.filter(self._test)

    def _met(self, rows: pl.DataFrame, others: pl.DataFrame, turned: bool = False) -> pl.DataFrame:
        """The entries of one side while they have a partner on the other; `turned`: the right."""
        on = [(theirs, ours) for ours, theirs in self._on] if turned else list(self._on)
        if self._test is None:
            there = presence(others, [other for _, other in on])
            return pairs(rows, there, on).select(rows.columns)
        # Which of the rows has a partner depends on all their columns.
        mine = columns_of(rows)
        each = distinct(rows, mine).with_columns(pl.lit(1, pl.Int64).alias(COUNT))
        met = pairs(_at_once(each), others, on).filter(self._test)
        there = presence(met.select(*mine, POSITION, COUNT), mine)
        return pairs(rows, there, [(name, name) for name in mine], nulls_equal=True)

    def _padded(self, orphans: pl.DataFrame) -> pl.DataFrame:
        """Rows of one side, with NULL in the columns of the other."""
        missing = {name: type_ for name, type_ in self._columns.items() if name not in orphans}
        return orphans.with_columns(
            pl.lit(None, type_.dtype).alias(name) for name, type_ in missing.items()
        )

    # -- what to ask for -------------------------------------------------------------------------

    def _keys(
        self, side: int, of_left: pl.DataFrame | None, of_right: pl.DataFrame | None
    ) -> pl.DataFrame | None:
        """The join keys of these rows as one side (0, 1) calls them."""
        there = [(own, rows) for own, rows in enumerate((of_left, of_right)) if rows is not None]
        if not self._on:
            # Everything meets everything.
            return None if any(not rows.is_empty() for _, rows in there) else pl.DataFrame()
        sets = [keys(rows, [(pair[side], pair[own]) for pair in self._on]) for own, rows in there]
        return pl.concat(sets).unique(maintain_order=True)

    def _sides_before(
        self, span: Span, wanted: pl.DataFrame | None
    ) -> Maintenance[Frame, tuple[pl.DataFrame, pl.DataFrame]]:
        """Of both sides all rows that these rows of the join depend on."""
        mine, theirs = (_part(wanted, side) for side in self._sides)
        if mine is not None and not (self._kind == "full" and _all_null(mine)):
            left = yield from before(self._left, span, mine)
            right = yield from before(self._right, span, self._keys(1, left, None))
        elif theirs is not None and (self._kind in ("inner", "semi") or not _all_null(theirs)):
            right = yield from before(self._right, span, theirs)
            left = yield from before(self._left, span, self._keys(0, None, right))
        else:
            sides = (self._left, self._right)
            left, right = yield from together([before(side, span, None) for side in sides])
        return left, right


def _part(wanted: pl.DataFrame | None, side: Collection[str]) -> pl.DataFrame | None:
    """The keys of one side; None when none of their columns is there."""
    names = [] if wanted is None else [name for name in wanted.columns if name in side]
    return None if wanted is None or not names else distinct(wanted, names)


def _all_null(wanted: pl.DataFrame) -> bool:
    """Whether some key says nothing but NULL, as the columns of an orphan's missing side do."""
    return bool(wanted.select(pl.all_horizontal(pl.all().is_null()).any()).item())


def _at_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as entries that have always been there."""
    return rows.with_columns(pl.lit(BEGINNING, pl.Int64).alias(POSITION))


def _minus(placed: pl.DataFrame, less: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([placed, less.select(placed.columns).with_columns(-pl.col(COUNT))])
