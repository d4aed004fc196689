"""Keys in the view, which the Strobe family and ECA-Key rely on.

If the view shows the key of every relation that it joins, each of its rows is made from exactly one
row of each, identifies these rows, and occurs once. Then a deletion can be applied at the warehouse
alone, and rows that arrive twice are recognised.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.errors import WrongUse
from protocols.views.partials import total
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


class ShownKeys:
    """The columns where the view shows the key of each atom; raises WrongUse if it does not."""

    def __init__(self, view: View) -> None:
        shown = {output.column: output.name for output in view.outputs}
        #: Atom → (column of the view, column of the relation) for each column of its key.
        self._places = {atom: _places(atom, shown) for atom in view.atoms}
        columns = dict.fromkeys(name for places in self._places.values() for name, _ in places)
        self._whole = tuple((name, name) for name in columns)

    def of(self, atom: Atom, changes: D) -> D:
        """The keys of the changed rows of an atom, under the names that the view gives them."""
        return changes.keys(self._places[atom])

    def without(self, rows: D, atom: Atom, changes: D) -> D:
        """key_delete: the rows of the view without those made from the changed rows of an atom."""
        return rows.plus(rows.matching(self.of(atom, changes)).negated()).consolidated()

    def missing(self, rows: D, there: D) -> D:
        """The rows whose combination of keys is not among `there`."""
        met = there.matching(rows.keys(self._whole))
        return rows.plus(rows.matching(met.keys(self._whole)).negated()).consolidated()

    def distinct(self, rows: Iterable[D]) -> D | None:
        """All rows together, each combination of keys once; None without any."""
        found: D | None = None
        for part in rows:
            found = part if found is None else found.plus(self.missing(part, found))
        return found


class WorkingCopy(Generic[D]):
    """The rows of a view with keys, and their changes since the last call of `changed`."""

    def __init__(self, keys: ShownKeys, rows: D) -> None:
        self._keys = keys
        self._rows = rows.consolidated()
        self._changes: list[D] = []

    def key_delete(self, atom: Atom, deleted: D) -> None:
        """Removes the rows that were made from these rows of an atom."""
        self._take(self._rows.matching(self._keys.of(atom, deleted)).negated())

    def insert(self, rows: D) -> None:
        """Adds rows, except those that are already there."""
        self._take(self._keys.missing(rows, self._rows))

    def changed(self) -> D | None:
        """The change since the last call; None when there is none."""
        changes, self._changes = self._changes, []
        return total(changes)

    def _take(self, change: D) -> None:
        if not change.is_empty():
            self._rows = self._rows.plus(change).consolidated()
            self._changes.append(change)


def apart(change: D) -> tuple[D, D]:
    """A change of a keyed relation as (rows deleted, rows inserted), all with count 1.

    A modification, -old +new with one key, has a row in both.
    """
    return change.negated().positive(), change.positive()


def _places(atom: Atom, shown: dict[str, str]) -> tuple[tuple[str, str], ...]:
    if not atom.relation.key:
        raise WrongUse(f"{atom.relation} (as {atom.alias}) has no key")
    hidden = [c for c in atom.relation.key if atom.qualified(c) not in shown]
    if hidden:
        raise WrongUse(
            f"the view does not show {atom.qualified(hidden[0])}, which is part of the key of"
            f" {atom.relation}"
        )
    return tuple((shown[atom.qualified(column)], column) for column in atom.relation.key)
