"""T-Strobe [ZGMW96]: Strobe for transactions of one source; strong consistency, needs quiescence.

The transaction is one unit: opposite operations cancel, its deletions are noted first, and one
query covers all its insertions. It is never shown in part, because its query is in UQS until all
its insertions are answered.

    on transaction T   for its deletions (a, key):  pending(Q) gets it, for every Q in UQS;
                                                    AL gets key_delete(a, key)
                       for its insertions:  Q joins UQS;  A := source_evaluate(all of them)
                       Q leaves UQS;  A loses what pending(Q) deletes;  AL gets insert(A)
    UQS empty          AL is applied to MV, in its order and without duplicates, as one change

Assumptions as in strobe.py: the view shows all keys; FIFO.

Deviations: a transaction that inserts into several relations (or into one that is joined with
itself) asks along the plan of each changed atom, side by side, in common rounds: at most n - 1
queries for each such atom, n - 1 for the transaction in the paper's case of one. Changes come as
net effects, so there is nothing left to cancel.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.together import together
from protocols.maintenance.keys import ShownKeys, WorkingCopy, apart
from protocols.maintenance.strobe import Action, Unanswered, applied, source_evaluate
from protocols.maintenance.sweep import changed_atoms
from protocols.views.plan import plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


class TStrobe(Generic[D]):
    """The protocol over one view and one mailbox."""

    #: Every update begins a piece, whatever is under way.
    width = UNBOUNDED

    def __init__(self, view: View, mailbox: Mailbox[D], contents: Callable[[], D]) -> None:
        self._view = view
        self._mailbox = mailbox
        self._plans = {atom: plan(view, atom) for atom in view.atoms}
        self._keys = ShownKeys(view)
        #: MV.
        self._copy = WorkingCopy(self._keys, contents())
        #: UQS, a query for each transaction.
        self._unanswered: list[Unanswered[D]] = []
        #: AL.
        self._actions: list[Action[D]] = []
        self._begun = mailbox.start
        self._installed = mailbox.start

    def begin(self) -> Work[D] | None:
        """Handles a transaction as soon as it is delivered, whatever else is under way."""
        if self._begun == self._mailbox.last_position:
            return None
        self._begun += 1
        changes = changed_atoms(self._view, self._mailbox, self._begun)
        return self._transaction(changes, self._begun)

    def _transaction(self, changes: Iterable[tuple[Atom, D]], position: int) -> Work[D]:
        """Notes the deletions at once, and leaves the insertions to the piece of work."""
        parts = [(atom, *apart(change)) for atom, change in changes]
        for atom, deleted, _ in parts:
            if not deleted.is_empty():
                self._on_delete(atom, deleted)
        inserts = [(atom, inserted) for atom, _, inserted in parts if not inserted.is_empty()]
        query: Unanswered[D] = Unanswered()
        self._unanswered.append(query)
        return self._on_inserts(query, inserts, position)

    def _on_delete(self, atom: Atom, deleted: D) -> None:
        for query in self._unanswered:
            query.pending.append((atom, deleted))
        self._actions.append((atom, deleted))

    def _on_inserts(
        self, query: Unanswered[D], inserts: list[tuple[Atom, D]], position: int
    ) -> Work[D]:
        found = yield from together(
            [
                source_evaluate(self._view, self._plans[atom], inserted, position)
                for atom, inserted in inserts
            ]
        )
        self._unanswered.remove(query)
        rows = self._keys.distinct(part for part in found if part is not None)
        if rows is not None:
            for atom, deleted in query.pending:
                rows = self._keys.without(rows, atom, deleted)
            self._actions.append((None, rows))
        return self._when_quiet()

    def _when_quiet(self) -> list[Install[D]]:
        return [] if self._unanswered else self._installs(self._begun)

    def _installs(self, position: int) -> list[Install[D]]:
        """The install of AL as one change; nothing if this position is installed already."""
        if position == self._installed:
            return []
        self._installed = position
        return [Install(position, applied(self._actions, self._copy))]
