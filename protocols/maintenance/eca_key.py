"""ECA-Key [ZGHW95]: no compensation at all, if the view shows the key of every relation; strong.

If the view shows all keys, each of its rows identifies the rows it was made from, and occurs once.
So a deletion needs no query: its key's rows are removed from a working copy W of the view. An
insertion asks V<U>, uncompensated: surplus rows in its answer are recognised by their keys. When
no query is unanswered, W is installed.

    on delete:  W := key_delete(W, key);  for Q in UQS: pending[Q] += key
    on insert:  UQS += Q = V<U>;  pending[Q] := {}
      answer A: UQS -= Q;  W := W + key_delete(A, pending[Q]), without what W has already
    UQS empty:  view := W

It relies on the assumptions of ECA (see eca.py) and on keys that the view shows (see keys.py).

Deviations from the pseudo-code:

* As listed, a deletion only removes rows from W. But the deleted row may have been inserted just
  before; then the answer to that insertion's query, in which the row is a constant, puts its rows
  back for good. So deletions are also kept for the unanswered queries and applied to their answers.
  (If a key is used again, this drops rows of the new row too; its own query brings them.)
* An update is a transaction, and a modification deletes and inserts one key: first all deletions,
  then one query for all insertions, in which compensating terms keep a combination of two inserted
  rows from being counted twice.
* Terms with all relations replaced are evaluated here; they enter W with the answer of their query.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.questions import Joint
from protocols.maintenance.eca import SignedTerm, changed_rows, compensating, divided
from protocols.maintenance.keys import ShownKeys, WorkingCopy, apart
from protocols.views.partials import total
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


class EcaKey(Generic[D]):
    """The protocol over one view, one mailbox and the rows that the view has."""

    #: Every update begins a piece, whatever is under way.
    width = UNBOUNDED

    def __init__(self, view: View, mailbox: Mailbox[D], contents: Callable[[], D]) -> None:
        self._view = view
        self._mailbox = mailbox
        self._keys = ShownKeys(view)
        #: W.
        self._copy = WorkingCopy(self._keys, contents())
        #: The position of the last update that was taken in.
        self._seen = mailbox.start
        #: UQS: position → pending, the rows deleted from some atom since the query was sent.
        self._unanswered: dict[int, list[tuple[Atom, D]]] = {}
        self._installed = mailbox.start

    def begin(self) -> Work[D] | None:
        """At the source's update: applies its deletions here, and asks about its insertions."""
        if self._seen == self._mailbox.last_position:
            return None
        self._seen += 1
        terms: list[SignedTerm[D]] = []
        for atom, rows in changed_rows(self._view, self._mailbox, self._seen):
            deleted, inserted = apart(rows)
            if not deleted.is_empty():
                self._delete(atom, deleted)
            if not inserted.is_empty():
                terms += [SignedTerm({atom.index: inserted}), *compensating(terms, atom, inserted)]
        local, remote = divided(self._view, terms)
        if remote:
            self._unanswered[self._seen] = []
        else:
            self._insert(local, [])
        return self._answered(self._seen, remote, local)

    def _delete(self, atom: Atom, deleted: D) -> None:
        """Applies key_delete to W at once, and to every answer that is still to come."""
        rows = deleted.select([(own, qualified) for qualified, own in atom.renaming])
        self._copy.key_delete(atom, rows)
        for pending in self._unanswered.values():
            pending.append((atom, rows))

    def _answered(self, position: int, terms: list[SignedTerm[D]], local: list[D]) -> Work[D]:
        """At the answer: it enters W. If UQS is empty, the view becomes W."""
        if terms:
            (answer,) = yield [Joint(self._view, tuple(term.asked for term in terms), position)]
            self._insert([answer.rows, *local], self._unanswered.pop(position))
        if self._unanswered or self._installed == self._seen:
            return []
        self._installed = self._seen
        return [Install(self._seen, self._copy.changed())]

    def _insert(self, parts: list[D], pending: list[tuple[Atom, D]]) -> None:
        rows = total(parts)
        if rows is not None:
            for atom, deleted in pending:
                rows = self._keys.without(rows, atom, deleted)
            self._copy.insert(rows)
