"""Changes of many positions in one frame, and operations on them by columns.

A frame of *entries* has the columns `_position` and `_count`: from `_position` on, there are
`_count` more of the row. Rows from before the batch have the position BEGINNING. So the entries of
an input up to a position add up to its rows at that position, for every position at once, and

    pairs      the join of two inputs: entries at p and q make an entry at max(p, q), because only
               from then on are both there. Multiplying two such sums of changes term by term
               gives exactly these entries, so no intermediate state has to be built.
    running    the count of a row from each position on; never below zero, which the operators
               check (`counting.py`)
    when_there whether the row is there: 1 from where the count becomes positive, until it is 0
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
    """The rows before a batch and its changes, as entries."""
    return pl.concat([picked(throughout(before), change.columns), change])


def throughout(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows as entries that have always been there."""
    return with_columns(rows, {POSITION: BEGINNING})


def changes(placed: pl.DataFrame) -> pl.DataFrame:
    """The changes among entries."""
    return chosen(placed, placed.get_column(POSITION).to_numpy() > BEGINNING)


def added_up(rows: pl.DataFrame) -> pl.DataFrame:
    """Merges equal rows, adds their counts and drops zeroes."""
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
    """Entries with count 1 where a row appears, and -1 where it disappears.

    They come row by row, positions ascending, from the running counts of the rows.
    """
    return _entries_at(numbers, *_turns(numbers))


def absence(numbers: pl.DataFrame) -> pl.DataFrame:
    """Entries for the positions at which a row is absent, from its running counts.

    Each row has one at BEGINNING, with count 0 if the row is there then.
    """
    at = numbers.get_column(POSITION).to_numpy()
    begins, there = numbers.get_column(_BEGINS).to_numpy(), numbers.get_column(COUNT).to_numpy() > 0
    first = _entries_at(numbers, begins, np.where(there & (at == BEGINNING), 0, 1))
    turns, steps = _turns(numbers)
    later = _entries_at(numbers, turns & (at > BEGINNING), -steps)
    return pl.concat([throughout(first), later])


def running(placed: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The count of each row from every position on at which it has entries.

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
    """The count of each row after all positions."""
    begins = numbers.get_column(_BEGINS).to_numpy()
    rest = picked(numbers, [n for n in numbers.columns if n not in (POSITION, _BEGINS)])
    return chosen(rest, np.append(begins[1:], True)[: len(begins)])


def lowest(numbers: pl.DataFrame) -> NDArray[np.int64]:
    """The lowest count of each row, in the order of `in_the_end`."""
    starts = np.flatnonzero(numbers.get_column(_BEGINS).to_numpy())
    counts = numbers.get_column(COUNT).to_numpy()
    return np.minimum.reduceat(counts, starts) if len(starts) else counts


def _turns(numbers: pl.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Whether a row appears or disappears at each place; and 1 if it is there, else -1."""
    there = numbers.get_column(COUNT).to_numpy() > 0
    was = np.concatenate(([False], there[:-1])) & ~numbers.get_column(_BEGINS).to_numpy()
    return there != was, np.where(there, 1, -1)


def _entries_at(
    numbers: pl.DataFrame, where: NDArray[np.bool_], counts: NDArray[np.int64]
) -> pl.DataFrame:
    """Entries for some of these rows, with other counts."""
    rest = picked(numbers, [name for name in numbers.columns if name != _BEGINS])
    return chosen(with_columns(rest, {COUNT: counts}), where)
