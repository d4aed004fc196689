"""Nested SWEEP (SIGMOD'97, section 6, Figure 6), horizon form: one composite for many updates.

Strong consistency; at most n - 1 queries per update and far fewer when updates are concurrent. The
sweep of an update meets other updates that have been delivered meanwhile. Instead of taking them
out of the answers and sweeping each by itself later, it *absorbs* them: a nested sweep computes
their effect on the atoms (occurrences of relations in the view) visited so far, and from there on
both are swept together.

With base = the state that the view reflects, S = the updates absorbed so far and W = the join over
the atoms visited, the composite is always W(base + S) - W(base). Absorbing the changes T of an atom
j adds T ⋈ (the other visited atoms at base + S), which the nested sweep of T computes; updates that
this sweep absorbs itself are already part of S for everything that follows.

Deviations from the printed figure (algorithms.md, section 3):

* The horizon. H = min(delivered, first + budget) is fixed when a composite begins. Updates up to H
  are absorbed, all later ones compensated. The printed form absorbs every update it meets, so two
  sources that answer each question with a new update keep it from ever installing; and with a mere
  limit on the number of absorbed updates the composite would not end on a prefix of the order.
* An atom therefore has only two states, before and at the horizon, and is absorbed once, with all
  its changes merged. So frames nest at most n deep; they are kept on an explicit stack, which shows
  the whole state of a composite.
* Updates to absorb are read from the log, and not inferred from the queue at the moment when the
  answer came: no race, no need for FIFO channels. Reading them from the log also makes questions
  for an empty partial unnecessary. The printed form has to ask them, because it learns of updates
  to absorb from answers.
* The join graph may be arbitrary; "Left..Right" becomes the set of atoms that a frame has to cover.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.asof import asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.exchange.questions import Maintenance
from protocols.maintenance.sweep import changed_atoms
from protocols.views.partials import extended, seed, total
from protocols.views.plan import plan, step_to
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)


@dataclass
class _Frame(Generic[D]):
    """One running ViewChange: `change`, which began at an atom, over the atoms `bound`."""

    #: None when it has become empty.
    change: D | None
    bound: list[Atom]
    #: The atoms that it still has to join; none is added.
    left: list[Atom]


class NestedSweep(Generic[D]):
    """The protocol for one view, over one mailbox."""

    #: One piece of work at a time.
    width = 1

    def __init__(self, view: View, mailbox: Mailbox[D], budget: int = 100) -> None:
        self._view = view
        self._mailbox = mailbox
        #: At most so many updates after the first one go into a composite.
        self._budget = budget
        self._installed = mailbox.start

    def begin(self) -> Work[D] | None:
        """Process UpdateView: a composite that starts with the first update in the queue."""
        if self._installed == self._mailbox.last_position:
            return None
        return self._composite(min(self._mailbox.last_position, self._installed + 1 + self._budget))

    def _composite(self, horizon: int) -> Work[D]:
        first = self._first_that_changes_anything(horizon)
        install: Install[D] = Install(first, None)
        origins = changed_atoms(self._view, self._mailbox, first)
        if origins:
            origin, change = origins[0]
            #: Atom → the position as of which the composite contains it so far.
            cuts = dict.fromkeys(self._view.atoms, first - 1) | {origin: first}
            composite = yield from self._view_change(origin, change, cuts, horizon)
            # All other atoms were visited, so they are at the horizon. The origin is there only if
            # another atom had updates to absorb. If none had, the composite is `first` alone.
            missed = self._mailbox.changes(origin.relation, cuts[origin], horizon) is not None
            end = first if missed else horizon
            shown = [] if composite is None else [composite.select(self._view.projection)]
            install = Install(end, total(shown))
        self._installed = install.position
        return [install]

    def _first_that_changes_anything(self, horizon: int) -> int:
        """The first relevant position: updates of other relations are shown with the next one."""
        for position in range(self._installed + 1, horizon):
            if changed_atoms(self._view, self._mailbox, position):
                return position
        return horizon

    def _view_change(
        self, origin: Atom, change: D, cuts: dict[Atom, int], horizon: int
    ) -> Maintenance[D, D | None]:
        """Function ViewChange, its recursion as a stack of frames."""
        position = cuts[origin]
        stack = [self._frame(origin, change, self._view.atoms)]
        while True:
            frame = stack[-1]
            if not frame.left:
                done = stack.pop()
                if not stack:
                    return done.change
                stack[-1].change = _sum(stack[-1].change, done.change)
                continue
            atom = frame.left.pop(0)
            yield from self._take_in(frame, atom, cuts[atom], position)
            absorbed = self._mailbox.changes(atom.relation, cuts[atom], horizon)
            cuts[atom] = horizon
            if absorbed is not None:
                stack.append(self._frame(atom, absorbed, tuple(frame.bound)))

    def _take_in(
        self, frame: _Frame[D], atom: Atom, cut: int, position: int
    ) -> Maintenance[D, None]:
        """One leg: asks the atom's source and takes out the updates that are not absorbed."""
        step = step_to(self._view, frame.bound, atom)
        frame.bound.append(atom)
        keys = None if frame.change is None else frame.change.keys(step.keys)
        if frame.change is None or keys is None or keys.is_empty():
            frame.change = None
            return
        rows = yield from asof(self._mailbox, atom, keys, cut, position)
        frame.change = extended(frame.change, rows, step)

    def _frame(self, origin: Atom, change: D, scope: tuple[Atom, ...]) -> _Frame[D]:
        way = plan(self._view, origin, scope)
        return _Frame(seed(way, change), [origin], [step.atom for step in way.steps])


def _sum(outer: D | None, inner: D | None) -> D | None:
    """The sum of two partials over the same atoms, whose columns may be in different orders."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer.plus(inner.select([(name, name) for name in outer.columns])).consolidated()
