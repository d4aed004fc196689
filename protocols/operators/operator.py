"""The interface of every operator of a view's tree.

A batch has positions; an operator says how its rows change at each of them (`change`), and which
rows it had before the first of them (`before`), as far as these are asked for. Both are pieces of
work: they may have to ask sources, and the inner joins at the leaves do (`cores.py`). The questions
of an operator to its inputs are stated for its node beforehand (`statements.py`).

So an operator that is not linear works like this: it takes the changes of its inputs, finds the
groups of rows that they touch, gets the rows of these groups before the batch, and computes the
result of the change by columns, for all positions at once. None of this needs stored state. The
only state, kept to save questions, is a memory (`memory.py`), and it may be lost at any time.

Everything is read as of one cut, the position before the batch; the leaves correct answers to it.
So no operator has to know of concurrent updates (the transfer theorem of algorithms.md, section 6).
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import polars as pl

from protocols.algebra.delta import BEGINNING, POSITION
from protocols.algebra.frame import Frame, with_columns
from protocols.exchange.questions import Maintenance
from protocols.operators.keys import Asked, Keys, Nobody

#: Work that ends with rows.
Task: TypeAlias = Maintenance[Frame, pl.DataFrame]


@dataclass(frozen=True)
class Span:
    """The positions of a batch."""

    first: int
    last: int

    @property
    def cut(self) -> int:
        """The position before it."""
        return self.first - 1


class Operator(Protocol):
    """The operator of one node. Rows are frames with `_count`; changes also have `_position`."""

    #: Its rows when there are none.
    nothing: pl.DataFrame

    def change(self, span: Span) -> Task:
        """How its rows change at each position of a batch, equal rows added up.

        They are not added up if the operator above does that itself (see `build`).
        """
        ...

    def before(self, span: Span, keys: Asked) -> Task:
        """Those of its rows before the batch that match the keys."""
        ...

    def settle(self) -> None:
        """Ends the batch: the operator may keep what it learnt from it."""
        ...


def before(operator: Operator, span: Span, keys: Keys) -> Task:
    """The same for any keys; NOBODY costs no question."""
    if isinstance(keys, Nobody):
        return operator.nothing
    rows = yield from operator.before(span, keys)
    return rows


def no_change(operator: Operator) -> pl.DataFrame:
    """An empty change."""
    return with_columns(operator.nothing, {POSITION: BEGINNING})
