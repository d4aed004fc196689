"""Changes of many positions in one frame, and what can be done with them by columns.

A frame of *entries* has `_position` and `_count`: so many more of this row from that position on.
What was there before the batch stands at BEGINNING. So the entries of an input up to a position add
up to its rows at that position, for every position at once, and

    pairs      the join of two inputs: entries at p and q make an entry at max(p, q), because only
               from then on are both there. Sums of steps multiply like that; no state is made.
    running    how many there are of a row from each position on; never fewer than none, which the
               operators see to (`counting.py`)
    when_there whether there is any of it: 1 from where the number becomes positive, until it is 0
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.algebra.frame import (
    THEIRS,
    Frame,
    at_once,
    chosen,
    compared,
    met,
    once,
    picked,
    taken,
    with_columns,
)
from protocols.operators.order import in_order

_BEGINS = "_begins"


def entries(before: pl.DataFrame, change: pl.DataFrame) -> pl.DataFrame:
    """What was there before a batch, and its changes."""
    return pl.concat([picked(throughout(before), change.columns), change])


def throughout(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as entries that have always been there."""
    return with_columns(rows, {POSITION: BEGINNING})


def changes(placed: pl.DataFrame) -> pl.DataFrame:
    """The changes among entries."""
    return chosen(placed, placed.get_column(POSITION).to_numpy() > BEGINNING)


def added_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Equal rows as one, their counts added, and zeroes gone."""
    return Frame(rows).consolidated().data


def columns_of(placed: pl.DataFrame) -> list[str]:
    """The columns of the rows themselves."""
    return [name for name in placed.columns if name not in (POSITION, COUNT)]


def pairs(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: Sequence[tuple[str, str]],
    nulls_equal: bool = False,
    where: pl.Expr | None = None,
) -> pl.DataFrame:
    """The entries of a join: the columns of both sides, counts multiplied.

    Columns that have one name on both sides are taken from the left. Only the pairs for which
    `where` is true are made.
    """
    if left.is_empty() or right.is_empty():
        return _no_pairs(left, right)
    mine = columns_of(left)
    theirs = [name for name in columns_of(right) if name not in mine]
    found = met(left, right, on, nulls_equal=nulls_equal)
    if where is not None:
        found = found.filter(where)
    return at_once(
        found.select(
            *mine,
            *theirs,
            pl.max_horizontal(POSITION, POSITION + THEIRS).alias(POSITION),
            pl.col(COUNT) * pl.col(COUNT + THEIRS),
        )
    )


def _no_pairs(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    schema = dict(left.schema)
    theirs = {name: type_ for name, type_ in right.schema.items() if name not in schema}
    place = {name: schema.pop(name) for name in (POSITION, COUNT)}
    return pl.DataFrame(schema={**schema, **theirs, **place})


def distinct(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The different rows of these columns, NULL like any other value."""
    return once(picked(rows, columns))


def among(rows: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """The rows that agree with one of the wanted ones; NULL agrees with NULL."""
    if rows.is_empty() or wanted.is_empty():
        return rows.clear()
    on = compared(rows, wanted.columns)
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
        left_on=compared(rows, [ours for ours, _ in on]),
        right_on=compared(others, [theirs for _, theirs in on]),
        how="anti",
        nulls_equal=nulls_equal,
    )


def when_there(numbers: pl.DataFrame) -> pl.DataFrame:
    """Entries with count 1 from where there is one of a row, and -1 from where there is none.

    They come row by row, positions ascending, from the running numbers of the rows.
    """
    return _entries_at(numbers, *_turns(numbers))


def absence(numbers: pl.DataFrame) -> pl.DataFrame:
    """Entries of when there is none of a row whose running numbers are known.

    Each has one at BEGINNING, with count 0 if there are some of it then.
    """
    at = numbers.get_column(POSITION).to_numpy()
    begins, there = numbers.get_column(_BEGINS).to_numpy(), numbers.get_column(COUNT).to_numpy() > 0
    first = _entries_at(numbers, begins, np.where(there & (at == BEGINNING), 0, 1))
    turns, steps = _turns(numbers)
    later = _entries_at(numbers, turns & (at > BEGINNING), -steps)
    return pl.concat([throughout(first), later])


def running(placed: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """How many there are of each of these rows from each position on at which entries stand.

    The positions of a row follow each other; the first of them is marked.
    """
    if placed.is_empty():
        return placed.select(*by, POSITION, COUNT, pl.lit(True).alias(_BEGINS))
    order = in_order(placed, by)
    rows = taken(picked(placed, by), order.lasts).get_columns() if by else []
    at = placed.get_column(POSITION)[order.lasts]
    numbers = order.sums(placed.get_column(COUNT))
    return pl.DataFrame([*rows, at, numbers, pl.Series(_BEGINS, order.begins)])


def in_the_end(numbers: pl.DataFrame) -> pl.DataFrame:
    """How many there are of each row behind all positions."""
    begins = numbers.get_column(_BEGINS).to_numpy()
    rest = picked(numbers, [n for n in numbers.columns if n not in (POSITION, _BEGINS)])
    return chosen(rest, np.append(begins[1:], True)[: len(begins)])


def _turns(numbers: pl.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Where the first of a row comes or the last one goes; 1 where it comes, -1 where it goes."""
    there = numbers.get_column(COUNT).to_numpy() > 0
    was = np.concatenate(([False], there[:-1])) & ~numbers.get_column(_BEGINS).to_numpy()
    return there != was, np.where(there, 1, -1)


def _entries_at(
    numbers: pl.DataFrame, where: NDArray[np.bool_], counts: NDArray[np.int64]
) -> pl.DataFrame:
    """Entries of some of these rows, with other counts."""
    rest = picked(numbers, [name for name in numbers.columns if name != _BEGINS])
    return chosen(with_columns(rest, {COUNT: counts}), where)
