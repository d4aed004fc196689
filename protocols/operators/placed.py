"""Changes of many positions in one frame, and what can be done with them by columns.

A frame of *entries* has `_position` and `_count`: so many more of this row from that position on.
What was there before the batch stands at BEGINNING. So the entries of an input up to a position add
up to its rows at that position, for every position at once, and

    pairs      the join of two inputs: entries at p and q make an entry at max(p, q), because only
               from then on are both there. Sums of steps multiply like that; no state is made.
    presence   whether there is any of a row: 1 from where the sum becomes positive, until it is 0
"""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.algebra.frame import Frame, picked
from protocols.operators.order import in_order

_THEIRS = "_theirs"


def entries(before: pl.DataFrame, change: pl.DataFrame) -> pl.DataFrame:
    """What was there before a batch, and its changes."""
    return pl.concat([throughout(before).select(change.columns), change])


def throughout(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as entries that have always been there."""
    return rows.with_columns(pl.lit(BEGINNING, pl.Int64).alias(POSITION))


def change_of(placed: pl.DataFrame) -> pl.DataFrame:
    """The changes among entries, equal ones added up."""
    return added_up(placed.filter(pl.col(POSITION) > BEGINNING))


def added_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Equal rows as one, their counts added, and zeroes gone."""
    return Frame(rows).consolidated().data.select(rows.columns) if rows.height else rows


def columns_of(placed: pl.DataFrame) -> list[str]:
    """The columns of the rows themselves."""
    return [name for name in placed.columns if name not in (POSITION, COUNT)]


def pairs(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: Sequence[tuple[str, str]],
    nulls_equal: bool = False,
) -> pl.DataFrame:
    """The entries of a join: the columns of both sides, counts multiplied.

    Columns that have one name on both sides are taken from the left.
    """
    if left.is_empty() or right.is_empty():
        return _no_pairs(left, right)
    mine = columns_of(left)
    theirs = [name for name in columns_of(right) if name not in mine]
    # With another key beside it, a DOUBLE is compared as databases do it (see Frame.join).
    joined = left.join(
        right,
        left_on=[*(pl.col(ours) for ours, _ in on), pl.lit(1)],
        right_on=[*(pl.col(other) for _, other in on), pl.lit(1)],
        how="inner",
        coalesce=False,
        nulls_equal=nulls_equal,
        suffix=_THEIRS,
    )
    return joined.select(
        *mine,
        *theirs,
        pl.max_horizontal(POSITION, POSITION + _THEIRS).alias(POSITION),
        pl.col(COUNT) * pl.col(COUNT + _THEIRS),
    )


def _no_pairs(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    schema = dict(left.schema)
    theirs = {name: type_ for name, type_ in right.schema.items() if name not in schema}
    place = {name: schema.pop(name) for name in (POSITION, COUNT)}
    return pl.DataFrame(schema={**schema, **theirs, **place})


def distinct(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The different rows of these columns, NULL like any other value."""
    found = rows.select(columns)
    return found if found.height < 2 else found.unique(maintain_order=True)


def keys(rows: pl.DataFrame, columns: Iterable[tuple[str, str]]) -> pl.DataFrame:
    """The different rows without a NULL of columns (new name, from which); one for each name."""
    found = picked(rows, dict(columns).items())
    if any(column.null_count() for column in found):
        found = found.drop_nulls()
    return found if found.height < 2 else found.unique(maintain_order=True)


def among(rows: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """The rows that agree with one of the wanted ones; NULL agrees with NULL."""
    if rows.is_empty() or wanted.is_empty():
        return rows.clear()
    on = [*(pl.col(name) for name in wanted.columns), pl.lit(1)]
    return rows.join(wanted, on=on, how="semi", nulls_equal=True)


def without(rows: pl.DataFrame, others: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The rows that agree with none of the others; NULL agrees with NULL."""
    return unmatched(rows, others, [(name, name) for name in by], nulls_equal=True)


def unmatched(
    rows: pl.DataFrame, others: pl.DataFrame, on: Sequence[tuple[str, str]], nulls_equal: bool
) -> pl.DataFrame:
    """The rows that agree in `on` (ours, theirs) with none of the others."""
    if rows.is_empty() or others.is_empty():
        return rows
    return rows.join(
        others,
        left_on=[*(pl.col(ours) for ours, _ in on), pl.lit(1)],
        right_on=[*(pl.col(theirs) for _, theirs in on), pl.lit(1)],
        how="anti",
        nulls_equal=nulls_equal,
    )


def presence(placed: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Entries with count 1 from where there is one of these rows, and -1 from where there is none.

    They come row by row, positions ascending. A sum below zero says that something went of which
    it is not known that it was there.
    """
    if placed.is_empty():
        return placed.select(*by, POSITION, COUNT)
    order = in_order(placed, by)
    there = order.sums(placed.get_column(COUNT)).to_numpy() > 0
    was = np.concatenate(([False], there[:-1])) & ~order.begins
    turns = there != was
    place = order.lasts[turns]
    rows = picked(placed, by)[place].get_columns() if by else []
    at = placed.get_column(POSITION)[place]
    return pl.DataFrame([*rows, at, pl.Series(COUNT, np.where(there[turns], 1, -1), pl.Int64)])


def absence(there: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The same rows when they are not there, as entries; of others nothing is said."""
    always = there.select(by).unique() if by else pl.DataFrame(height=min(there.height, 1))
    ones = throughout(always).with_columns(pl.lit(1, pl.Int64).alias(COUNT))
    return added_up(pl.concat([ones, there.with_columns(-pl.col(COUNT)).select(ones.columns)]))
