"""The production algebra: a signed multiset as a Polars frame, counts in the column `_count`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import BEGINNING, COUNT, FOREVER, POSITION, SINCE, UNTIL, Outputs
from protocols.algebra.expressions import Condition
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.types import ColumnType

#: More than the positions of any batch.
_POSITIONS = 2**31
#: Suffix of a right column of a join whose name the left side has too.
THEIRS = "_theirs"
#: No query optimization.
AS_WRITTEN = pl.QueryOptFlags.none()


@dataclass(frozen=True, eq=False)
class Frame:
    """Typed columns and `_count` (Int64)."""

    data: pl.DataFrame

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.data.columns if name != COUNT)

    @property
    def size(self) -> int:
        return self.data.height

    def is_empty(self) -> bool:
        return self.data.is_empty()

    def plus(self, other: "Frame") -> "Frame":
        if other.is_empty():
            return self
        return Frame(pl.concat([self.data, picked(other.data, self.data.columns)]))

    def negated(self) -> "Frame":
        columns = [self.data.get_column(name) for name in self.columns]
        return Frame(pl.DataFrame([*columns, -self.data.get_column(COUNT)]))

    def where(self, condition: Condition) -> "Frame":
        return Frame(self.data.filter(to_polars(condition)))

    def select(self, outputs: Sequence[tuple[str, str]]) -> "Frame":
        return Frame(picked(self.data, [*outputs, (COUNT, COUNT)]))

    def consolidated(self) -> "Frame":
        by = list(self.columns)
        if not by:
            return Frame(self.data.select(pl.col(COUNT).sum()).filter(pl.col(COUNT) != 0))
        count = self.data.get_column(COUNT).to_numpy()
        if len(count) < 2:
            return Frame(chosen(self.data, count != 0))
        # Equal rows have equal hashes, and most rows have no duplicate.
        hashes = row_hashes(self.data, by).to_numpy()
        if not _has_equal(hashes):
            return Frame(chosen(self.data, count != 0))
        places = np.argsort(hashes)
        goes_on = hashes[places[1:]] == hashes[places[:-1]]
        if not all_equal(self.data, by, places[:-1][goes_on], places[1:][goes_on]):
            # Different rows share a hash.
            summed = self.data.group_by(by, maintain_order=True).agg(pl.col(COUNT).sum())
            return Frame(picked(summed, self.data.columns).filter(pl.col(COUNT) != 0))
        # The first of equal rows gets the sum of their counts.
        heads = np.flatnonzero(np.concatenate(([True], ~goes_on)))
        sums = np.zeros(len(count), np.int64)
        sums[places[heads]] = np.add.reduceat(count[places], heads)
        return Frame(chosen(with_columns(self.data, {COUNT: sums}), sums != 0))

    def join(
        self,
        other: "Frame",
        on: Sequence[tuple[str, str]],
        where: Condition | None = None,
        without: Collection[str] = (),
    ) -> "Frame":
        found = met(self.data, other.data, on)
        if where is not None:
            found = found.filter(to_polars(where))
        names = (name for name in (*self.columns, *other.columns) if name not in without)
        return Frame(at_once(found.select(*names, pl.col(COUNT) * pl.col(COUNT + THEIRS))))

    def keys(self, outputs: Outputs, *more: "tuple[Frame, Outputs]") -> "Frame":
        parts = [picked(each.data, columns) for each, columns in ((self, outputs), *more)]
        found = known_once(parts[0] if len(parts) == 1 else pl.concat(parts))
        return Frame(with_columns(found, {COUNT: 1}))

    def matching(self, keys: "Frame") -> "Frame":
        return Frame(self.data.join(keys.data, on=list(keys.columns), how="semi"))

    def positive(self) -> "Frame":
        return Frame(self.consolidated().data.filter(pl.col(COUNT) > 0))

    def earliest(self, by: Sequence[str], column: str) -> "Frame":
        return Frame(self.data.filter(pl.col(column) == pl.col(column).min().over(list(by))))

    def apart(self, other: "Frame", by: Sequence[str]) -> "tuple[Frame, Frame]":
        theirs, on = picked(other.data, by), list(by)
        touched = self.data.join(theirs, on=on, how="semi", nulls_equal=True)
        if touched.is_empty():
            return Frame(touched), self
        return Frame(touched), Frame(self.data.join(theirs, on=on, how="anti", nulls_equal=True))

    def lifetimes(self, changes: "Frame") -> "Frame":
        by = list(self.columns)
        ends = with_columns(self.data, {POSITION: FOREVER})
        return _lifetimes(pl.concat([picked(changes.data, ends.columns), ends]), by)

    def throughout(self) -> "Frame":
        return Frame(with_columns(self.data, {SINCE: BEGINNING, UNTIL: FOREVER}))

    def split(self, column: str) -> "dict[Any, Frame]":
        if self.data.is_empty():
            return {}
        parts = self.data.partition_by(column, as_dict=True, include_key=False)
        return {value: Frame(part) for (value,), part in parts.items()}


def met(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: Sequence[tuple[str, str]],
    how: Literal["inner", "left", "full"] = "inner",
    nulls_equal: bool = False,
) -> pl.LazyFrame:
    """Joins two sides on `on` (left, right), with all columns of both.

    A right column whose name the left side has too gets the suffix `THEIRS`.
    """
    return left.lazy().join(
        right.lazy(),
        left_on=compared(left, [ours for ours, _ in on]),
        right_on=compared(right, [theirs for _, theirs in on]),
        how=how,
        coalesce=False,
        nulls_equal=nulls_equal,
        suffix=THEIRS,
    )


def compared(rows: pl.DataFrame, by: Sequence[str]) -> list[pl.Expr]:
    """The expressions to join on these columns.

    Polars 2.1 merges columns that it knows to be sorted (a single row is) by IEEE rules, in which
    NaN differs from itself. With a second key it hashes, and NaN equals NaN, as in databases.
    """
    more = not by or (len(by) == 1 and rows.schema[by[0]] == pl.Float64())
    return [*(pl.col(name) for name in by), *([pl.lit(1)] if more else [])]


def at_once(plan: pl.LazyFrame) -> pl.DataFrame:
    """Runs a plan without optimizing it.

    Such a plan is used once and cannot be improved; optimizing costs more than running most of
    them.
    """
    return plan.collect(engine="in-memory", optimizations=AS_WRITTEN)


def known_once(rows: pl.DataFrame) -> pl.DataFrame:
    """The distinct rows without a NULL."""
    if any(column.null_count() for column in rows):
        rows = rows.drop_nulls()
    return once(rows)


def once(rows: pl.DataFrame) -> pl.DataFrame:
    """The distinct rows, in an order that depends only on these rows."""
    if rows.height < 2:
        return rows
    if rows.width > 1:
        return rows.unique(maintain_order=True)
    column = rows.to_series()
    if column.dtype not in (pl.Int64, pl.Int32) or column.null_count():
        return column.unique(maintain_order=True).to_frame()
    ordered = np.sort(column.to_numpy())
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    return pl.DataFrame([pl.Series(column.name, ordered[first], column.dtype)])


def _has_equal(hashes: NDArray[np.uint64]) -> bool:
    ordered = np.sort(hashes)
    return bool((ordered[1:] == ordered[:-1]).any())


def row_hashes(data: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    """Hashes: the same for equal rows (NULL = NULL, NaN = NaN), almost never for other rows."""
    return picked(data, by).hash_rows()


def _lifetimes(entries: pl.DataFrame, by: list[str]) -> Frame:
    """Lifetimes from the changes of rows at positions, and their counts in the end at FOREVER.

    Entries are sorted by row and position. A row's count before its first change is its count in
    the end minus all changes; from there a running sum gives one span per change, after the span
    before the first change.
    """
    if entries.is_empty():
        names = {SINCE: POSITION, UNTIL: POSITION, COUNT: COUNT}
        return Frame(picked(entries, [*((n, n) for n in by), *names.items()]))
    hashes = row_hashes(entries, by).to_numpy()
    at = entries.get_column(POSITION).to_numpy()
    is_change = at < FOREVER
    order, goes_on = by_kind_and_position(hashes, np.where(is_change, at, _last(at, is_change) + 1))
    at, is_change = at[order], is_change[order]
    if not all_equal(entries, by, order[:-1][goes_on], order[1:][goes_on]):
        return _lifetimes_one_by_one(entries, by)
    count = entries.get_column(COUNT).to_numpy()[order]
    heads = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    changed = np.where(is_change, count, 0)
    start = np.add.reduceat(count - 2 * changed, heads)
    row = np.cumsum(np.concatenate(([0], ~goes_on)))
    before = np.concatenate(([0], np.cumsum(changed)))[heads]
    running = start[row] + np.cumsum(changed) - before[row]
    until = np.append(np.where(goes_on, at[1:], FOREVER), FOREVER)
    spans = (
        np.concatenate((order[heads], order[is_change])),
        np.concatenate((np.full(len(heads), BEGINNING), at[is_change])),
        np.concatenate((at[heads], until[is_change])),
        np.concatenate((start, running[is_change])),
    )
    place, since, until, there = (each[(spans[3] != 0) & (spans[1] < spans[2])] for each in spans)
    rows = entries.select(by)[place].get_columns()
    found = {SINCE: since, UNTIL: until, COUNT: there}
    return Frame(pl.DataFrame([*rows, *(pl.Series(n, c, pl.Int64) for n, c in found.items())]))


def by_kind_and_position(
    kinds: NDArray[np.uint64], at: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The places sorted by kind and position, and whether the next place has the same kind.

    Sorting by one number is several times as fast as by two, so kinds are numbered first. Positions
    are those of a batch; the only other one is BEGINNING, before them.
    """
    places = np.argsort(kinds)
    kinds = kinds[places]
    goes_on = kinds[1:] == kinds[:-1]
    number = np.cumsum(np.concatenate(([False], ~goes_on)))
    step = np.maximum(at - at.max(initial=0) + _POSITIONS, 0)[places]
    return places[np.argsort((number << 32) | step)], goes_on


