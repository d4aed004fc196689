"""ECA-Local [ZGHW95]: ECA that does not ask the source where it can; strong consistency.

Some updates can be handled with the update and the rows of the view alone. Here these are:

    key-delete   only deletions, from relations whose keys the view shows: exactly the rows of the
                 view that show a deleted key are deleted, because each was made with the deleted
                 row and a key has one row
    no-op        rows that do not satisfy the view's conditions on their relation, and changes of
                 columns that the view does not use
    all given    every update of a view over one relation

The first needs the exact rows of the view, so it is done only when no query is unanswered and
everything collected is installed; otherwise the update is handled as in ECA. (Deleting by key with
queries outstanding misses the rows that their answers bring later.) The other two are terms that
ECA drops or evaluates here anyway, with or without outstanding queries.

It relies on the assumptions of ECA (see eca.py) and, unlike ECA-Key, needs no keys: updates of
relations without a key, or whose key is not shown, are always handled as in ECA. The rows of the
view are kept in a working copy.

Deviation: the paper leaves open which updates can be handled locally; the rule above is ours. An
update with any insertion or modification is not among them.
"""

from collections.abc import Callable
from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.maintenance.eca import Eca, changed_rows
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


class EcaLocal(Eca[D]):
    """The protocol over one view, one mailbox and the rows that the view has."""

    def __init__(self, view: View, mailbox: Mailbox[D], contents: Callable[[], D]) -> None:
        super().__init__(view, mailbox)
        #: The working copy: the rows of the view after the last install.
        self._rows = contents()
        #: Atoms whose key shows → (column of the view, qualified column) for each of its columns.
        self._shown_keys = _shown_keys(view)

    def begin(self) -> Work[D] | None:
        """At the source's update: handles it here if possible, else as ECA does."""
        if self._seen == self._mailbox.last_position:
            return None
        changes = changed_rows(self._view, self._mailbox, self._seen + 1)
        if not self._can_do(changes):
            return super().begin()
        self._seen += 1
        self._collected += self._key_deletes(changes)
        return self._answered(self._seen, [])

    def _can_do(self, changes: list[tuple[Atom, D]]) -> bool:
        if self._unanswered or self._installed < self._seen:
            return False
        return all(self._only_deletes(atom, rows) for atom, rows in changes)

    def _only_deletes(self, atom: Atom, rows: D) -> bool:
        """Whether each row is a deletion, and the view shows its key."""
        return atom in self._shown_keys and rows.positive().is_empty()

    def _key_deletes(self, changes: list[tuple[Atom, D]]) -> list[D]:
        """The rows that the view loses, one atom after the other."""
        left, lost = self._rows, []
        for atom, rows in changes:
            gone = left.matching(rows.keys(self._shown_keys[atom])).negated()
            left = left.plus(gone).consolidated()
            lost.append(gone)
        return lost

    def _when_quiet(self) -> list[Install[D]]:
        installs = super()._when_quiet()
        for install in installs:
            if install.change is not None:
                self._rows = self._rows.plus(install.change).consolidated()
        return installs


def _shown_keys(view: View) -> dict[Atom, tuple[tuple[str, str], ...]]:
    shown = {output.column: output.name for output in view.outputs}
    found = {}
    for atom in view.atoms:
        key = [atom.qualified(column) for column in atom.relation.key]
        if key and shown.keys() >= set(key):
            found[atom] = tuple((shown[column], column) for column in key)
    return found
