"""Counts of rows never fall below zero.

An operator counts rows as of the cut before a batch and their changes, position by position. Both
are what the sources held and committed: a change is net per position, and linear operators and
joins preserve sums. So the sum up to and including a position is the number of rows there. Only in
between may it be below zero: between the entries of one position, which are added up first
(`order.py`), and for the values of a group of which only the least or greatest is remembered, which
are not counted (`aggregates.py`).

A number below zero therefore says that a source published the deletion of a row that it did not
have, that an answer lacked rows, or that viewsweep is wrong; the operator cannot tell which. If it
were taken for zero, the error would hide in a DISTINCT, an EXISTS or a group for good. One error
no operator can see: a deletion that leaves others of the same key or group. Then only sums of the
group and rows of the view are wrong, and `warehouse/counts.py` checks these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.errors import SourceViolation
from protocols.views.tree import Node, headline, relations


@dataclass(frozen=True, eq=False)
class Counted:
    """The rows of an input that an operator counts, and refuses to count below zero."""

    #: The nodes of the operator and of the input.
    node: Node
    below: Node
    #: Whether counts below zero are accepted: in a control, which is wrong on purpose.
    allows_too_few: bool
    #: The position before the batch.
    cut: int = 0

    def behind(self, cut: int) -> "Counted":
        """The same in a batch after a cut."""
        return Counted(self.node, self.below, self.allows_too_few, cut)

    def check(
        self, numbers: pl.DataFrame, by: Sequence[str], counts: Sequence[str] = (COUNT,)
    ) -> None:
        """Raises SourceViolation if a count of a row is below zero; `by` are the row's columns."""
        if self.allows_too_few:
            return
        for count in counts:
            if (numbers.get_column(count).to_numpy() < 0).any():
                raise self._too_few(numbers, by, count)

    def _too_few(self, numbers: pl.DataFrame, by: Sequence[str], count: str) -> SourceViolation:
        """The violation at the first position where the count of a row is below zero."""
        low = numbers.filter(pl.col(count) < 0)
        at = self.cut
        if POSITION in low.columns:
            low = low.sort(POSITION)
            at = self.cut if low.item(0, POSITION) == BEGINNING else low.item(0, POSITION)
        values = low.select(by).row(0, named=True)
        text = ", ".join(f"{n} = {'NULL' if v is None else v}" for n, v in values.items())
        names = ", ".join(map(str, relations(self.below)))
        return SourceViolation(
            f"{headline(self.node)} over {names}: from position {at} on there would be"
            f" {low.item(0, count)} rows for ({text[:200]}). That update deletes a row that was not"
            " there, or an answer before it lacked rows: compare what the sources published with"
            " what they hold"
        )
