"""SWEEP with parallel legs (SIGMOD'97, section 5.3): the left and the right sweep at the same time.

Complete in delivery order, n - 1 queries per update like SWEEP, in fewer rounds: on a chain
max(i - 1, n - i) instead of n - 1. Atoms that are not connected without the origin are independent,
so on a star every other atom is a leg of its own; a cycle has a single leg.

The merge in the paper, ΔV_left ⋈ ΔV_right, is wrong for signed counts: both sides descend from the
change and both carry its counts, so a deletion, -1 times -1, becomes an insertion. Here only one
side carries the counts. The change itself is not swept; a leg begins with the distinct link values
that its first atoms need, each with count 1, and at the end every leg is joined with the change on
those values. A condition that spans several legs is tested at that merge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.algebra.expressions import Condition, conjunction
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance
from protocols.exchange.together import together
from protocols.maintenance.sweep import Sweep
from protocols.views.partials import extended, seed
from protocols.views.plan import Plan, PlanStep
from protocols.views.view import Atom, View

D = TypeVar("D", bound=Delta)

#: Prefix of the name of a link column of the origin in a leg.
_LEG = "_leg."


@dataclass(frozen=True)
class _Leg:
    """Atoms that are connected without the origin."""

    steps: tuple[PlanStep, ...]
    #: The columns of the origin that they are linked to; a leg starts from their values.
    links: tuple[str, ...]


@dataclass(frozen=True)
class _Legs:
    """All legs of a change of one atom."""

    legs: tuple[_Leg, ...]
    #: The condition that can be tested only when all legs are joined.
    at_merge: Condition | None


class ParallelSweep(Sweep[D]):
    """SWEEP with another ViewChange."""

    def __init__(self, view: View, mailbox: Mailbox[D]) -> None:
        super().__init__(view, mailbox)
        self._legs = {atom: _legs(view, way) for atom, way in self._plans.items()}

    def view_change(
        self, way: Plan, change: D, position: int, before: int | None = None
    ) -> Maintenance[D, tuple[D | None, int]]:
        """Function ViewChange, all legs at once."""
        before = position - 1 if before is None else before
        legs = self._legs[way.origin]
        partial = seed(way, change)
        tasks = [self._walk(leg, partial, way.origin, position, before) for leg in legs.legs]
        walked = yield from together(tasks)
        skipped = sum(saved for _, saved in walked)
        for leg, (rows, _) in zip(legs.legs, walked, strict=True):
            if rows is None:
                return None, skipped
            merged = partial.join(rows, [(name, _LEG + name) for name in leg.links])
            kept = [name for name in merged.columns if not name.startswith(_LEG)]
            partial = merged.select([(name, name) for name in kept])
        if legs.at_merge is not None:
            partial = partial.where(legs.at_merge)
        return partial.select(self._view.projection), skipped

    def _walk(
        self, leg: _Leg, partial: D, origin: Atom, position: int, before: int
    ) -> Maintenance[D, tuple[D | None, int]]:
        """The rows of a leg that go with the change, each once per combination of link values."""
        rows = partial.keys([(_LEG + name, name) for name in leg.links])
        for asked, step in enumerate(leg.steps):
            keys = rows.keys(step.keys)
            if keys.is_empty():
                return None, len(leg.steps) - asked
            cut = position if step.atom.index < origin.index else before
            found = yield from self._read(self._mailbox, step.atom, keys, cut, position)
            rows = extended(rows, found, step)
        return rows, 0


def _legs(view: View, way: Plan) -> _Legs:
    tested = list(view.residuals_within([way.origin]))
    legs = []
    for atoms in _components(view, way.origin):
        legs.append(_leg(view, way, atoms))
        tested += view.residuals_within(atoms)
    left = tuple(condition for condition in view.residuals if condition not in tested)
    return _Legs(tuple(legs), conjunction(left))


def _components(view: View, origin: Atom) -> Iterator[set[Atom]]:
    """The connected components of the join graph without the origin."""
    left = {atom for atom in view.atoms if atom != origin}
    while left:
        found = {min(left, key=lambda atom: atom.index)}
        grown = True
        while grown:
            linked = {
                atom for atom in left - found if any(_are_linked(view, atom, f) for f in found)
            }
            found |= linked
            grown = bool(linked)
        left -= found
        yield found


def _are_linked(view: View, one: Atom, other: Atom) -> bool:
    return any({link.left[0], link.right[0]} == {one.index, other.index} for link in view.links)


def _leg(view: View, way: Plan, atoms: set[Atom]) -> _Leg:
    """The steps of the plan that belong to a leg, with the origin's columns renamed."""
    own = set(way.origin.qualified_columns)
    bound: list[Atom] = []
    steps, starts = [], []
    for step in way.steps:
        if step.atom not in atoms:
            continue
        starts += [there for there, _ in step.links if there in own]
        links = tuple((_LEG + there if there in own else there, c) for there, c in step.links)
        before = view.residuals_within(bound)
        bound.append(step.atom)
        new = tuple(r for r in view.residuals_within(bound) if r not in before)
        steps.append(PlanStep(step.atom, links, conjunction(new)))
    return _Leg(tuple(steps), tuple(dict.fromkeys(starts)))
