"""The algebra that every protocol is written in: signed multisets ("deltas") and a few operations.

A delta maps rows to integers: +2 is "two more of this row", -1 "one fewer". A relation, a change of
a relation, a partial result of a sweep and a change of the view are all deltas. The operations are
linear in each argument (a join is bilinear), and that is what the whole engine stands on: the error
in an answer can be taken out *after* the source evaluated it, because
`P join (R + e) = P join R + P join e`, and `e` is in our own mailbox.

Equal rows may stand in a delta more than once, even with opposite signs: since everything is linear
it is enough to add them up once, at the end (`consolidated`).

Two implementations obey these laws, and property tests hold them to each other:
`bag.Bag`, a dictionary, is the reference; `frame.Frame`, Polars columns, is what production runs.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

from protocols.algebra.expressions import Condition

COUNT = "_count"
#: Where changes of several updates lie in one delta: the column that tells them apart.
POSITION = "_position"
#: From which position on (SINCE), and before which one (UNTIL), so many of a row are there.
SINCE, UNTIL = "_since", "_until"
#: Before and behind all positions.
BEGINNING, FOREVER = -1, 2**62

#: Columns, each with its new name and from which it is.
Outputs: TypeAlias = Sequence[tuple[str, str]]


class Delta(Protocol):
    """A signed multiset of rows with named columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        ...

    @property
    def size(self) -> int:
        """How many rows it takes to hold it, those included that cancel out."""
        ...

    def is_empty(self) -> bool:
        """Whether there is no row to work on. Rows that cancel out may still count as present."""
        ...

    def plus(self, other: Self) -> Self:
        """Pointwise sum; both have the same columns."""
        ...

    def negated(self) -> Self:
        """The same rows with opposite counts."""
        ...

    def where(self, condition: Condition) -> Self:
        """The rows for which the condition is true (not false, not unknown)."""
        ...

    def select(self, outputs: Sequence[tuple[str, str]]) -> Self:
        """New columns (name, from which), every row kept with its count."""
        ...

    def consolidated(self) -> Self:
        """The same delta with equal rows as one, their counts added, and zeroes gone."""
        ...

    def join(
        self,
        other: Self,
        on: Sequence[tuple[str, str]],
        where: Condition | None = None,
        without: Collection[str] = (),
    ) -> Self:
        """All pairs that agree in `on` (ours, theirs); counts multiply, NULL equals nothing.

        Their `on` columns are kept as well: the two sides have no column name in common. Only
        pairs for which `where` is true are made; columns that serve this test alone are left out
        of them as `without`.
        """
        ...

    def keys(self, outputs: Outputs, *more: "tuple[Self, Outputs]") -> Self:
        """The distinct rows of these columns without a NULL, each with count 1.

        Also those of more deltas, with columns of the same names. Rows that cancel out count.
        """
        ...

    def matching(self, keys: Self) -> Self:
        """Our rows whose columns of that name agree with one of the keys (a semi-join)."""
        ...

    def positive(self) -> Self:
        """The rows of which there are more than none, equal ones added up."""
        ...

    def earliest(self, by: Sequence[str], column: str) -> Self:
        """Of the rows that agree in `by` those with the smallest value in a column."""
        ...

    def apart(self, other: Self, by: Sequence[str]) -> tuple[Self, Self]:
        """Our rows that agree in `by` with a row of the other, and the rest; NULL equals NULL."""
        ...

    def lifetimes(self, changes: Self) -> Self:
        """How many of each row there are SINCE when and UNTIL when; in the end these.

        `changes` have a POSITION. If a row is there twice in the end, came at 3 and once more at 5,
        it is there once in [3, 5) and twice in [5, FOREVER).
        Changes that cancel out may cut a span in two of the same count.
        """
        ...

    def throughout(self) -> Self:
        """The same rows, there SINCE the BEGINNING and UNTIL FOREVER."""
        ...

    def split(self, column: str) -> Mapping[Any, Self]:
        """The rows by their value in a column, and without that column."""
        ...
