"""An outer join of entries in one pass.

A key without rows has a *void* instead: entries of a row of NULLs, there as long as the key has no
row. Voids stand among the rows of their side and are joined like them, so an orphan is a row that
meets a void. Only keys whose numbers change in a batch need them. Any other key either has rows
throughout, so that rows which meet these are not orphans, or never has any, so that nothing is met.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.algebra.frame import AS_WRITTEN, THEIRS, at_once, met, picked
from protocols.operators.placed import columns_of

#: From this many rows on it pays not to lay out all pairs before they are tested.
_MANY = 20_000
#: Whether it is a row rather than a void.
_IS_ROW = "_is_row"


def outer_pairs(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: Sequence[tuple[str, str]],
    voids: tuple[pl.DataFrame | None, pl.DataFrame | None] = (None, None),
    nulls_equal: bool = False,
    is_full: bool = False,
    changes_only: bool = False,
) -> pl.DataFrame:
    """The entries of the left rows with their partners on the right, or else with NULL.

    A full join also has the right rows without partners. With `changes_only`, pairs that have been
    there throughout are left out.
    """
    of_left, of_right = voids
    mine = _with_voids(left, [ours for ours, _ in on], of_left)
    other = _with_voids(right, [theirs for _, theirs in on], of_right)
    keys = [(_key(number), _key(number)) for number in range(len(on))]
    joined = met(mine, other, keys, "full" if is_full else "left", nulls_equal)
    at = pl.max_horizontal(POSITION, POSITION + THEIRS)
    if changes_only:
        joined = joined.filter(at > BEGINNING)
    if is_full:
        joined = joined.filter(pl.col(_IS_ROW) | pl.col(_IS_ROW + THEIRS))
    ours = columns_of(left)
    found = joined.select(
        *ours,
        *(name for name in columns_of(right) if name not in ours),
        at.alias(POSITION),
        pl.col(COUNT).fill_null(1) * pl.col(COUNT + THEIRS).fill_null(1),
    )
    if left.height + right.height < _MANY:
        return at_once(found)
    # In pieces, each taken through join and tests; whole columns are faster afterwards.
    return found.collect(engine="streaming", optimizations=AS_WRITTEN).rechunk()


def _with_voids(rows: pl.DataFrame, by: Sequence[str], voids: pl.DataFrame | None) -> pl.DataFrame:
    """Rows and voids of one side, with key columns to join on; the row of a void is all NULL."""
    keys = {_key(number): name for number, name in enumerate(by)}
    found = _marked(picked(rows, [*rows.columns, *keys.items()]), True)
    if voids is None:
        return found
    rest = _marked(picked(voids, [*keys.items(), POSITION, COUNT]), False)
    return pl.concat([found, rest], how="diagonal")


def _marked(rows: pl.DataFrame, is_row: bool) -> pl.DataFrame:
    return pl.DataFrame([*rows, pl.Series(_IS_ROW, np.full(rows.height, is_row))])


def _key(number: int) -> str:
    return f"_key.{number}"
