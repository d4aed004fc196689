"""The audit of a stored view: stretches drawn at random, worked out anew and compared.

    draw ─> a stretch: values of a handle's columns
              ├─ sources, corrected to the position ─> the rows that it has to have  (due)
              └─ the tables                         ─> the rows that it has          (stored)

A difference is worked out a second time, with new answers. If these lead to other rows, the sources
contradict themselves; then that is the finding, as it is if an answer cannot be corrected at all.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.auditing.handles import Cover, Handle, Root, covers_of
from protocols.auditing.stretches import Stretch, drawn, following, whole, worked_out
from protocols.errors import SourceViolation, ViewsweepError
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Question, Snapshot
from protocols.exchange.stretch import Key
from protocols.exchange.together import finish
from protocols.operators.keys import ALL, Keys, These
from protocols.operators.placed import without
from protocols.views.tree import AnyView

#: The values of a stretch, at most: of one drawn at random, and of one of all.
AT_ONCE, IN_ORDER = 2_500, 10_000
#: Of the rows that differ so many are named.
NAMED = 20
#: A view may lack nearly all its rows, so the number of stretches has a limit of its own.
_FEW = 4

Ask = Callable[[list[Question[Frame]]], list[Snapshot[Frame]]]


class Damaged(ViewsweepError):
    """A table of the view cannot be read."""


class Stored(Protocol):
    """The content of a view's tables at one position."""

    def rows(self) -> int:
        """The number of its rows, equal ones counted."""
        ...

    def values(self, columns: Sequence[str]) -> pl.DataFrame:
        """The different values of some columns."""
        ...

    def of(self, keys: Keys) -> dict[str, pl.DataFrame]:
        """Table → its rows that agree with the keys, with counts, and as of the same position."""
        ...


@dataclass(frozen=True)
class Difference:
    """A row that a table holds in another number than the sources say."""

    table: str
    row: tuple[Any, ...]
    stored: int
    due: int


@dataclass
class Found:
    """The findings so far."""

    stretches: int = 0
    #: The rows of the view.
    of: int = 0
    #: Rows compared, equal ones counted.
    rows: int = 0
    #: Rows that differ; the first of them by name.
    wrong: int = 0
    differences: list[Difference] = field(default_factory=list)
    #: The rows that had been looked at when the first difference was found.
    first_after: int | None = None
    #: What kept rows from being compared.
    troubles: list[str] = field(default_factory=list)


