"""Window functions over rows that stand in order: partition after partition, state after state.

A frame is a stretch of these rows, from its first to its last place. So a sum over it is a
difference of two sums from the beginning on, whole numbers all (`exactsums.py` for DOUBLE), and a
minimum is that of two overlapping stretches of a power of two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.frame import picked
from protocols.algebra.types import DOUBLE, ColumnType
from protocols.errors import NoValue
from protocols.operators import exactsums
from protocols.operators.average import average
from protocols.views.tree import Window, WindowFunction

_Places: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Ordered:
    """Rows in order, those of one state of a partition together."""

    rows: pl.DataFrame
    #: The first and the last place of each row's state, and of the rows equal in the order.
    starts: _Places
    stops: _Places
    first_peers: _Places
    last_peers: _Places

    @cached_property
    def places(self) -> _Places:
        return np.arange(self.rows.height)


def ordered(rows: pl.DataFrame, node: Window, state: str) -> Ordered:
    """Rows in the order of a window, with the number of their state in a column."""
    keys = [pl.col(state)]
    for each in node.order:
        column = pl.col(each.name)
        # -0.0 equals 0.0.
        keys.append(column + 0.0 if rows.schema[each.name] == pl.Float64() else column)
    rows = rows.sort(
        keys,
        descending=[False, *(each.descending for each in node.order)],
        nulls_last=[False, *(not each.nulls_first for each in node.order)],
    )
    of_states = _begins(rows, [state])
    of_peers = _begins(rows, [state, *(each.name for each in node.order)])
    return Ordered(rows, *_stretches(of_states), *_stretches(of_peers))


def computed(given: Ordered, node: Window) -> list[pl.Series]:
    """The columns that the functions of a window add."""
    types = node.input.columns
    return [
        _FUNCTIONS[each.function](given, each, types).alias(each.name) for each in node.functions
    ]


def _begins(rows: pl.DataFrame, by: list[str]) -> NDArray[np.bool_]:
    """Whether each row differs from the one before."""
    begins = np.zeros(rows.height, np.bool_)
    begins[:1] = True
    for column in picked(rows, by):
        begins |= column.ne_missing(column.shift()).to_numpy()
    return begins


def _stretches(begins: NDArray[np.bool_]) -> tuple[_Places, _Places]:
    """The first and the last place of the stretch of each row."""
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(begins)) - 1
    number = np.cumsum(begins) - 1
    return firsts[number], lasts[number]


def _frame(given: Ordered, each: WindowFunction) -> tuple[_Places, _Places]:
    """The first and the last place of each row's frame; it is empty if they cross."""
    frame, here = each.frame, given.places
    low, high = given.starts, given.stops
    if frame.kind == "rows":
        if frame.start is not None:
            low = np.maximum(low, here + frame.start)
        if frame.end is not None:
            high = np.minimum(high, here + frame.end)
    else:
        low = low if frame.start is None else given.first_peers
        high = high if frame.end is None else given.last_peers
    return low, high


def _at(values: pl.Series, places: _Places, there: NDArray[np.bool_]) -> pl.Series:
    """The values at places; NULL where none is there."""
    known = pl.Series(np.where(there, places, 0), dtype=pl.get_index_type())
    return values.gather(known).set(pl.Series(~there), None)


# -- the functions ---------------------------------------------------------------------------------

_Types: TypeAlias = dict[str, ColumnType]


def _row_number(given: Ordered, _: WindowFunction, __: _Types) -> pl.Series:
    return pl.Series(given.places - given.starts + 1, dtype=pl.Int64)


def _rank(given: Ordered, _: WindowFunction, __: _Types) -> pl.Series:
    return pl.Series(given.first_peers - given.starts + 1, dtype=pl.Int64)


def _dense_rank(given: Ordered, _: WindowFunction, __: _Types) -> pl.Series:
    number = np.cumsum(given.first_peers == given.places)
    before = number[given.starts] if len(number) else number
    return pl.Series(number - before + 1, dtype=pl.Int64)


def _neighbour(given: Ordered, each: WindowFunction, _: _Types) -> pl.Series:
    assert each.column is not None
    places = given.places + each.distance
    there = (places >= given.starts) & (places <= given.stops)
    found = _at(given.rows.get_column(each.column), places, there)
    if each.default is None:
        return found
    return found.zip_with(pl.Series(there), given.rows.get_column(each.default))


