"""A simulated source: every version it ever had, and answers at any of them.

It does only what an autonomous database does: it commits its own transactions, and answers one
question at one version. It remembers old versions for stale reads, for relations whose parts are
read at different moments, and for judging runs afterwards.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from protocols.algebra.bag import Bag, Row, bag
from protocols.algebra.expressions import And, Column, Comparison, Condition, IsNull, Literal, Or
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.inclusion import Prefix, Window
from protocols.exchange.questions import Page
from protocols.simulation.scenario import Contents, Update, after
from protocols.views.catalog import Relation
from protocols.views.plan import Plan, plan
from protocols.views.view import Atom, View


class MemorySource:
    """One source over the whole run."""

    def __init__(self, name: str, initial: Contents, updates: Sequence[Update]) -> None:
        self.name = name
        #: All updates that it will commit; version v is `updates[v - 1]`.
        self.updates = updates
        #: The commit times of its versions, by its own clock, which may step back.
        self.times: list[int] = []
        #: Its contents by version, from version 0 on.
        self._contents: list[Contents] = [initial]
        #: (view, index of an atom) → the plan that joins the view from there.
        self._ways: dict[tuple[str, int], Plan] = {}

    @property
    def version(self) -> int:
        """The last committed version."""
        return len(self._contents) - 1

    @property
    def relations(self) -> tuple[Relation, ...]:
        """All its relations."""
        return tuple(self._contents[0])

    @property
    def next_update(self) -> Update | None:
        """The update that it will commit next; None after the last one."""
        return self.updates[self.version] if self.version < len(self.updates) else None

    def commit(self, at: int = 0) -> Update:
        """Commits the next update, at this time."""
        update = self.updates[self.version]
        self.times.append(at)
        now = self._contents[-1]
        self._contents.append({**now, **after(now, update.changes)})
        return update

    def held(self, relation: Relation, version: int) -> Bag:
        """All rows of a relation at a version."""
        return self._contents[version][relation]

    def shown(self, relation: Relation, contained: Prefix) -> Bag:
        """All rows of a relation after exactly these transactions."""
        held = self._contents[contained.upto][relation]
        for version in contained.besides:
            held = held.plus(self._change(relation, version))
        for version in contained.without:
            held = held.plus(self._change(relation, version).negated())
        return held

    def _change(self, relation: Relation, version: int) -> Bag:
        nothing = Bag(relation.column_names)
        return self.updates[version - 1].changes.get(relation, nothing)

    def depends(self, later: int, earlier: int) -> bool:
        """Whether a transaction depends on an earlier one: no state has the later one alone.

        A database makes the later one wait for the rows, or the keys, that both of them touch.
        """
        ours, theirs = self.updates[later - 1].changes, self.updates[earlier - 1].changes
        return any(
            not _touched(relation, ours[relation]).isdisjoint(_touched(relation, theirs[relation]))
            for relation in ours.keys() & theirs.keys()
        )

    def read_in(
        self, relation: Relation, window: Window, moments: Callable[[], Sequence[int]]
    ) -> Bag:
        """The rows of a keyed relation, each key read at moments of its own inside a window.

        `moments` draws these versions for a key that is touched inside the window.
        """
        touched = {
            key
            for version in range(window.low + 1, window.high + 1)
            for key in _touched(relation, self._change(relation, version))
        }
        found = dict(self._contents[window.low][relation].counts)
        found = {row: 1 for row in found if _key(relation, row) not in touched}
        for key in sorted(touched, key=repr):
            for version in moments():
                held = self._contents[version][relation].counts
                found |= {row: 1 for row in held if _key(relation, row) == key}
        return Bag(relation.column_names, found)

    def joined(self, terms: Sequence[Mapping[int, Bag]], view: View, version: int) -> Bag:
        """A sum of joins over its relations at a version, some atoms replaced by given rows."""
        contents = self._contents[version]
        found: list[tuple[Row, int]] = []
        own = [_rows_of(atom, contents) for atom in view.atoms]
        for term in terms:
            # The given rows are few, so the join begins there.
            way = self._way(view, min(term, default=0))
            rows = [term.get(index, held) for index, held in enumerate(own)]
            found += _join(view, way, rows).counts.items()
        return bag([output.name for output in view.outputs], found)

    def _way(self, view: View, origin: int) -> Plan:
        if (view.name, origin) not in self._ways:
            self._ways[view.name, origin] = plan(view, view.atoms[origin])
        return self._ways[view.name, origin]

    def parts(self, relation: Relation, number: int) -> tuple[Condition, ...]:
        """Cuts a relation into at most `number` parts by the values of its first column.

        Each row satisfies exactly one of the conditions, at every version.
        """
        place, type_ = Column(relation.column_names[0]), relation.columns[0][1]
        bounds = [Literal(bound, type_) for bound in self._bounds(relation, number)]
        if not bounds:
            return ()
        below = [Comparison(place, "<", bound) for bound in bounds]
        above = [Comparison(place, ">=", bound) for bound in bounds]
        between = [And(both) for both in zip(above, below[1:], strict=False)]
        return (Or((IsNull(place), below[0])), *between, above[-1])

    def _bounds(self, relation: Relation, number: int) -> list[Any]:
        rows = list(self._contents[0][relation].counts)
        for update in self.updates:
            if relation in update.changes:
                rows += update.changes[relation].counts
        values = {row[0] for row in rows if row[0] is not None and row[0] == row[0]}
        ordered = sorted(values)
        step = max(1, len(ordered) // number)
        return ordered[step::step][: number - 1]


class CommitProperties:
    """The properties of the sources' transactions besides their changes."""

    def __init__(
        self, sources: Mapping[str, MemorySource], globals_: Mapping[str, GlobalPart]
    ) -> None:
        self._sources = sources
        self._globals = globals_

    def times(self, source: str, after: int, upto: int) -> Numbers:
        return np.array(self._sources[source].times[after:upto], np.int64)

    def sizes(self, source: str, after: int, upto: int) -> Numbers:
        updates = self._sources[source].updates[after:upto]
        return np.array([sum(map(_rows, u.changes.values())) for u in updates], np.int64)

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        id_ = self._sources[source].updates[version - 1].global_id
        return None if id_ is None else self._globals[id_]

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        updates = self._sources[source].updates[after:upto]
        return any(update.global_id is not None for update in updates)


