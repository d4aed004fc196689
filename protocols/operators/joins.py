"""Joins of any two inputs: inner, left, full, and semi and anti joins for EXISTS.

All pairs are found by columns for all positions of a batch at once (`placed.pairs`). An outer join
pads its *orphans*, the rows without a partner, with NULL:

    orphans = left joined with (absence of a partner)

Absence is taken per join key, and then pairs and orphans are found in one pass (`outer.py`); or, if
pairs have to satisfy more than equalities, per row of the left side. So an orphan appears at the
very position at which the last partner goes, and goes when the first one comes. A row with NULL in
its join key meets nothing and is always an orphan, unless the keys are compared by IS NOT DISTINCT
FROM.

Null extension is not linear. It is right here because it comes last: the sources are asked for
inner matches only, and answers are corrected before anything is padded.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.expressions import Condition, conjunction, conjuncts
from protocols.algebra.expressions import columns_of as columns_read
from protocols.algebra.expressions_polars import to_polars
from protocols.algebra.frame import Frame, chosen, empty_frame, known_once, once, picked
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.operators.counting import Counted
from protocols.operators.keys import (
    ALL,
    NOBODY,
    All,
    Asked,
    Keys,
    These,
    agreeing,
    handed_on,
    these,
)
from protocols.operators.memory import Memory
from protocols.operators.operator import Operator, Span, Task, before, no_change
from protocols.operators.outer import outer_pairs
from protocols.operators.partners import CountedKeys, Partners
from protocols.operators.placed import (
    absence,
    added_up,
    changes,
    columns_of,
    distinct,
    entries,
    pairs,
    running,
    throughout,
    when_there,
)
from protocols.operators.statements import leading_side, statement
from protocols.views import tree


@dataclass(frozen=True)
class _Partner:
    """The number of partners of rows at every position, and how rows are matched with it."""

    numbers: pl.DataFrame
    on: Sequence[tuple[str, str]]
    nulls_equal: bool


class JoinOperator:
    """The operator of a join."""

    def __init__(
        self,
        node: tree.Join,
        left: Operator,
        right: Operator,
        memory: Callable[[int, list[str]], Memory],
        adds_up: bool = True,
        allows_too_few: bool = False,
    ) -> None:
        """`adds_up` is not needed if the operator above adds up equal changes anyway."""
        self._adds_up = adds_up
        self._left, self._right = left, right
        self._kind = node.kind
        self._on = node.on
        self._nulls_equal = node.nulls_equal
        stated = statement(node)
        self._names, self._reads = stated.names, stated.reads
        #: The columns on which each side is joined.
        self._by = [list(read.by) for read in self._reads]
        of_left, of_right, of_both = _by_side(node)
        #: The condition that a row has to satisfy by itself to have a partner at all.
        self._eligible = of_left, of_right
        #: The condition on a pair.
        self._test = of_both
        self._columns = node.columns
        self.nothing = empty_frame(node.columns).data
        self._counted = [Counted(node, side, allows_too_few) for side in (node.left, node.right)]
        #: For each side whose number of rows per key decides the other side's orphans.
        self._partners = [
            Partners(by, memory(side, by), self._counted[side], node.nulls_equal)
            if self._reads[side].unless_known
            else None
            for side, by in enumerate(self._by)
        ]

    # -- changes and rows before ------------------------------------------------------------------

    def change(self, span: Span) -> Task:
        left, right = yield from together([self._left.change(span), self._right.change(span)])
        if left.is_empty() and right.is_empty():
            return no_change(self)
        changed = (left, right)
        asked, wanted = zip(*self._asked(changed), strict=True)
        sides = (self._left, self._right)
        there = yield from together(
            [before(*each) for each in zip(sides, (span, span), asked, strict=True)]
        )
        placed = [entries(*each) for each in zip(there, changed, strict=True)]
        numbers = [self._numbers(span, s, wanted[s], there, changed) for s in (0, 1)]
        rows = self._rows(span, placed[0], placed[1], numbers[0], numbers[1], changes_only=True)
        found = changes(rows)
        return added_up(found) if self._adds_up else found

    def _asked(
        self, changed: tuple[pl.DataFrame, pl.DataFrame]
    ) -> Iterator[tuple[Keys, CountedKeys | None]]:
        """For each side the keys that have to be read, and those whose rows have to be counted."""
        if not self._on:
            for read in self._reads:
                concerned = any(not changed[side].is_empty() for side in read.because_of)
                yield ALL if concerned else NOBODY, None
            return
        touched = [self._keys(side, changed[side]) for side in (0, 1)]
        for read, partners in zip(self._reads, self._partners, strict=True):
            keys = {s: self._named(read.input, s, touched[s]) for s in read.because_of}
            known = [keys.pop(side) for side in read.unless_known]
            if partners is None:
                yield these(_united(*keys.values())), None
            else:
                wanted = partners.wanted(_united(*known))
                yield these(_united(*keys.values(), wanted.unknown)), wanted

    def _numbers(
        self,
        span: Span,
        side: int,
        wanted: CountedKeys | None,
        there: Sequence[pl.DataFrame],
        changed: Sequence[pl.DataFrame],
    ) -> pl.DataFrame | None:
        """Counts the rows per key of one side, if the other side needs to know."""
        partners = self._partners[side]
        if partners is None or wanted is None:
            return None
        before, change = (self._able(side, rows[side]) for rows in (there, changed))
        return partners.numbers(wanted, before, change, span.cut)

    def before(self, span: Span, keys: Asked) -> Task:
        left, right = yield from self._sides_before(span, keys)
        if isinstance(keys, All):
            for side, rows in enumerate((left, right)):
                partners = self._partners[side]
                if partners is not None:
                    partners.seen(self._able(side, rows), span.cut)
        rows = self._rows(span, throughout(left), throughout(right)).drop(POSITION)
        return added_up(agreeing(rows, keys))

    def settle(self) -> None:
        self._left.settle()
        self._right.settle()
        for partners in self._partners:
            if partners is not None:
                partners.settle()

    def to_remember(self, side: int, span: Span, keys: Asked) -> Task:
        """Counts the rows of keys of a side in the remembered form, whether remembered or not."""
        partners = self._partners[side]
        assert partners is not None
        rows = yield from before((self._left, self._right)[side], span, keys)
        return partners.counted(self._able(side, rows), keys)

    # -- rows ------------------------------------------------------------------------------------

    def _rows(
        self,
        span: Span,
        left: pl.DataFrame,
        right: pl.DataFrame,
        of_left: pl.DataFrame | None = None,
        of_right: pl.DataFrame | None = None,
        changes_only: bool = False,
    ) -> pl.DataFrame:
        """The entries of the join of these entries.

        `of_left` and `of_right` are the numbers of rows per key on that side, if counted. With
        `changes_only`, entries that have been there throughout may be left out to save work.
        """
        if self._kind == "semi":
            return self._partnered(span, left, right, of_right)
        if self._kind == "anti":
            return self._orphans(span, 0, left, right, of_right)
        if self._kind == "inner":
            parts = [self._joined(left, right)]
        elif self._on and self._test is None:
            parts = self._joined_and_padded((left, right), (of_left, of_right), changes_only)
        else:
            parts = [self._joined(left, right), self._padded(self._orphans(span, 0, left, right))]
            if self._kind == "full":
                parts.append(self._padded(self._orphans(span, 1, right, left)))
        return pl.concat([picked(part, [*self._columns, POSITION, COUNT]) for part in parts])

    def _joined_and_padded(
        self,
        rows: tuple[pl.DataFrame, pl.DataFrame],
        numbers: tuple[pl.DataFrame | None, pl.DataFrame | None],
        changes_only: bool,
    ) -> list[pl.DataFrame]:
        """The entries of an outer join whose pairs only have to agree in their keys."""
        is_full = self._kind == "full"
        mine, other = (self._able(side, rows[side]) for side in (0, 1))
        left, right = (None if each is None else _voids(each) for each in numbers)
        found = outer_pairs(
            mine,
            other,
            self._on,
            (left, right),
            nulls_equal=self._nulls_equal,
            is_full=is_full,
            changes_only=changes_only,
        )
        parts = [found]
        for side in (0, 1) if is_full else (0,):
            test = self._eligible[side]
            if test is not None:
                parts.append(self._padded(_failing(test, rows[side])))
        return parts

    def _able(self, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of one side that may have partners."""
        test = self._eligible[side]
        return rows if test is None else rows.filter(test)

    def _joined(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        mine, other = self._able(0, left), self._able(1, right)
        return pairs(mine, other, self._on, self._nulls_equal, where=self._test)

    def _partnered(
        self, span: Span, rows: pl.DataFrame, others: pl.DataFrame, numbers: pl.DataFrame | None
    ) -> pl.DataFrame:
        """The entries of the left side while they have a partner on the right."""
        rows = self._able(0, rows)
        found = self._partner(span, 0, rows, others, numbers)
        there = when_there(found.numbers)
        return pairs(rows, there, found.on, found.nulls_equal).select(rows.columns)

    def _orphans(
        self,
        span: Span,
        side: int,
        rows: pl.DataFrame,
        others: pl.DataFrame,
        numbers: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        """The entries of one side while they have no partner."""
        able = self._able(side, rows)
        found = self._partner(span, side, able, others, numbers)
        lonely = outer_pairs(able, absence(found.numbers), found.on, nulls_equal=found.nulls_equal)
        test = self._eligible[side]
        parts = [lonely.select(rows.columns).filter(pl.col(COUNT) != 0)]
        return pl.concat(parts if test is None else [*parts, _failing(test, rows)])

    def _partner(
        self,
        span: Span,
        side: int,
        rows: pl.DataFrame,
        others: pl.DataFrame,
        numbers: pl.DataFrame | None,
    ) -> "_Partner":
        """Counts the partners of rows of one side; `numbers` if they are counted by key already."""
        on = [(pair[side], pair[1 - side]) for pair in self._on]
        others = self._able(1 - side, others)
        counted = self._counted[1 - side].behind(span.cut)
        if self._test is None:
            if numbers is None:
                by = list(dict.fromkeys(theirs for _, theirs in on))
                numbers = running(others, by)
                counted.check(numbers, by)
            return _Partner(numbers, on, self._nulls_equal)
        # All columns of a row decide whether it has a partner.
        mine = columns_of(rows)
        each = distinct(rows, mine).with_columns(pl.lit(1, pl.Int64).alias(COUNT))
        matches = pairs(throughout(each), others, on, self._nulls_equal, where=self._test)
        of_rows = running(matches.select(*mine, POSITION, COUNT), mine)
        counted.check(of_rows, mine)
        return _Partner(of_rows, [(name, name) for name in mine], nulls_equal=True)

    def _padded(self, orphans: pl.DataFrame) -> pl.DataFrame:
        """Rows of one side, with NULL in the columns of the other."""
        missing = {name: type_ for name, type_ in self._columns.items() if name not in orphans}
        return orphans.with_columns(
            pl.lit(None, type_.dtype).alias(name) for name, type_ in missing.items()
        )

    # -- keys to ask by --------------------------------------------------------------------------

    def _keys(self, side: int, rows: pl.DataFrame) -> pl.DataFrame:
        """The different join keys of the rows of one side that may have partners."""
        keys = picked(self._able(side, rows), self._by[side])
        return once(keys) if self._nulls_equal else known_once(keys)

    def _named(self, side: int, whose: int, keys: pl.DataFrame) -> pl.DataFrame:
        """The join keys of either side, in the names of this side."""
        if whose == side:
            return keys
        theirs = {pair[side]: pair[1 - side] for pair in reversed(self._on)}
        found = picked(keys, [(name, theirs[name]) for name in self._by[side]])
        return found if len(set(theirs.values())) == keys.width else once(found)

    def _keys_across(self, side: int, rows: pl.DataFrame) -> Keys:
        """The keys on the other side that rows of one side meet."""
        if not self._on:
            return NOBODY if rows.is_empty() else ALL
        return these(self._named(1 - side, side, self._keys(side, rows)))

    def _sides_before(
        self, span: Span, keys: Asked
    ) -> Maintenance[Frame, tuple[pl.DataFrame, pl.DataFrame]]:
        """The rows of both sides on which these rows of the join depend."""
        named = [handed_on(keys, names) for names in self._names]
        sides = (self._left, self._right)
        leads = [isinstance(each, These) for each in named]
        first = leading_side(self._kind, leads, lambda side: _has_void(named[side]))
        if first is None:
            left, right = yield from together([before(side, span, ALL) for side in sides])
            return left, right
        found = yield from before(sides[first], span, named[first])
        others = yield from before(sides[1 - first], span, self._keys_across(first, found))
        return (found, others) if first == 0 else (others, found)


def _united(*several: pl.DataFrame) -> pl.DataFrame:
    """The keys that are in one of these sets."""
    there = [keys for keys in several if not keys.is_empty()]
    if len(there) < 2:
        return there[0] if there else several[0]
    return once(pl.concat(there))


def _voids(numbers: pl.DataFrame) -> pl.DataFrame:
    """Entries that stand for the rows of keys while there are none."""
    absent = absence(numbers)
    return chosen(absent, absent.get_column(COUNT).to_numpy() != 0)


def _failing(test: pl.Expr, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows for which a condition is not true."""
    return rows.filter(test.fill_null(False).not_())


def _by_side(node: tree.Join) -> tuple[pl.Expr | None, pl.Expr | None, pl.Expr | None]:
    """Splits the condition by the columns it reads: of the left side, of the right, of both."""
    parts: tuple[list[Condition], list[Condition], list[Condition]] = ([], [], [])
    for test in conjuncts(node.condition):
        read = columns_read(test)
        own = 0 if read <= node.left.columns.keys() else 1
        parts[own if own == 0 or read <= node.right.columns.keys() else 2].append(test)
    left, right, both = (conjunction(tuple(tests)) for tests in parts)
    return _polars(left), _polars(right), _polars(both)


def _polars(condition: Condition | None) -> pl.Expr | None:
    return None if condition is None else to_polars(condition)


def _has_void(keys: Asked) -> bool:
    """Whether some key is all NULL, as the columns of an orphan's missing side are."""
    if isinstance(keys, All):
        return False
    return bool(keys.rows.select(pl.all_horizontal(pl.all().is_null()).any()).item())
