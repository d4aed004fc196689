"""The aggregates of groups at every position at which the groups change.

Everything here works on entries (`placed.py`), by columns. The result has a row per group and
position at which it has entries, with the number of its rows (`_rows`) and its aggregates there.

Sums are exact (decimals, or those of `exactsums.py` for DOUBLE), so that neither the order of
summation nor a repetition can change the result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import chosen, picked, taken
from protocols.algebra.types import DOUBLE, ColumnType
from protocols.operators import exactsums
from protocols.operators.average import average
from protocols.operators.counting import Counted
from protocols.operators.order import OrderedEntries, in_order
from protocols.operators.placed import entries, running, when_there
from protocols.views.tree import Aggregate

#: The number of rows of a group.
ROWS = "_rows"
_GROUP, _VALUE = "_group", "_value"


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups wherever they change: group after group, the positions of each ascending."""

    #: The group, `_position`, `_rows`, and the values from which its aggregates are computed.
    rows: pl.DataFrame
    #: Whether a row is the first one of its group.
    begins: NDArray[np.bool_]

    @property
    def in_the_end(self) -> pl.DataFrame:
        """The last row of each group, from which later batches can go on."""
        ends = np.flatnonzero(np.append(self.begins[1:], True)[: self.rows.height])
        return taken(picked(self.rows, [n for n in self.rows.columns if n != POSITION]), ends)


def aggregated(
    placed: pl.DataFrame,
    by: Sequence[str],
    aggregates: Sequence[Aggregate],
    types: Mapping[str, ColumnType],
    counted: Counted,
    known: pl.DataFrame | None = None,
) -> Groups:
    """The groups wherever they change; SourceViolation if a count falls below zero.

    `known` are groups as they were before, of which `placed` has the changes only: rows of an
    earlier result of this function (see `is_remembered`).
    """
    steps = _steps(placed, by, aggregates, types, counted)
    if known is not None:
        steps = entries(known, steps)
    order = in_order(steps, by)
    of_group = {*by, POSITION}
    columns = [each[order.lasts] if each.name in of_group else order.sums(each) for each in steps]
    for each in aggregates:
        if each.function in ("min", "max"):
            values = _values(order, placed, each, known)
            low = _below_zero(values, order, 0 if known is None else known.height)
            if not low.is_empty():
                places = pl.DataFrame(columns)[low.get_column(POSITION).to_numpy()]
                rows = [*picked(places, [*by, POSITION]), low.get_column(_VALUE).alias(each.name)]
                counted.check(pl.DataFrame([*rows, low.get_column(COUNT)]), [*by, each.name])
            columns.append(_extremes(order, values, each))
    groups = Groups(pl.DataFrame(columns), order.begins)
    sums = [_number(each) for each in aggregates if each.function in ("count", "sum", "avg")]
    counted.check(groups.rows, by, list(dict.fromkeys([ROWS, *sums])))
    return groups


def results(rows: pl.DataFrame, aggregates: Sequence[Aggregate]) -> pl.DataFrame:
    """Computes the aggregates of groups from their counts and sums."""
    return rows.select(_result(each, rows.schema).alias(each.name) for each in aggregates)


def is_remembered(aggregates: Sequence[Aggregate]) -> bool:
    """Whether groups can go on from their remembered state, without all their rows."""
    return not any(each.distinct for each in aggregates if each.function not in ("min", "max"))


def has_extremes(aggregates: Sequence[Aggregate]) -> bool:
    """Whether a row that goes may have held the least or the greatest value."""
    return any(each.function in ("min", "max") for each in aggregates)