def restricted(held: Bag, condition: Condition | None, keys: Sequence[Bag] | None) -> Bag:
    """The rows that satisfy the condition and match one of the key sets."""
    if keys is not None:
        if len(keys) == 1:
            held = held.matching(keys[0])
        else:
            matched = {row for key_set in keys for row in held.matching(key_set).counts}
            kept = {row: n for row, n in held.counts.items() if row in matched}
            held = Bag(held.columns, kept)
    return held if condition is None else held.where(condition)


def _touched(relation: Relation, change: Bag) -> set[Row]:
    """The keys of the rows that a transaction changes; without a key the rows themselves."""
    return {_key(relation, row) for row in change.counts}


def _key(relation: Relation, row: Row) -> Row:
    if not relation.key:
        return row
    return tuple(row[relation.column_names.index(column)] for column in relation.key)


def _rows_of(atom: Atom, contents: Contents) -> Bag:
    held = contents[atom.relation]
    return (held if atom.condition is None else held.where(atom.condition)).select(atom.renaming)


def _join(view: View, way: Plan, rows: Sequence[Bag]) -> Bag:
    """The view over these rows (by atom), joined one atom after the other."""
    partial = rows[way.origin.index]
    partial = partial if way.residual is None else partial.where(way.residual)
    for step in way.steps:
        if partial.is_empty():
            return partial
        partial = partial.join(rows[step.atom.index], step.join_on)
        partial = partial if step.residual is None else partial.where(step.residual)
    return partial.select(view.projection)


def cut_page(relation: Relation, rows: Bag, page: Page) -> tuple[Bag, Row | None]:
    """The rows of a page, and its last key if more may follow."""
    indexes = [rows.columns.index(column) for column in relation.key]

    def key(row: Row) -> Row:
        return tuple(row[index] for index in indexes)

    behind = (row for row in rows.counts if page.after is None or key(row) > page.after)
    found = sorted(behind, key=key)[: page.limit]
    last = key(found[-1]) if len(found) == page.limit else None
    return Bag(rows.columns, {row: rows.counts[row] for row in found}), last


def _rows(changes: Any) -> int:
    return sum(abs(count) for count in changes.counts.values())
