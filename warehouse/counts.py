"""No row of a view has a count below zero.

Such a count means that a row was deleted that was not there: a source published the deletion of a
row that it did not have, or left rows out of an answer. Readers would take it for a row.
"""

from collections.abc import Sequence

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import THEIRS, chosen, compared, met, once, picked
from protocols.operators.placed import in_the_end, lowest, running


def recovering(placed: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The changes of rows that these changes take below zero and then up again."""
    if not (placed.get_column(COUNT) < 0).any():
        return placed.clear()
    counts = running(placed, names)
    last, low = in_the_end(counts), lowest(counts)
    falls = (low < 0) & (low < last.get_column(COUNT).to_numpy())
    rows = picked(chosen(last, falls), names)
    if rows.is_empty():
        return placed.clear()
    return placed.join(rows, on=compared(rows, names), how="semi", nulls_equal=True)


def below_zero(
    placed: pl.DataFrame, names: Sequence[str], there: pl.LazyFrame | None = None
) -> pl.DataFrame | None:
    """The first of these changes that takes a row below zero, with the count after it.

    `there` has the rows before these changes; None for none. Only rows that the changes alone would
    take below zero are looked up in it.
    """
    if not (placed.get_column(COUNT) < 0).any():
        return None
    low = running(placed, names).filter(pl.col(COUNT) < 0)
    if there is not None and not low.is_empty():
        low = _with_those_before(low, names, there)
    below = low.filter(pl.col(COUNT) < 0).sort(POSITION).head(1)
    return None if below.is_empty() else below


def _with_those_before(
    low: pl.DataFrame, names: Sequence[str], there: pl.LazyFrame
) -> pl.DataFrame:
    wanted, on = once(picked(low, names)), compared(low, names)
    before = there.join(wanted.lazy(), on=on, how="semi", nulls_equal=True).collect()
    pairs = [(name, name) for name in names]
    counts = pl.col(COUNT) + pl.col(COUNT + THEIRS).fill_null(0)
    return met(low, before, pairs, "left", nulls_equal=True).with_columns(counts).collect()


def shown(row: pl.DataFrame, names: Sequence[str]) -> str:
    """The first row, for a message."""
    values = row.select(names).row(0, named=True)
    texts = ("NULL" if value is None else str(value) for value in values.values())
    return ", ".join(f"{name} = {text}" for name, text in zip(values, texts, strict=True))[:200]
