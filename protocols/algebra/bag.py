"""The reference algebra: a signed bag as a plain dictionary from row to count.

It is slow and obvious. Property tests compare `Frame` with it, and the simulator can run on it, so
that a reader can step through a protocol with plain tuples.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from protocols.algebra.delta import BEGINNING, FOREVER, POSITION, SINCE, UNTIL, Outputs
from protocols.algebra.expressions import Condition
from protocols.algebra.expressions_reference import holds

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Bag:
    """Rows to counts; no row is kept with count 0."""

    columns: tuple[str, ...]
    counts: Mapping[Row, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.counts)

    def is_empty(self) -> bool:
        return not self.counts

    def plus(self, other: "Bag") -> "Bag":
        if not other.counts:
            return self
        return bag(self.columns, [*self.counts.items(), *other.counts.items()])

    def negated(self) -> "Bag":
        return Bag(self.columns, {row: -count for row, count in self.counts.items()})

    def where(self, condition: Condition) -> "Bag":
        kept = {
            row: count
            for row, count in self.counts.items()
            if holds(condition, dict(zip(self.columns, row, strict=True)))
        }
        return Bag(self.columns, kept)

    def select(self, outputs: Sequence[tuple[str, str]]) -> "Bag":
        columns = tuple([column for _, column in outputs])
        names = tuple([name for name, _ in outputs])
        if columns == self.columns:
            return self if names == columns else Bag(names, self.counts)
        pick = self._picker(columns)
        return bag(names, [(pick(row), count) for row, count in self.counts.items()])

    def consolidated(self) -> "Bag":
        return self

    def join(
        self,
        other: "Bag",
        on: Sequence[tuple[str, str]],
        where: Condition | None = None,
        without: Collection[str] = (),
    ) -> "Bag":
        ours, theirs = self._picker([a for a, _ in on]), other._picker([b for _, b in on])
        partners: dict[Row, list[tuple[Row, int]]] = {}
        for row, count in other.counts.items():
            link = theirs(row)
            if None not in link:
                partners.setdefault(link, []).append((row, count))
        # No two pairs are the same row.
        pairs = Bag(
            self.columns + other.columns,
            {
                row + partner: count * partner_count
                for row, count in self.counts.items()
                for partner, partner_count in partners.get(ours(row), ())
            },
        )
        found = pairs if where is None else pairs.where(where)
        return found.select([(name, name) for name in found.columns if name not in without])

    def keys(self, outputs: Outputs, *more: "tuple[Bag, Outputs]") -> "Bag":
        found: set[Row] = set()
        for each, columns in ((self, outputs), *more):
            found.update(map(each._picker([column for _, column in columns]), each.counts))
        names = tuple(name for name, _ in outputs)
        return Bag(names, {row: 1 for row in found if None not in row})

    def matching(self, keys: "Bag") -> "Bag":
        if not self.counts:
            return self
        pick = self._picker(keys.columns)
        kept = {row: n for row, n in self.counts.items() if pick(row) in keys.counts}
        return Bag(self.columns, kept)

    def positive(self) -> "Bag":
        return Bag(self.columns, {row: count for row, count in self.counts.items() if count > 0})

    def earliest(self, by: Sequence[str], column: str) -> "Bag":
        pick, place = self._picker(by), self.columns.index(column)
        first: dict[Row, Any] = {}
        for row in self.counts:
            first[pick(row)] = min(first.get(pick(row), row[place]), row[place])
        kept = {row: n for row, n in self.counts.items() if row[place] == first[pick(row)]}
        return Bag(self.columns, kept)

    def apart(self, other: "Bag", by: Sequence[str]) -> "tuple[Bag, Bag]":
        ours, theirs = self._picker(by), other._picker(by)
        there = {theirs(row) for row in other.counts}
        touched = {row: n for row, n in self.counts.items() if ours(row) in there}
        rest = {row: n for row, n in self.counts.items() if ours(row) not in there}
        return Bag(self.columns, touched), Bag(self.columns, rest)

    def lifetimes(self, changes: "Bag") -> "Bag":
        pick, place = changes._picker(self.columns), changes.columns.index(POSITION)
        steps: dict[Row, list[tuple[int, int]]] = {row: [] for row in self.counts}
        for row, count in changes.counts.items():
            steps.setdefault(pick(row), []).append((row[place], count))
        spans = {
            (*row, *span): count
            for row, changed in steps.items()
            for span, count in _spans(self.counts.get(row, 0), changed)
        }
        return Bag((*self.columns, SINCE, UNTIL), spans)

    def throughout(self) -> "Bag":
        spans = {(*row, BEGINNING, FOREVER): count for row, count in self.counts.items()}
        return Bag((*self.columns, SINCE, UNTIL), spans)

    def split(self, column: str) -> "dict[Any, Bag]":
        place = self.columns.index(column)
        names = self.columns[:place] + self.columns[place + 1 :]
        parts: dict[Any, dict[Row, int]] = {}
        for row, count in self.counts.items():
            parts.setdefault(row[place], {})[row[:place] + row[place + 1 :]] = count
        return {value: Bag(names, counts) for value, counts in parts.items()}

    def _picker(self, columns: Iterable[str]) -> Callable[[Row], Row]:
        place = self.columns.index
        indexes = [place(column) for column in columns]
        if len(indexes) > 1:
            return itemgetter(*indexes)
        if not indexes:
            return lambda _row: ()
        (index,) = indexes
        return lambda row: (row[index],)


def bag(columns: Sequence[str], rows: Iterable[tuple[Row, int]]) -> Bag:
    """A bag from rows with counts: adds up equal rows and drops zero counts."""
    counts: dict[Row, int] = {}
    for row, count in rows:
        counts[row] = counts.get(row, 0) + count
    if 0 in counts.values():
        counts = {row: count for row, count in counts.items() if count}
    return Bag(tuple(columns), counts)


def _spans(end: int, changes: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    """((since, until), count) of one row, from its count at the end and its (position, change)s."""
    there = end - sum(count for _, count in changes)
    starts = [(BEGINNING, 0), *sorted(changes)]
    ends = [position for position, _ in starts[1:]] + [FOREVER]
    for (since, count), until in zip(starts, ends, strict=True):
        there += count
        if there:
            yield (since, until), there


class BagLog:
    """The changes of one relation, a bag per version."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, Bag]] = []

    def append(self, changes: tuple[int, Bag]) -> None:
        self._changes.append(changes)

    def between(self, after: int, upto: int) -> Bag | None:
        found = [change for version, change in self._changes if after < version <= upto]
        if not found:
            return None
        return bag(found[0].columns, (item for part in found for item in part.counts.items()))

    def placed(self, after: int, upto: int, positions: Sequence[int]) -> Bag | None:
        found = [(version, change) for version, change in self._changes if after < version <= upto]
        if not found:
            return None
        return bag(
            (*found[0][1].columns, POSITION),
            (
                ((*row, positions[version - after - 1]), count)
                for version, change in found
                for row, count in change.counts.items()
            ),
        )

    def forget(self, upto: int) -> None:
        self._changes = [change for change in self._changes if change[0] > upto]
