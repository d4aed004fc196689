"""The other control: reads all relations and recomputes the view (SIGMOD'97, section 3, opening).

Strong: one state for all updates that were delivered meanwhile. It is right, because every relation
is corrected to the same cut like any other answer. It is the baseline for incremental maintenance:
n questions per state, each answered with a whole relation.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.asof import asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.views.partials import extended, total
from protocols.views.plan import plan
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


class Recompute(Generic[D]):
    """The protocol over one view and one mailbox."""

    #: One piece of work at a time.
    width = 1

    def __init__(self, view: View, mailbox: Mailbox[D], contents: Callable[[], D]) -> None:
        self._view = view
        self._mailbox = mailbox
        self._shown = contents()
        self._way = plan(view, view.atoms[0])
        self._begun = mailbox.start

    def begin(self) -> Work[D] | None:
        """The view as of everything delivered."""
        if self._begun == self._mailbox.last_position:
            return None
        self._begun = self._mailbox.last_position
        return self._anew(self._begun)

    def _anew(self, cut: int) -> Work[D]:
        atoms = self._view.atoms
        found = yield from together([self._all(atom, cut) for atom in atoms])
        rows = dict(zip(atoms, found, strict=True))
        whole = rows[self._way.origin]
        if self._way.residual is not None:
            whole = whole.where(self._way.residual)
        for step in self._way.steps:
            whole = extended(whole, rows[step.atom], step)
        shown = whole.select(self._view.projection).consolidated()
        change = total([shown, self._shown.negated()])
        self._shown = shown
        return [Install(cut, change)]

    def _all(self, atom: Atom, cut: int) -> Maintenance[D, D]:
        return asof(self._mailbox, atom, None, cut, cut)
