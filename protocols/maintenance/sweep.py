"""SWEEP (SIGMOD'97, section 5, Figure 4): complete consistency, n - 1 queries per update.

For each update, in the order of delivery: start with its change, visit the other relations first
to the left, then to the right, extend the partial change by the answer of each, and take the
error terms of concurrent updates out of every answer before going on. The result at the end is
exactly the change of the view from the state before the update to the state after it, so it is
installed at once and every state of the delivery order becomes visible.

Deviations from the printed figure, all of them needed for correctness or for less traffic:

* The set of concurrent updates is decided by the version of the answer, not by looking into the
  queue some time after the answer arrived (see asof.py).
* The source is sent the distinct link values of the partial change instead of the change itself,
  and returns its own matching rows; the join is done here (algorithms.md, Lemma 2).
* An update may be a transaction over several relations, and a relation may occur several times in
  the view. Each occurrence that changed starts a sweep of its own; those earlier in FROM are read
  after the update, those later in FROM before the update (the telescoping sum in algorithms.md,
  section 5).
* Once the partial change is empty, no further question is asked.
* Selections are applied to changes here and evaluated by the sources in answers; the projection,
  with the multiplicities added up, comes last.
"""

from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.asof import Reading, asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.views.partials import extended, seed, total
from protocols.views.plan import Plan, plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


class Sweep(Generic[D]):
    """The protocol over one view and one mailbox."""

    #: One piece of work at a time.
    width = 1

    def __init__(self, view: View, mailbox: Mailbox[D], read: Reading[D] = asof) -> None:
        self._view = view
        self._mailbox = mailbox
        self._read = read
        self._plans = {atom: plan(view, atom) for atom in view.atoms}
        #: The last position that was begun; all after it are the paper's UpdateMessageQueue.
        self._begun = mailbox.start

    def begin(self) -> Work[D] | None:
        """Process UpdateView: the first update in the queue, when the previous one is done."""
        if self._begun == self._mailbox.last_position:
            return None
        self._begun += 1
        return self._shown(self._begun)

    def _shown(self, position: int) -> Work[D]:
        install = yield from self.update(position)
        return [install]

    def update(self, position: int) -> Maintenance[D, Install[D]]:
        """One update: the sum of the sweeps of all occurrences that it changes."""
        sweeps = [
            self.view_change(self._plans[atom], change, position)
            for atom, change in changed_atoms(self._view, self._mailbox, position)
        ]
        parts = yield from together(sweeps)
        change = total(part for part, _ in parts if part is not None)
        return Install(position, change, sum(skipped for _, skipped in parts))

    def view_change(
        self, way: Plan, change: D, position: int, before: int | None = None
    ) -> Maintenance[D, tuple[D | None, int]]:
        """Function ViewChange: a change of one atom, joined with all others as of their cuts.

        Atoms after the origin are read at `before`, by default one position earlier. Returns the
        change of the view and the number of questions that an empty partial saved.
        """
        before = position - 1 if before is None else before
        partial = seed(way, change)
        for asked, step in enumerate(way.steps):
            keys = partial.keys(step.keys)
            if keys.is_empty():
                return None, len(way.steps) - asked
            cut = position if step.atom.index < way.origin.index else before
            rows = yield from self._read(self._mailbox, step.atom, keys, cut, position)
            partial = extended(partial, rows, step)
        return partial.select(self._view.projection), 0


def changed_atoms(view: View, mailbox: Mailbox[D], position: int) -> list[tuple[Atom, D]]:
    """The atoms whose relations an update changes, with these changes."""
    changes = ((atom, mailbox.change(atom.relation, position)) for atom in view.atoms)
    return [(atom, change) for atom, change in changes if change is not None]