def _last(at: NDArray[np.int64], which: NDArray[np.bool_]) -> int:
    return int(at.max(initial=0, where=which))


def all_equal(
    entries: pl.DataFrame, by: list[str], one: NDArray[np.intp], other: NDArray[np.intp]
) -> bool:
    """Whether the rows at these places are pairwise equal (NULL to NULL, NaN to NaN)."""
    if not by or not len(one):
        return True
    rows = picked(entries, by)
    return taken(rows, one).equals(taken(rows, other), null_equal=True)


def _lifetimes_one_by_one(entries: pl.DataFrame, by: list[str]) -> Frame:
    """The same if different rows share a hash: each distinct row by itself."""
    parts = entries.partition_by(by)
    return Frame(pl.concat(_lifetimes(part, by).data for part in parts))


def picked(data: pl.DataFrame, outputs: Iterable[str | tuple[str, str]]) -> pl.DataFrame:
    """Columns (new name, old name) of a frame, selected without a query plan.

    A plan costs Polars some 50 microseconds, more than most steps of a small sweep.
    """
    pairs = [(each, each) if isinstance(each, str) else each for each in outputs]
    if [name for name, _ in pairs] == [column for _, column in pairs] == data.columns:
        return data
    return pl.DataFrame([data.get_column(column).alias(name) for name, column in pairs])


