"""The linear operators: a change of their rows depends only on the change of their input."""

from collections.abc import Sequence

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.expressions_polars import to_polars, value_to_polars
from protocols.algebra.frame import empty_frame, picked, with_columns
from protocols.exchange.together import together
from protocols.operators.keys import Asked, agreeing, handed_on
from protocols.operators.operator import Operator, Span, Task, no_change
from protocols.operators.placed import added_up
from protocols.operators.statements import statement
from protocols.views import tree


class ConstantsOperator:
    """Rows that never change."""

    def __init__(self, node: tree.Constants) -> None:
        self.nothing = empty_frame(node.columns).data
        columns = [
            pl.Series(name, [row[place] for row in node.rows], type_.dtype, strict=False)
            for place, (name, type_) in enumerate(node.named)
        ]
        self._rows = added_up(with_columns(pl.DataFrame(columns), {COUNT: 1}))

    def change(self, _: Span) -> Task:
        yield from ()
        return no_change(self)

    def before(self, _: Span, keys: Asked) -> Task:
        yield from ()
        return agreeing(self._rows, keys)

    def settle(self) -> None:
        """Does nothing: there is nothing to learn."""


class ComputeOperator:
    """One row for each input row, with other columns."""

    def __init__(self, node: tree.Compute, below: Operator) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below
        self._values = [
            value_to_polars(value).cast(type_.dtype).alias(name)
            for name, value, type_ in node.values
        ]
        #: The columns that are passed on unchanged: our name → the input's name.
        (self._passed,) = statement(node).names
        below_columns = node.input.columns
        self._only_passes = node.is_plain and all(
            below_columns[self._passed[name]].dtype == type_.dtype for name, _, type_ in node.values
        )

    def change(self, span: Span) -> Task:
        rows = yield from self._below.change(span)
        return added_up(self._computed(rows, POSITION, COUNT))

    def before(self, span: Span, keys: Asked) -> Task:
        rows = yield from self._below.before(span, handed_on(keys, self._passed))
        return agreeing(added_up(self._computed(rows, COUNT)), keys)

    def settle(self) -> None:
        self._below.settle()

    def _computed(self, rows: pl.DataFrame, *also: str) -> pl.DataFrame:
        if self._only_passes:
            return picked(rows, [*self._passed.items(), *also])
        return rows.select(*self._values, *also)


class FilterOperator:
    """The rows for which a condition is true."""

    def __init__(self, node: tree.Filter, below: Operator) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below
        self._test = to_polars(node.condition)

    def change(self, span: Span) -> Task:
        rows = yield from self._below.change(span)
        return rows.filter(self._test)

    def before(self, span: Span, keys: Asked) -> Task:
        rows = yield from self._below.before(span, keys)
        return rows.filter(self._test)

    def settle(self) -> None:
        self._below.settle()


class UnionOperator:
    """The rows of all inputs."""

    def __init__(self, node: tree.Union, below: Sequence[Operator]) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below

    def change(self, span: Span) -> Task:
        parts = yield from together([each.change(span) for each in self._below])
        return added_up(pl.concat(parts))

    def before(self, span: Span, keys: Asked) -> Task:
        parts = yield from together([each.before(span, keys) for each in self._below])
        return added_up(pl.concat(parts))

    def settle(self) -> None:
        for each in self._below:
            each.settle()


class MultiplyOperator:
    """Each row as often as one of its columns says."""

    def __init__(self, node: tree.Multiply, below: Operator) -> None:
        self.nothing = empty_frame(node.columns).data
        self._below = below
        self._times = node.times

    def change(self, span: Span) -> Task:
        rows = yield from self._below.change(span)
        return added_up(self._multiplied(rows))

    def before(self, span: Span, keys: Asked) -> Task:
        rows = yield from self._below.before(span, keys)
        return added_up(self._multiplied(rows))

    def settle(self) -> None:
        self._below.settle()

    def _multiplied(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(pl.col(COUNT) * pl.col(self._times)).drop(self._times)