def in_doubt(
    change: pl.DataFrame, by: Sequence[str], aggregates: Sequence[Aggregate], known: pl.DataFrame
) -> pl.DataFrame:
    """The known groups that lose a value equal to their extreme: the next extreme is not known."""
    found = []
    for each in aggregates:
        if each.function in ("min", "max"):
            assert each.column is not None
            gone = change.filter(pl.col(COUNT) < 0).select(*by, pl.col(each.column).alias(_VALUE))
            same = known.select(*by, each.name).join(
                gone, on=[*by, pl.lit(1)], how="inner", nulls_equal=True
            )
            found.append(same.filter(pl.col(each.name) == pl.col(_VALUE)).select(by))
    return pl.concat(found).unique() if found else picked(known.clear(), by)


# -- sums ------------------------------------------------------------------------------------------


def _steps(
    placed: pl.DataFrame,
    by: Sequence[str],
    aggregates: Sequence[Aggregate],
    types: Mapping[str, ColumnType],
    counted: Counted,
) -> pl.DataFrame:
    """The values that each entry adds to its group; with DISTINCT, values that come or go."""
    sums = [each for each in aggregates if each.function in ("count", "sum", "avg")]
    of_all = [value for each in sums if not each.distinct for value in _summands(each, types)]
    parts = [placed.select(*by, POSITION, pl.col(COUNT).alias(ROWS), *of_all)]
    for each in sums:
        if each.distinct:
            assert each.column is not None
            valued = placed.filter(pl.col(each.column).is_not_null())
            row = list(dict.fromkeys((*by, each.column)))
            numbers = running(valued, row)
            counted.check(numbers, row)
            there = when_there(numbers)
            parts.append(there.select(*by, POSITION, *_summands(each, types)))
    if len(parts) == 1:
        return parts[0]
    several = pl.concat(parts, how="diagonal")
    added = [column for column in several if column.name not in (*by, POSITION)]
    zeros = [column.fill_null(b"" if column.dtype == pl.Binary() else 0) for column in added]
    return pl.DataFrame([*picked(several, [*by, POSITION]), *zeros])


def _summands(each: Aggregate, types: Mapping[str, ColumnType]) -> list[pl.Expr]:
    """The columns that COUNT, SUM and AVG add up: the number of values, and their sum."""
    if each.column is None:
        # COUNT(*) is the number of the rows.
        return []
    value = pl.col(each.column)
    number = pl.when(value.is_not_null()).then(pl.col(COUNT)).otherwise(0).alias(_number(each))
    if each.function == "count":
        return [number]
    if types[each.column] == DOUBLE:
        weighed = pl.struct(value.alias("value"), pl.col(COUNT).alias("times")).map_batches(
            lambda rows: exactsums.summands(rows.struct.field("value"), rows.struct.field("times")),
            return_dtype=pl.Binary,
        )
        return [number, weighed.alias(_sum(each))]
    _, scale = _precise(types[each.column])
    exact, times = value.cast(pl.Decimal(38, scale)), pl.col(COUNT).cast(pl.Decimal(38, 0))
    return [number, (exact * times).fill_null(0).alias(_sum(each))]


def _result(each: Aggregate, columns: Mapping[str, pl.DataType]) -> pl.Expr:
    """Computes the aggregate from its count and sum."""
    if each.function in ("min", "max"):
        return pl.col(each.name)
    number = pl.col(_number(each))
    if each.function == "count":
        return number
    assert each.column is not None
    of_doubles = columns[_sum(each)] == pl.Binary()
    if each.function == "sum" and not of_doubles:
        return pl.when(number > 0).then(pl.col(_sum(each)))
    computed: Callable[[pl.Series, pl.Series], pl.Series] = average
    if of_doubles:
        computed = exactsums.sums if each.function == "sum" else exactsums.averages
    both = pl.struct(pl.col(_sum(each)).alias("sum"), number.alias("number"))
    return both.map_batches(
        lambda rows: computed(rows.struct.field("sum"), rows.struct.field("number")),
        return_dtype=pl.Float64,
    )


def _precise(type_: ColumnType) -> tuple[int, int]:
    return type_.precision_and_scale if type_.family == "DECIMAL" else (38, 0)