def with_columns(
    data: pl.DataFrame, columns: Mapping[str, int | NDArray[np.int64]]
) -> pl.DataFrame:
    """Sets columns, each to one number or to an array; also without a query plan."""
    all_columns = {column.name: column for column in data.get_columns()}
    for name, numbers in columns.items():
        values = np.full(data.height, numbers) if isinstance(numbers, int) else numbers
        all_columns[name] = pl.Series(name, values, pl.Int64)
    return pl.DataFrame(list(all_columns.values()))


def chosen(data: pl.DataFrame, which: NDArray[np.bool_]) -> pl.DataFrame:
    """The rows where `which` is true; the frame itself if they are all."""
    return data if which.all() else taken(data, np.flatnonzero(which))


def taken(data: pl.DataFrame, places: NDArray[np.intp]) -> pl.DataFrame:
    """The rows at these places; in a small frame Polars finds them faster by a Series."""
    return data[pl.Series(places, dtype=pl.get_index_type())]


def empty_frame(columns: Mapping[str, ColumnType]) -> Frame:
    """A frame with typed columns and no rows."""
    return _empty_frame(tuple(columns.items()))


@lru_cache(maxsize=1024)
def _empty_frame(columns: tuple[tuple[str, ColumnType], ...]) -> Frame:
    schema = {name: type_.dtype for name, type_ in columns}
    return Frame(pl.DataFrame(schema={**schema, COUNT: pl.Int64()}))
