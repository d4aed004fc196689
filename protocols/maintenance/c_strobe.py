"""C-Strobe [ZGMW96] (here after SIGMOD'97, section 3): complete consistency, exponential cost.

One update after the other, in the order of delivery. A deletion is applied by key. An insertion is
joined with the other relations in their current state; then its answer is corrected to the state
that the insertion saw, with the updates that were delivered meanwhile:

    delete u_i:   MV := key_delete(MV, u_i)
    insert u_i:   A := {};  todo := [{a}]                    # sets of atoms whose rows are given
        while todo:
            for S in todo:  A_S := source_evaluate(u_i, with D_b for every other b in S)
            for b not in S, every key of b that was touched after u_i:  A_S loses its rows
            A += A_S
            todo := S + {b}  for S in todo, b not in S with D_b not empty
        MV += A

    D_b = the rows of b whose first update after u_i deleted them

A compensating query is an ordinary query in which rows that are gone from their source are
substituted here. Its own answer may contain further updates, so it may need further queries; but
each of them asks one relation less, and the one with all relations given asks nothing.

Why the first update of a key: if it is an insertion, the key was not there at u_i; if it deletes
the row r, then r was. Later updates of the key say nothing about the state at u_i.

Why that is exact: take a row of the view at u_i that was made from u_i's row. Either none of its
keys was touched when the answer for S came in; then all its parts were there all the time, and the
answer contains it. Or some parts outside S were touched; their first updates deleted them, so they
are in D_b, and the row is found for a larger S, asked afterwards. A row with an untouched key was
there at u_i. So every A_S is right, and together they are complete.

Corrections to the algorithm as it is usually printed (algorithms.md, section 2):

* "Drop the rows of concurrent insertions, by key" is wrong when a deleted key is used again, hence
  for every modification. The first update of each key decides.
* All deletions after u_i count for every compensating query, not only those after it was sent;
  otherwise rows are lost that two deletions hid together.

Deviations: queries are identified by the set S, not by the order in which its atoms were added, and
those of one size go out together: at most 2^(n-1) - 1 compensating queries for an insertion, where
orders would give (n-1)!. The rows of S are substituted when the plan reaches their atom, so that
no cross product is computed. An update is a transaction of one source: its deletions first, then
each changed atom in this way, side by side; rows found by two of them are duplicates.

Assumptions as in strobe.py: the view shows all keys; FIFO.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.algebra.delta import POSITION, Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.maintenance.keys import ShownKeys, WorkingCopy, apart
from protocols.maintenance.strobe import source_evaluate
from protocols.maintenance.sweep import changed_atoms
from protocols.views.plan import plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


@dataclass(frozen=True)
class _Later(Generic[D]):
    """The updates of an atom after u_i, as far as they tell about the state at u_i."""

    #: The rows that were inserted or deleted; only their keys matter.
    touched: D
    #: D_b, selected and with qualified columns.
    deleted: D


class CStrobe(Generic[D]):
    """The protocol over one view and one mailbox."""

    #: One piece of work at a time.
    width = 1

    def __init__(self, view: View, mailbox: Mailbox[D], contents: Callable[[], D]) -> None:
        self._view = view
        self._mailbox = mailbox
        self._plans = {atom: plan(view, atom) for atom in view.atoms}
        self._keys = ShownKeys(view)
        #: MV.
        self._copy = WorkingCopy(self._keys, contents())
        self._begun = mailbox.start

    def begin(self) -> Work[D] | None:
        """The next update, when the previous one is done."""
        if self._begun == self._mailbox.last_position:
            return None
        self._begun += 1
        return self._update(self._begun)

    def _update(self, position: int) -> Work[D]:
        inserts = []
        for atom, change in changed_atoms(self._view, self._mailbox, position):
            deleted, inserted = apart(change)
            self._copy.key_delete(atom, deleted)
            if not inserted.is_empty():
                inserts.append(self._on_insert(atom, inserted, position))
        found = yield from together(inserts)
        rows = self._keys.distinct(part for parts in found for part in parts)
        if rows is not None:
            self._copy.insert(rows)
        return [Install(position, self._copy.changed())]

    def _on_insert(self, atom: Atom, inserted: D, position: int) -> Maintenance[D, list[D]]:
        """The A_S: all rows of the view at this position that are made from the inserted ones."""
        found = []
        later: dict[Atom, _Later[D]] = {}
        todo = [frozenset({atom})]
        while todo:
            queries = []
            for given in todo:
                rows_of = {b: later[b].deleted for b in given if b != atom}
                way = self._plans[atom]
                queries.append(source_evaluate(self._view, way, inserted, position, rows_of))
            answers = yield from together(queries)
            later = self._later(position)
            for given, rows in zip(todo, answers, strict=True):
                if rows is not None:
                    found.append(self._as_it_was(rows, given, later))
            todo = list(
                dict.fromkeys(
                    given | {b}
                    for given in todo
                    for b in later
                    if b not in given and not later[b].deleted.is_empty()
                )
            )
        return found

    def _as_it_was(self, rows: D, given: frozenset[Atom], later: dict[Atom, _Later[D]]) -> D:
        """An answer without the rows that have touched keys."""
        for atom, updates in later.items():
            if atom not in given:
                rows = self._keys.without(rows, atom, updates.touched)
        return rows

    def _later(self, position: int) -> dict[Atom, _Later[D]]:
        """The atoms that were updated after a position."""
        found = ((atom, self._first_updates(atom, position)) for atom in self._view.atoms)
        return {atom: later for atom, later in found if later is not None}

    def _first_updates(self, atom: Atom, position: int) -> _Later[D] | None:
        """The first update of each key after a position."""
        relation, last = atom.relation, self._mailbox.last_position
        after, upto = (self._mailbox.version_at(relation.source, p) for p in (position, last))
        touched = self._mailbox.placed(relation, after, upto)
        if touched is None:
            return None
        first = touched.earliest(relation.key, POSITION)
        # Split on all columns: a modification may change none of those that the view uses.
        deleted, _inserted = apart(first.select([(c, c) for c in relation.column_names]))
        if atom.condition is not None:
            deleted = deleted.where(atom.condition)
        return _Later(touched, deleted.select(atom.renaming))
