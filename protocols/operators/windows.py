"""Window functions: a partition is computed again wherever it changes.

The partitions that a batch touches are read as they were before it. Each of them has a *state* at
every position at which it changes: its rows there, as often as they are there. The functions are
computed over all states at once (`frames.py`); the rows of a state replace those of the state
before it, and what they have in common cancels out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.delta import BEGINNING, COUNT, POSITION
from protocols.algebra.frame import chosen, empty_frame, picked, taken, with_columns
from protocols.operators.counting import Counted
from protocols.operators.frames import computed, ordered
from protocols.operators.keys import All, Asked, agreeing, handed_on, these
from protocols.operators.operator import Operator, Span, Task, before, no_change
from protocols.operators.order import OrderedEntries, in_order
from protocols.operators.placed import added_up, columns_of, distinct, entries, running, throughout
from protocols.operators.statements import statement
from protocols.views import tree

#: The number of a state of a partition.
_STATE = "_state"
_BEGINS = "_begins"
#: A partition has a row in each of its states: so many are computed at once.
_AT_ONCE = 1_000_000


@dataclass(frozen=True, eq=False)
class _Lives:
    """Rows, each with its first state and the one from which on it is gone or another number."""

    rows: pl.DataFrame
    since: NDArray[np.int64]
    until: NDArray[np.int64]

    def slices(self, states: int) -> Iterator[tuple[int, int]]:
        """Stretches of the states that have at most about `_AT_ONCE` rows together."""
        changes = np.zeros(states + 1, np.int64)
        np.add.at(changes, self.since, 1)
        np.add.at(changes, self.until, -1)
        stretch = np.cumsum(np.cumsum(changes[:states])) // _AT_ONCE
        firsts = np.flatnonzero(np.diff(stretch, prepend=-1))
        yield from zip(firsts.tolist(), [*firsts[1:].tolist(), states], strict=True)

    def within(self, first: int, stop: int) -> pl.DataFrame:
        """The rows of these states, with the number of the state."""
        since, until = np.maximum(self.since, first), np.minimum(self.until, stop)
        lengths = np.maximum(until - since, 0)
        places = np.repeat(np.arange(len(since)), lengths)
        begun = np.cumsum(lengths) - lengths
        states = since[places] + np.arange(len(places)) - begun[places]
        return with_columns(taken(self.rows, places), {_STATE: states})


class WindowOperator:
    """The operator of a window."""

    def __init__(self, node: tree.Window, below: Operator, allows_too_few: bool = False) -> None:
        self.nothing = empty_frame(node.columns).data
        self._node = node
        self._below = below
        stated = statement(node)
        (self._names,), (read,) = stated.names, stated.reads
        self._by = list(read.by)
        self._counted = Counted(node, node.input, allows_too_few)

    def change(self, span: Span) -> Task:
        change = yield from self._below.change(span)
        if change.is_empty():
            return no_change(self)
        touched = these(distinct(change, self._by))
        there = yield from before(self._below, span, touched)
        return self._replaced(span, entries(agreeing(there, touched), change))

    def before(self, span: Span, keys: Asked) -> Task:
        if isinstance(keys, All):
            rows = yield from self._below.before(span, keys)
        else:
            rows = yield from before(self._below, span, handed_on(keys, self._names))
        parts = in_order(throughout(rows), self._by).steps.astype(np.int64)
        shown = self._shown(with_columns(rows, {_STATE: parts})).drop(_STATE)
        return agreeing(added_up(shown), keys)

    def settle(self) -> None:
        self._below.settle()

    def _replaced(self, span: Span, placed: pl.DataFrame) -> pl.DataFrame:
        """The rows of each state instead of those of the state before it."""
        order = in_order(placed, self._by)
        at = placed.get_column(POSITION).to_numpy()[order.lasts]
        ends = np.append(order.begins[1:], True)[: len(order.begins)]
        lives = self._lives(span, placed, order)
        turned = []
        for first, stop in lives.slices(len(at)):
            rows = self._shown(lives.within(first, stop))
            state = rows.get_column(_STATE).to_numpy()
            rows, come, go = rows.drop(_STATE), at[state] > BEGINNING, ~ends[state]
            following = at[np.minimum(state + 1, len(at) - 1)]
            new = chosen(with_columns(rows, {POSITION: at[state]}), come)
            old = chosen(with_columns(rows, {POSITION: following, COUNT: -1}), go)
            turned.append(added_up(pl.concat([new, old.select(new.columns)])))
        return turned[0] if len(turned) == 1 else added_up(pl.concat(turned))

    def _lives(self, span: Span, placed: pl.DataFrame, order: OrderedEntries) -> "_Lives":
        """The rows of partitions, each with the states in which it is there."""
        row = columns_of(placed)
        counts = running(with_columns(placed, {POSITION: order.steps.astype(np.int64)}), row)
        at = placed.get_column(POSITION)[order.lasts]
        since = counts.get_column(POSITION).to_numpy()
        self._counted.behind(span.cut).check(counts.with_columns(at[since].alias(POSITION)), row)
        begins = counts.get_column(_BEGINS).to_numpy()
        is_last = np.append(begins[1:], True)[: len(begins)]
        until = np.where(is_last, order.stops[order.rows[since]], np.roll(since, -1))
        there = counts.get_column(COUNT).to_numpy() > 0
        rows = chosen(picked(counts, [*row, COUNT]), there)
        return _Lives(rows, since[there], until[there])

    def _shown(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of states with the values of the functions; each is there once per row."""
        counts = rows.get_column(COUNT).to_numpy()
        if (counts != 1).any():
            rows = taken(rows, np.repeat(np.arange(len(counts)), np.maximum(counts, 0)))
        given = ordered(rows, self._node, _STATE)
        own = picked(given.rows, list(self._node.input.columns))
        added = [
            column.cast(self._node.columns[column.name].dtype)
            for column in computed(given, self._node)
        ]
        ones = with_columns(picked(given.rows, [_STATE]), {COUNT: 1})
        return pl.DataFrame([*own, *added, *ones])