def _edge(given: Ordered, each: WindowFunction, _: _Types) -> pl.Series:
    assert each.column is not None
    low, high = _frame(given, each)
    places = low if each.function == "first_value" else high
    return _at(given.rows.get_column(each.column), places, low <= high)


def _count(given: Ordered, each: WindowFunction, _: _Types) -> pl.Series:
    low, high = _frame(given, each)
    if each.column is None:
        return pl.Series(np.maximum(high - low + 1, 0), dtype=pl.Int64)
    return pl.Series(_numbers(given, each.column, low, high), dtype=pl.Int64)


def _numbers(given: Ordered, column: str, low: _Places, high: _Places) -> NDArray[np.int64]:
    """How many values stand in each frame."""
    there = given.rows.get_column(column).is_not_null().to_numpy().astype(np.int64)
    found: NDArray[np.int64] = _between(there, low, high)
    return found


def _between(whole: NDArray[Any], low: _Places, high: _Places) -> NDArray[Any]:
    """The sums of whole numbers over frames."""
    sums = np.concatenate((np.zeros(1, whole.dtype), np.cumsum(whole)))
    high = np.maximum(high, low - 1)
    found: NDArray[Any] = sums[high + 1] - sums[low]
    return found


def _sum(given: Ordered, each: WindowFunction, types: _Types) -> pl.Series:
    """SUM and AVG."""
    assert each.column is not None
    low, high = _frame(given, each)
    values = given.rows.get_column(each.column)
    numbers = pl.Series(_numbers(given, each.column, low, high))
    if types[each.column] == DOUBLE:
        ones = pl.Series(np.ones(len(values), np.int64))
        whole = _between(exactsums.numbers(exactsums.summands(values, ones)), low, high)
        of_doubles = exactsums.sums if each.function == "sum" else exactsums.averages
        return of_doubles(exactsums.as_sums("", whole), numbers)
    scale = values.dtype.scale if isinstance(values.dtype, pl.Decimal) else 0
    units = values.to_physical() if isinstance(values.dtype, pl.Decimal) else values
    added = np.array([0, *(each or 0 for each in units)], np.object_)[1:]
    sums = _decimals(_between(added, low, high), scale)
    if each.function == "avg":
        return average(sums, numbers)
    return sums.set(numbers == 0, None)


def _decimals(units: NDArray[np.object_], scale: int) -> pl.Series:
    """Whole multiples of 10^-scale as decimals of 38 digits."""
    most = max(map(abs, units), default=0)
    if most >= 10**38:
        raise NoValue(f"a sum over a window, {most}, has more than 38 digits")
    return pl.Series(list(units), dtype=pl.Int128).reinterpret(dtype=pl.Decimal(38, scale))


def _extreme(given: Ordered, each: WindowFunction, _: _Types) -> pl.Series:
    """MIN and MAX: the value of the greatest rank in a frame; NULL has the lowest."""
    assert each.column is not None
    low, high = _frame(given, each)
    values = given.rows.get_column(each.column)
    order = values.arg_sort(descending=each.function == "min", nulls_last=False).to_numpy()
    ranks = np.empty(len(values), np.intp)
    ranks[order] = np.arange(len(values))
    ranks[values.is_null().to_numpy()] = -1
    best = _greatest(ranks, low, high)
    there = best >= 0
    return _at(values, order[np.where(there, best, 0)].astype(np.intp), there)


def _greatest(ranks: _Places, low: _Places, high: _Places) -> _Places:
    """The greatest rank of each frame; -1 in an empty one."""
    found = np.full(len(ranks), -1)
    lengths = np.maximum(high - low + 1, 0)
    widest, table = 1, ranks
    while (lengths >= widest).any():
        here = (lengths >= widest) & (lengths < 2 * widest)
        last = high[here] - widest + 1
        found[here] = np.maximum(table[low[here]], table[last])
        wider = np.full(len(table), -1)
        wider[: len(table) - widest] = np.maximum(table[: len(table) - widest], table[widest:])
        widest, table = 2 * widest, wider
    return found


_FUNCTIONS: dict[str, Callable[[Ordered, WindowFunction, _Types], pl.Series]] = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "lag": _neighbour,
    "lead": _neighbour,
    "first_value": _edge,
    "last_value": _edge,
    "count": _count,
    "sum": _sum,
    "avg": _sum,
    "min": _extreme,
    "max": _extreme,
}
