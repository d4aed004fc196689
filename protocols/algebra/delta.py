"""The algebra of all protocols: signed multisets ("deltas") and a few operations on them.

A delta maps rows to integers: +2 is "two more of this row", -1 "one fewer". A relation, a change of
a relation, a partial result of a sweep and a change of the view are all deltas. The operations are
linear in each argument (a join is bilinear). The whole engine relies on that: the error in an
answer can be taken out *after* the source evaluated it, because
`P join (R + e) = P join R + P join e`, and `e` is in our own mailbox.

Equal rows may occur in a delta more than once, even with opposite signs: since everything is linear
it is enough to add them up once, at the end (`consolidated`).

Two implementations obey these laws, and property tests compare them with each other:
`bag.Bag`, a dictionary, is the reference; `frame.Frame`, Polars columns, is what production runs.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

from protocols.algebra.expressions import Condition

COUNT = "_count"
#: The column that tells changes of several updates in one delta apart.
POSITION = "_position"
#: A count of a row holds from position SINCE on, and before position UNTIL.
SINCE, UNTIL = "_since", "_until"
#: Before and after all positions.
BEGINNING, FOREVER = -1, 2**62

#: Columns: (new name, old name).
Outputs: TypeAlias = Sequence[tuple[str, str]]


class Delta(Protocol):
    """A signed multiset of rows with named columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        ...

    @property
    def size(self) -> int:
        """How many rows it stores, including rows that cancel out."""
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
        """The columns (new name, old name) of every row, with its count."""
        ...

    def consolidated(self) -> Self:
        """The same delta with equal rows merged, their counts added, and zero counts dropped."""
        ...

    def join(
        self,
        other: Self,
        on: Sequence[tuple[str, str]],
        where: Condition | None = None,
        without: Collection[str] = (),
    ) -> Self:
        """All pairs that agree in `on` (ours, theirs); counts multiply, NULL equals nothing.

        The `on` columns of both sides are kept: the two sides have no column name in common. Only
        pairs for which `where` is true are kept. `without` names columns that only this test
        needs; they are left out of the result.
        """
        ...

    def keys(self, outputs: Outputs, *more: "tuple[Self, Outputs]") -> Self:
        """The distinct rows of these columns, except those with a NULL; each with count 1.

        `more` adds rows of other deltas, under the same names. Rows that cancel out are included.
        """
        ...

    def matching(self, keys: Self) -> Self:
        """Our rows whose columns of that name agree with one of the keys (a semi-join)."""
        ...

    def positive(self) -> Self:
        """The rows with a count above zero, after equal rows are merged."""
        ...

    def earliest(self, by: Sequence[str], column: str) -> Self:
        """For each value of `by`, the rows with the smallest value in `column`."""
        ...

    def apart(self, other: Self, by: Sequence[str]) -> tuple[Self, Self]:
        """Splits these rows: those equal in `by` to some row of the other, and the rest.

        NULL equals NULL.
        """
        ...

    def lifetimes(self, changes: Self) -> Self:
        """How often each row is there, in spans from SINCE to UNTIL; these rows are the end state.

        `changes` have a POSITION. A row that is there twice in the end, inserted once at 3 and once
        at 5, is there once in [3, 5) and twice in [5, FOREVER).
        Changes that cancel out may cut a span into two with the same count.
        """
        ...

    def throughout(self) -> Self:
        """The same rows with a lifetime SINCE the BEGINNING and UNTIL FOREVER."""
        ...

    def split(self, column: str) -> Mapping[Any, Self]:
        """The rows grouped by their value in a column, without that column."""
        ...
