"""A fast judge of runs: was every visible state right, and was none left out?

It evaluates the view at every vector that a state claims, from scratch: nested loops over the
contents of the sources at exactly these versions. No mailbox, no cut, no plan and no operation of
the algebra is used; only the parsed view and the meaning of conditions are shared with the
protocols. DuckDB evaluates views that are more than an inner join (`sqlcontents.py`, which says
what it shares with the checker). The judge relies on the claims of a run, so it is quick and
strict: if it objects, the checker (protocols/checking) decides which level was really reached.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from protocols.algebra.bag import Row
from protocols.algebra.expressions import Condition
from protocols.algebra.expressions_reference import holds
from protocols.checking.levels import COMPLETE, DELIVERY
from protocols.exchange.mailbox import Group
from protocols.maintenance.registry import Entry
from protocols.simulation.journal import Outcome, VisibleState
from protocols.simulation.source import MemorySource
from protocols.simulation.sqlcontents import SqlContents
from protocols.views.tree import AnyView, TreeView
from protocols.views.view import Atom, View

Rows = dict[Row, int]


def objection(
    view: AnyView, protocol: Entry, outcome: Outcome, contents: "AnyContents | None" = None
) -> str | None:
    """The first violation of the protocol's promise in a run; None if there is none.

    Runs over the same sources may share the contents.
    """
    found = _wrong_claims(outcome)
    found = found or _wrong_contents(outcome, contents or contents_of(view, outcome.sources))
    if found is None and protocol.level in (COMPLETE, DELIVERY):
        found = _left_out(outcome)
    return found


# Claims of the states -----------------------------------------------------------------------------


def _wrong_claims(outcome: Outcome) -> str | None:
    """Checks that vectors grow, hold whole global transactions, are delivered, end at the top."""
    if not outcome.states:
        return "no state was ever shown"
    parts = _parts(outcome.sources)
    first = outcome.states[0]
    top = dict(first.vector)
    for group in outcome.groups:
        top.update(group)
    before = first
    for state in outcome.states:
        where = f"the state of position {state.position}"
        for source, version in state.vector.items():
            if version < before.vector[source] or state.position < before.position:
                return f"{where} lies before the state that was shown before it"
            if version > top[source]:
                return f"{where} claims version {version} of {source}, which was not delivered"
        half = _half(parts, state.vector)
        if half is not None:
            return f"{where} shows the global transaction {half} in part"
        before = state
    return None if before.vector == top else "the last state is not that of all deliveries"


def _parts(sources: Mapping[str, MemorySource]) -> dict[str, Group]:
    parts: dict[str, Group] = {}
    for name, source in sources.items():
        for version, update in enumerate(source.updates, 1):
            if update.global_id is not None:
                there = parts.get(update.global_id, ())
                parts[update.global_id] = (*there, (name, version))
    return parts


def _half(parts: Mapping[str, Group], vector: Mapping[str, int]) -> str | None:
    for name, group in parts.items():
        inside = {version <= vector[source] for source, version in group}
        if len(inside) > 1:
            return name
    return None


def _left_out(outcome: Outcome) -> str | None:
    """Checks that each position has one state, at exactly the vector of its deliveries."""
    vector = dict(outcome.states[0].vector)
    expected = [dict(vector)]
    for group in outcome.groups:
        vector.update(group)
        expected.append(dict(vector))
    for position, state in enumerate(outcome.states):
        if state.position != position:
            return f"position {position} has no state of its own"
        if state.vector != expected[position]:
            return f"the state of position {position} claims {state.vector}"
    return None


# Contents of the states ---------------------------------------------------------------------------


def _wrong_contents(outcome: Outcome, contents: "AnyContents") -> str | None:
    """Checks that each state is the view at its vector."""
    held: Rows = {}
    for state in outcome.states:
        _add(held, state)
        due = contents.at(state.vector)
        if held != due:
            return f"the state of position {state.position} {_differences(held, due)}"
    return None


def _add(held: Rows, state: VisibleState) -> None:
    for row, count in () if state.change is None else state.change.counts.items():
        total = held.get(row, 0) + count
        if total:
            held[row] = total
        else:
            del held[row]


def _differences(held: Rows, due: Rows) -> str:
    rows = {**held, **due}
    wrong = [row for row in rows if held.get(row, 0) != due.get(row, 0)]
    row = wrong[0]
    return (
        f"holds {row} {held.get(row, 0)} times instead of {due.get(row, 0)}"
        f" ({len(wrong)} wrong rows)"
    )


def contents_of(view: AnyView, sources: Mapping[str, MemorySource]) -> "AnyContents":
    """The view at any vector."""
    return SqlContents(view, sources) if isinstance(view, TreeView) else Contents(view, sources)


class Contents:
    """An inner join at any vector, by nested loops over the contents of the sources."""

    def __init__(self, view: View, sources: Mapping[str, MemorySource]) -> None:
        self._sources = sources
        self._loops = [_Loop(view, atom) for atom in view.atoms]
        places = {name: i for i, name in enumerate(_columns(view.atoms))}
        self._outputs = [places[output.column] for output in view.outputs]
        #: (atom, version) → its rows by the values of its links.
        self._indexes: dict[tuple[int, int], dict[Row, list[tuple[Row, int]]]] = {}
        self._known: dict[tuple[int, ...], Rows] = {}

    def at(self, vector: Mapping[str, int]) -> Rows:
        """The rows of the view with their counts."""
        key = tuple([vector[source] for source in self._sources])
        if key not in self._known:
            self._known[key] = self._evaluated(vector)
        return self._known[key]

    def _evaluated(self, vector: Mapping[str, int]) -> Rows:
        partials: list[tuple[Row, int]] = [((), 1)]
        for loop in self._loops:
            index = self._index(loop, vector[loop.atom.relation.source])
            partials = list(loop.extended(partials, index))
        found: Rows = {}
        for row, count in partials:
            shown = tuple([row[place] for place in self._outputs])
            found[shown] = found.get(shown, 0) + count
        return found

    def _index(self, loop: "_Loop", version: int) -> dict[Row, list[tuple[Row, int]]]:
        key = (loop.atom.index, version)
        if key not in self._indexes:
            relation = loop.atom.relation
            held = self._sources[relation.source].held(relation, version)
            self._indexes[key] = loop.index(held.columns, held.counts)
        return self._indexes[key]


class _Loop:
    """One of the nested loops: an atom joined to those before it in FROM."""

    def __init__(self, view: View, atom: Atom) -> None:
        self.atom = atom
        before = view.atoms[: atom.index]
        self._names = _columns(view.atoms[: atom.index + 1])
        places = {name: i for i, name in enumerate(_columns(before))}
        ends = (link.seen_from(atom.index) for link in view.links)
        linked = [end for end in ends if end is not None and end[0][0] < atom.index]
        #: The places of the values that this atom's columns have to equal.
        self._there = [places[view.atoms[i].qualified(column)] for (i, column), _ in linked]
        self._own = [column for _, column in linked]
        old = view.residuals_within(before)
        new = view.residuals_within(view.atoms[: atom.index + 1])
        self._conditions = [condition for condition in new if condition not in old]

    def index(
        self, columns: Sequence[str], held: Mapping[Row, int]
    ) -> dict[Row, list[tuple[Row, int]]]:
        """The atom's rows by link values; NULL equals nothing, so rows with one are left out."""
        used = [columns.index(column) for column in self.atom.columns]
        own = [columns.index(column) for column in self._own]
        found: dict[Row, list[tuple[Row, int]]] = {}
        for row, count in held.items():
            link = tuple([row[place] for place in own])
            if None in link or not _true(self.atom.condition, columns, row):
                continue
            found.setdefault(link, []).append((tuple([row[place] for place in used]), count))
        return found

    def extended(
        self, partials: Sequence[tuple[Row, int]], index: Mapping[Row, list[tuple[Row, int]]]
    ) -> Iterator[tuple[Row, int]]:
        """All combinations that the links and the conditions allow so far."""
        for row, count in partials:
            link = tuple([row[place] for place in self._there])
            for own, own_count in index.get(link, ()):
                whole = row + own
                if all(_true(condition, self._names, whole) for condition in self._conditions):
                    yield whole, count * own_count


def _columns(atoms: Sequence[Atom]) -> list[str]:
    return [name for atom in atoms for name, _ in atom.renaming]


def _true(condition: Condition | None, names: Sequence[str], row: Row) -> bool:
    if condition is None:
        return True
    values: dict[str, Any] = dict(zip(names, row, strict=True))
    return holds(condition, values) is True


#: The contents of a view of either kind.
AnyContents: TypeAlias = Contents | SqlContents
