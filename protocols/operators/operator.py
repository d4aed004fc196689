"""What every operator of a view's tree does.

A batch has positions; an operator says how its rows change at each of them (`change`), and which
rows it had before the first of them (`before`), as far as somebody asks. Both are pieces of work:
they may have to ask sources, and the inner joins at the leaves do (`cores.py`). What an operator
asks its inputs for is stated of its node beforehand (`statements.py`).

So an operator that is not linear works like this: it takes the changes of its inputs, looks which
groups of rows they touch, gets what was there in these groups before, and works out by columns, for
all positions at once, what the change makes of it. Nothing has to be kept for that. What is kept
all the same, to save questions, is a memory (`memory.py`), and may be lost at any time.

Whatever is read is read as of one cut, the position before the batch, and corrected to it by the
leaves. So no operator has to know of concurrent updates (the transfer theorem of algorithms.md,
section 6).
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
    """One node of the tree at work. Rows are frames with `_count`; changes have `_position`."""

    #: Its rows when there are none.
    nothing: pl.DataFrame

    def change(self, span: Span) -> Task:
        """How its rows change at each position of a batch, equal rows added up.

        Not added up if whoever takes them does that anyway (see `build`).
        """
        ...

    def before(self, span: Span, keys: Asked) -> Task:
        """Its rows before the batch that are asked for."""
        ...

    def settle(self) -> None:
        """The batch is done: what was learnt from it may be kept."""
        ...


def before(operator: Operator, span: Span, keys: Keys) -> Task:
    """The same, without asking it for nobody's rows."""
    if isinstance(keys, Nobody):
        return operator.nothing
    rows = yield from operator.before(span, keys)
    return rows


def no_change(operator: Operator) -> pl.DataFrame:
    """An empty change."""
    return with_columns(operator.nothing, {POSITION: BEGINNING})
