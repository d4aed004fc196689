"""Evaluates a condition or a value for whole columns: each part once, for the rows that need it.

`expressions_polars.py` makes the steps: one for each part; equal parts share a step. A step that
cannot fail is evaluated for all rows. A step that may fail is evaluated only for the rows that
reach it; its result for other rows means nothing. If AND, OR or CASE leave no row for a step, it is
skipped.

The result of a step for some rows holds for fewer rows too. So it is kept while the rows become
fewer, and dropped when AND, OR or CASE are done. So the work grows with the number of parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import polars as pl

from protocols.algebra.types import ColumnType

_TRUE, _FALSE = pl.Series([True]), pl.Series([False])


@cache
def _null(dtype: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=dtype)


@dataclass(frozen=True, eq=False)
class RowSubset:
    """A subset of the given rows."""

    height: int
    #: True for these rows; None: all.
    mask: pl.Series | None = None

    def __bool__(self) -> bool:
        return self.height > 0 if self.mask is None else self.mask.any()

    def where(self, condition: pl.Series) -> "RowSubset":
        """The rows for which the condition is true; it must never be unknown (NULL)."""
        mask = condition if self.mask is None else condition & self.mask
        return RowSubset(self.height, None if mask.all() else mask)


class StepsRun:
    """One evaluation of steps over given columns."""

    def __init__(self, columns: Sequence[pl.Series]) -> None:
        self.columns = columns
        self.all = RowSubset(len(columns[0]))
        self._known: dict[Step, pl.Series] = {}
        #: The steps whose results are known for some rows only; later ones for fewer rows.
        self._for_some: list[Step] = []

    def of(self, step: "Step", rows: RowSubset) -> pl.Series:
        """The result of a step for these rows; a single value if it is the same for all."""
        found = self._known.get(step)
        if found is None:
            found = self._known[step] = step.over(self, rows if step.may_fail else self.all)
            if step.may_fail:
                self._for_some.append(step)
        return found

    def known(self) -> int:
        """The number of results that are known for some rows only; for `forget`."""
        return len(self._for_some)

    def forget(self, known: int) -> None:
        """Drops the results that were added after `known()` returned this number."""
        for step in self._for_some[known:]:
            del self._known[step]
        del self._for_some[known:]

    def full(self, column: pl.Series) -> pl.Series:
        """The column with a value for each row."""
        height = self.all.height
        return column if len(column) == height else column.new_from_index(0, height)

    def nulls(self, dtype: pl.DataType) -> pl.Series:
        return self.full(_null(dtype))

    def is_(self, truth: bool, column: pl.Series) -> pl.Series:
        """True where the condition has this truth value; false where it has not or is unknown."""
        yes, no = self.full(_TRUE), self.full(_FALSE)
        return yes.zip_with(self.full(column if truth else ~column), no)


@dataclass(frozen=True, eq=False)
class Step:
    """One part of a condition or a value."""

    #: Whether it, or a step that it uses, has no value (`NoValue`) for some rows.
    may_fail: bool

    def over(self, run: StepsRun, rows: RowSubset) -> pl.Series:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Input(Step):
    """A column."""

    place: int

    def over(self, run: StepsRun, _rows: RowSubset) -> pl.Series:
        return run.columns[self.place]


@dataclass(frozen=True, eq=False)
class Constant(Step):
    """A constant of a type; None is NULL."""

    value: Any
    type: ColumnType

    @cached_property
    def _column(self) -> pl.Series:
        return pl.Series([self.value], dtype=self.type.dtype)

    def over(self, _run: StepsRun, _rows: RowSubset) -> pl.Series:
        return self._column


@dataclass(frozen=True, eq=False)
class Applied(Step):
    """A function of columns."""

    operands: tuple[Step, ...]
    apply: Callable[[Sequence[pl.Series]], pl.Series]
    #: Whether it fails for some operands. It does not fail for NULL, which replaces the operands of
    #: rows that do not need it.
    fails: bool

    def over(self, run: StepsRun, rows: RowSubset) -> pl.Series:
        columns = [run.of(operand, rows) for operand in self.operands]
        if self.fails and rows.mask is not None:
            columns = [
                column if len(column) == 1 else column.zip_with(rows.mask, run.nulls(column.dtype))
                for column in columns
            ]
        return self.apply(columns)


@dataclass(frozen=True, eq=False)
class Decided(Step):
    """AND, which false decides, or OR, which true decides; later parts are not needed then."""

    deciding: bool
    parts: tuple[Step, ...]

    def over(self, run: StepsRun, rows: RowSubset) -> pl.Series:
        first, *others = self.parts
        truth = run.full(run.of(first, rows))
        known = run.known()
        for part in others:
            if part.may_fail:
                rows = rows.where(~run.is_(self.deciding, truth))
                if not rows:
                    break
            more = run.full(run.of(part, rows))
            truth = truth | more if self.deciding else truth & more
        run.forget(known)
        return truth


@dataclass(frozen=True, eq=False)
class Case(Step):
    """CASE: the value of the first condition that is true, else the default."""

    branches: tuple[tuple[Step, Step], ...]
    default: Step
    type: ColumnType

    def over(self, run: StepsRun, rows: RowSubset) -> pl.Series:
        found = run.nulls(self.type.dtype)
        run.of(self.branches[0][0], rows)
        known = run.known()
        for test, then in self.branches:
            taken = run.is_(True, run.of(test, rows))
            found = _put(run, then, rows.where(taken), found)
            rows = rows.where(~taken)
            if not rows:
                break
        found = _put(run, self.default, rows, found)
        run.forget(known)
        return found


def _put(run: StepsRun, step: Step, rows: RowSubset, found: pl.Series) -> pl.Series:
    """Merges the result of a step for its rows into the values found for other rows."""
    if not rows:
        return found
    known = run.known()
    column = run.full(run.of(step, rows))
    run.forget(known)
    return column if rows.mask is None else column.zip_with(rows.mask, found)


def is_null(column: pl.Series) -> pl.Series:
    """True where the column is NULL; a single false if it is NULL nowhere."""
    return column.is_null() if column.null_count() else _FALSE


def to_expression(step: Step, columns: Sequence[str], dtype: pl.DataType) -> pl.Expr:
    """The result of a step over the columns with these names; one value if there are none."""

    def over(inputs: Sequence[pl.Series]) -> pl.Series:
        run = StepsRun(inputs)
        return run.full(run.of(step, run.all)) if run.all else pl.Series([], dtype=dtype)

    inputs = [pl.col(name) for name in columns] or [pl.lit(None)]
    return pl.map_batches(inputs, over, return_dtype=dtype, returns_scalar=not columns)