class Audit:
    """An audit of one view at one position: that of the mailbox's start."""

    def __init__(
        self, view: AnyView, mailbox: Mailbox[Frame], stored: Stored, ask: Ask, random: Random
    ) -> None:
        self._view, self._mailbox = view, mailbox
        self._stored, self._ask, self._random = stored, ask, random
        self.found = Found()
        #: The handles in use, with the values that the view shows and that were not drawn yet.
        self._left: list[tuple[Handle, pl.DataFrame]] = []

    def look_at(
        self, amount: Callable[[int], int], stopping: Callable[[], bool] = lambda: False
    ) -> Found:
        """Looks at stretches until they have had the amount of rows, or all; or until `stopping`.

        `amount`: the rows of the view → the rows to look at.
        """
        with _noting(self.found):
            self.found.of = self._stored.rows()
            self._look_at(amount(self.found.of), stopping)
        return self.found

    def _look_at(self, rows: int, stopping: Callable[[], bool]) -> None:
        there = self.found.of
        covers = covers_of(self._view)
        if not covers:
            self._compare(ALL, self._due_in_all)
            return
        self._left = self._handles(covers)
        if rows >= there:
            for handle, values in self._left:
                self._look_at_all(handle, values, stopping)
            return
        most = _FEW * (len(self._left) + -(-rows // self._values_for(rows, there)))
        for _ in range(most):
            if self.found.rows >= rows or stopping():
                break
            self._look_at_one(self._values_for(rows - self.found.rows, there))
            if not any(left.height for _, left in self._left):
                break

    def _handles(self, covers: Sequence[Cover]) -> list[tuple[Handle, pl.DataFrame]]:
        """Of the covers that are as good as the first, that with the fewest rows per value."""
        best = [c for c in covers if _rank(c) == _rank(covers[0])]
        found = [[(handle, self._values(handle, len(cover))) for handle in cover] for cover in best]
        return max(found, key=lambda each: sum(values.height for _, values in each))

    def _values(self, handle: Handle, handles: int) -> pl.DataFrame:
        """The values that the view shows. NULLs belong to another handle, if there is one."""
        values = self._stored.values(handle.columns)
        if handles == 1:
            return values
        return values.filter(~pl.all_horizontal(pl.all().is_null()))

    def _values_for(self, rows: int, there: int) -> int:
        """The number of values that have about so many rows, at most `AT_ONCE`."""
        values = sum(left.height for _, left in self._left)
        if not there or not values:
            return AT_ONCE
        return max(1, min(AT_ONCE, -(-rows * values // there)))

    def _look_at_one(self, size: int) -> None:
        """Draws a stretch and looks at it."""
        weights = [1 + left.height for _, left in self._left]
        (place,) = self._random.choices(range(len(self._left)), weights)
        handle, left = self._left[place]
        task = drawn(self._mailbox, handle, left, size, self._random)
        stretch = finish(task, self._ask)
        self._left[place] = handle, without(left, stretch.values, list(handle.columns))
        self._compare_stretch(stretch)

    def _look_at_all(
        self, handle: Handle, left: pl.DataFrame, stopping: Callable[[], bool]
    ) -> None:
        """Looks at all values of a handle: those that its roots have, then what is `left`."""
        columns = list(handle.columns)
        looked_at = left.clear()
        for root in handle.roots:
            for stretch in self._ranges(handle, root, left):
                if stopping():
                    return
                for part in stretch.without(looked_at).parts(IN_ORDER):
                    self._compare_stretch(part)
                looked_at = pl.concat([looked_at, without(stretch.values, looked_at, columns)])
        for part in Stretch(without(left, looked_at, columns)).parts(IN_ORDER):
            if stopping():
                return
            self._compare_stretch(part)

    def _ranges(self, handle: Handle, root: Root, stored: pl.DataFrame) -> Iterator[Stretch]:
        """The stretches of a root's relation, page by page."""
        after: Key | None = None
        while True:
            task = following(self._mailbox, handle, root, stored, after, IN_ORDER)
            stretch, after = finish(task, self._ask)
            yield stretch
            if after is None:
                return

    def _compare_stretch(self, stretch: Stretch) -> None:
        if not stretch.values.is_empty():
            self._compare(These(stretch.values), lambda: self._due(stretch))

    def _due_in_all(self) -> pl.DataFrame:
        return finish(whole(self._view, self._mailbox), self._ask)

    def _due(self, stretch: Stretch) -> pl.DataFrame:
        return finish(worked_out(self._view, self._mailbox, stretch), self._ask)

    def _compare(self, keys: Keys, work_out: Callable[[], pl.DataFrame]) -> None:
        """Compares each table with the rows that it has to have."""
        self.found.stretches += 1
        stored, due = self._stored.of(keys), work_out()
        numbers = [int(rows[COUNT].abs().sum()) for rows in (due, *stored.values())]
        self.found.rows += max(numbers)
        wrong = {table: _difference(rows, due) for table, rows in stored.items()}
        if all(rows.is_empty() for rows in wrong.values()):
            return
        again = _difference(work_out(), due)
        if not again.is_empty():
            self.found.troubles.append(_contradiction(self._mailbox.start, again))
        for table, rows in wrong.items():
            self._note(table, rows, stored[table])

    def _note(self, table: str, wrong: pl.DataFrame, stored: pl.DataFrame) -> None:
        if wrong.is_empty():
            return
        if self.found.first_after is None:
            self.found.first_after = self.found.rows
        self.found.wrong += wrong.height
        room = NAMED - len(self.found.differences)
        names = list(self._view.schema)
        for row in wrong.select(*names, COUNT).head(max(room, 0)).iter_rows():
            held = _count_of(row[:-1], stored, names)
            self.found.differences.append(Difference(table, row[:-1], held, held - row[-1]))


def _rank(cover: Cover) -> tuple[bool, int]:
    return all(handle.keyed for handle in cover), len(cover)


def _difference(stored: pl.DataFrame, due: pl.DataFrame) -> pl.DataFrame:
    """The rows of which there are too many (positive) or too few."""
    columns = stored.columns
    negative = due.select(columns).with_columns(-pl.col(COUNT))
    return Frame(pl.concat([stored, negative.cast(stored.schema)])).consolidated().data


def _count_of(row: Sequence[Any], stored: pl.DataFrame, names: Sequence[str]) -> int:
    types = stored.schema
    cells = zip(names, row, strict=True)
    same = [pl.col(name).eq_missing(pl.lit(value, types[name])) for name, value in cells]
    return int(stored.filter(same)[COUNT].sum())


def _contradiction(position: int, again: pl.DataFrame) -> str:
    return (
        f"worked out twice as of position {position}, the same stretch differs in"
        f" {again.height:,} rows: an answer of a source did not contain what it says that it"
        " contains"
    )


@contextmanager
def _noting(found: Found) -> Iterator[None]:
    """Makes a finding of answers that cannot be corrected, and of tables that cannot be read."""
    try:
        yield
    except (SourceViolation, Damaged) as error:
        found.troubles.append(str(error))
