"""What an operator remembers between batches, so that it need not ask again.

A row per group: how many rows it has, its sums, its least value; or how many partners a join key
has. It is a copy of what the sources could tell, no more: what is not here is read as of the cut
before the batch, and remembered from then on. So a memory may be empty (after a restart) or forget
(when it is full) at any time, nothing has to be stored or recovered, and no relation is kept.
"""

import polars as pl

from protocols.operators.placed import among

#: How many groups are remembered; those that were not met for longest are forgotten.
ROOM = 1_000_000


class Memory:
    """Rows by some of their columns, which are unique."""

    def __init__(self, by: list[str], room: int = ROOM) -> None:
        self._by = by
        self._room = room
        #: None as long as nothing was learnt; the rows met last stand at the end.
        self._rows: pl.DataFrame | None = None
        #: Waiting for the end of the batch: groups as they are then, and groups that were read.
        self._learnt: pl.DataFrame | None = None
        self._seen: pl.DataFrame | None = None

    def find(self, wanted: pl.DataFrame) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """What is known of these groups, and the groups that are not known."""
        if self._rows is None:
            return None, wanted
        known = among(self._rows, wanted)
        return known, without(wanted, known, self._by)

    def learn(self, rows: pl.DataFrame) -> None:
        """What the groups that a batch changes are like after it."""
        self._learnt = rows

    def seen(self, rows: pl.DataFrame) -> None:
        """What groups were like before the batch, which does not change them unless learnt so."""
        self._seen = rows

    def settle(self) -> None:
        """The batch is done, and what is known is true of the state behind it."""
        parts = [part for part in (self._learnt, self._seen, self._rows) if part is not None]
        self._learnt = self._seen = None
        if not parts:
            return
        rows, *older = parts
        for part in older:
            rows = pl.concat([without(part.select(rows.columns), rows, self._by), rows])
        self._rows = rows.tail(self._room)


def without(rows: pl.DataFrame, others: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """The rows that agree with none of the others; NULL agrees with NULL."""
    on = [*(pl.col(name) for name in by), pl.lit(1)]
    return rows.join(others, on=on, how="anti", nulls_equal=True)