def _number(each: Aggregate) -> str:
    return ROWS if each.column is None else f"_number.{each.name}"


def _sum(each: Aggregate) -> str:
    return f"_sum.{each.name}"


# -- the least and the greatest --------------------------------------------------------------------


def _values(
    order: OrderedEntries, placed: pl.DataFrame, each: Aggregate, known: pl.DataFrame | None
) -> pl.DataFrame:
    """Counts each value of a group at the steps of the group where its count changes.

    `order` is the order of the known groups followed by all of `placed`.
    """
    assert each.column is not None
    values = placed.select(pl.col(each.column).alias(_VALUE), COUNT)
    if known is not None:
        kept = known.select(pl.col(each.name).alias(_VALUE), pl.lit(1, pl.Int64).alias(COUNT))
        values = pl.concat([kept, values])
    steps = order.steps[: values.height]
    values = values.with_columns(pl.Series(_GROUP, order.rows[steps]), pl.Series(POSITION, steps))
    return running(values.filter(pl.col(_VALUE).is_not_null()), [_GROUP, _VALUE])


def _below_zero(values: pl.DataFrame, order: OrderedEntries, known: int) -> pl.DataFrame:
    """The values with counts below zero, in groups that were read.

    Of remembered groups, which are the first in the order, only one value is known: others may go
    without ever having been counted.
    """
    low = chosen(values, values.get_column(COUNT).to_numpy() < 0)
    if low.is_empty():
        return low
    remembered = np.zeros(order.rows[-1] + 1, np.bool_)
    remembered[order.rows[order.steps[:known]]] = True
    return chosen(low, ~remembered[low.get_column(_GROUP).to_numpy()])


def _extremes(order: OrderedEntries, values: pl.DataFrame, each: Aggregate) -> pl.Series:
    """The least or greatest value that is there, at each step of the groups."""
    found, since, until = _lives(values, order)
    places = _ascending(found, each.function)
    ranks = np.empty(len(places), np.intp)
    ranks[places] = np.arange(len(places))
    best = _greatest(ranks, since, until, len(order.lasts))
    # Where there is none, the rank is -1, which picks a NULL after all values.
    places = np.append(places, found.len())
    return found.extend_constant(None, 1)[places[best]].alias(each.name)


def _ascending(values: pl.Series, function: str) -> NDArray[np.uint32]:
    """The places of the values, the one to be shown last: NaN is above all numbers."""
    return values.arg_sort(descending=function == "min").to_numpy()


def _lives(
    values: pl.DataFrame, order: OrderedEntries
) -> tuple[pl.Series, NDArray[np.intp], NDArray[np.intp]]:
    """The values of groups, each with its first step and the step at which it is gone."""
    turns = when_there(values)
    comes = turns.get_column(COUNT).to_numpy() > 0
    since = turns.get_column(POSITION).to_numpy()
    goes = np.append(~comes[1:], False)[: len(comes)]
    stops = order.stops[turns.get_column(_GROUP).to_numpy()]
    until = np.where(goes, np.roll(since, -1), stops)
    return turns.get_column(_VALUE).filter(comes), since[comes], until[comes]


def _greatest(
    ranks: NDArray[np.intp], since: NDArray[np.intp], until: NDArray[np.intp], steps: int
) -> NDArray[np.intp]:
    """The greatest rank among the spans over each step; -1 where there is none.

    A span is split into two whose length is a power of two (they may overlap), and each of these
    into two half as long. So no span has to be laid out step by step.
    """
    best = np.full(steps, -1)
    lengths = np.log2(until - since).astype(np.intp)
    for length in range(lengths.max(initial=-1), -1, -1):
        # `best` holds the spans of twice this length, at their first steps.
        wide, half = best.copy(), 2**length
        np.maximum(best[half:], wide[:-half], out=best[half:])
        here = lengths == length
        np.maximum.at(best, since[here], ranks[here])
        np.maximum.at(best, until[here] - half, ranks[here])
    return best
