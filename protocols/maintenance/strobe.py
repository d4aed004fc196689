"""Strobe [ZGMW96] (here after SIGMOD'97, section 3): strong consistency, needs quiescence.

Nothing is compensated. The view shows the key of every relation, so a deletion is applied here, by
key, without a question. An insertion is joined with the other relations in their current state, at
most n - 1 queries, and rows that two insertions both find are recognised as duplicates. All actions
are noted in the action list AL, and AL is applied to the view when no query is unanswered: in
between the view would show states that never existed.

    on delete (a, key)   pending(Q) gets it, for every Q in UQS;  AL gets key_delete(a, key)
    on insert (a, t)     Q joins UQS;  A := source_evaluate(t, a);  Q leaves UQS
                         A loses what pending(Q) deletes;  AL gets insert(A)
    UQS empty            AL is applied to MV, in its order and without duplicates, as one change

Why pending deletes: a query may have read the row of b before it was deleted there, and its answer
comes after the deletion was noted. Why no pending inserts: a later insertion sends its own query,
and finds again the rows that pending deletes removed when a key is used again.

Assumptions: the view shows the key of every relation; answers and updates of a source arrive
in the order in which they happened there (FIFO), so that every deletion whose effect an answer
might lack has been noted.

Deviations: the unit of the driver is a transaction of one source. Each atom that it changes is an
update of its own here, all rows at once, first those deleted and then those inserted (a modified
row is both); in T-Strobe the transaction is the unit. The source is sent link values and the join
is done here, as in sweep.py. With an empty AL the view still installs its new position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.asof import about
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.maintenance.keys import ShownKeys, WorkingCopy, apart
from protocols.maintenance.sweep import changed_atoms
from protocols.views.partials import extended, seed
from protocols.views.plan import Plan, plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


@dataclass(eq=False)
class Unanswered(Generic[D]):
    """A query in UQS, with the rows that were deleted from some atom since it was sent."""

    pending: list[tuple[Atom, D]] = field(default_factory=list)


#: An entry of AL: rows deleted from this atom, or (None) rows of the view to be inserted.
Action: TypeAlias = tuple[Atom | None, D]


class Strobe(Generic[D]):
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
        #: UQS.
        self._unanswered: list[Unanswered[D]] = []
        #: AL.
        self._actions: list[Action[D]] = []
        #: The last position whose deletions are noted and whose insertions have their queries.
        self._begun = mailbox.start
        self._installed = mailbox.start

    def begin(self) -> Work[D] | None:
        """Handles an update as soon as it is delivered, whatever else is under way."""
        if self._begun == self._mailbox.last_position:
            return None
        self._begun += 1
        queries = []
        for atom, change in changed_atoms(self._view, self._mailbox, self._begun):
            deleted, inserted = apart(change)
            if not deleted.is_empty():
                self._on_delete(atom, deleted)
            if not inserted.is_empty():
                query: Unanswered[D] = Unanswered()
                self._unanswered.append(query)
                queries.append(self._on_insert(query, atom, inserted, self._begun))
        return self._transaction(queries)

    def _on_delete(self, atom: Atom, deleted: D) -> None:
        for query in self._unanswered:
            query.pending.append((atom, deleted))
        self._actions.append((atom, deleted))

    def _on_insert(
        self, query: Unanswered[D], atom: Atom, inserted: D, position: int
    ) -> Maintenance[D, None]:
        rows = yield from source_evaluate(self._view, self._plans[atom], inserted, position)
        self._unanswered.remove(query)
        if rows is not None:
            for other, deleted in query.pending:
                rows = self._keys.without(rows, other, deleted)
            self._actions.append((None, rows))

    def _transaction(self, queries: list[Maintenance[D, None]]) -> Work[D]:
        yield from together(queries)
        if self._unanswered or self._installed == self._begun:
            return []
        self._installed = self._begun
        return [Install(self._begun, applied(self._actions, self._copy))]


def source_evaluate(
    view: View,
    way: Plan,
    inserted: D,
    position: int,
    substituted: Mapping[Atom, D] = MappingProxyType({}),
) -> Maintenance[D, D | None]:
    """The rows of the view made from inserted rows of an atom and the current rows of the others.

    Asks one atom after the other; for the `substituted` ones rows are given (qualified). None if
    no row is left on the way.
    """
    partial = seed(way, inserted)
    for step in way.steps:
        keys = partial.keys(step.keys)
        if keys.is_empty():
            return None
        if step.atom in substituted:
            rows = substituted[step.atom]
        else:
            (found,) = yield [about(step.atom, keys, position)]
            rows = found.rows.select(step.atom.renaming)
        partial = extended(partial, rows, step)
    return None if partial.is_empty() else partial.select(view.projection)


def applied(actions: list[Action[D]], copy: WorkingCopy[D]) -> D | None:
    """Applies AL to the working copy and empties AL; returns the change of the view."""
    for atom, rows in actions:
        if atom is None:
            copy.insert(rows)
        else:
            copy.key_delete(atom, rows)
    actions.clear()
    return copy.changed()
