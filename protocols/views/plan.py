"""The order in which a change of one atom is joined with the others.

A plan starts at the atom that changed (the *origin*) and adds one linked atom after the other:
first everything to its left in FROM, from right to left, then everything to its right, from left to
right. On a chain this is exactly the double sweep of Figure 4 (SWEEP, section 5.1). If the join
graph is not a chain, an atom that has no link to the gathered atoms yet waits for its turn.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from protocols.algebra.expressions import Condition, conjunction
from protocols.views.view import Atom, View


@dataclass(frozen=True)
class PlanStep:
    """Adds one atom to a partial."""

    atom: Atom
    #: The equalities with atoms already there: (qualified column there, column of the atom).
    links: tuple[tuple[str, str], ...]
    #: The conditions that can be tested now and could not before.
    residual: Condition | None

    @cached_property
    def join_on(self) -> tuple[tuple[str, str], ...]:
        """The links with both sides qualified."""
        return tuple((there, self.atom.qualified(column)) for there, column in self.links)

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The key set to ask for: (column of the atom, qualified column there), one per column."""
        return tuple({column: there for there, column in self.links}.items())


@dataclass(frozen=True)
class Plan:
    """The whole path of a change from its origin to the view."""

    origin: Atom
    #: Residual conditions that need no other atom.
    residual: Condition | None
    steps: tuple[PlanStep, ...]


def plan(view: View, origin: Atom, within: Collection[Atom] | None = None) -> Plan:
    """The sweep that starts at `origin`, over all atoms or the given ones, which are connected."""
    return _plan(view, origin, None if within is None else tuple(within))


@lru_cache(maxsize=4096)
def _plan(view: View, origin: Atom, within: tuple[Atom, ...] | None) -> Plan:
    atoms = [atom for atom in view.atoms if within is None or atom in within]
    bound, steps = [origin], []
    while len(bound) < len(atoms):
        atom = _next_atom(view, atoms, origin, bound)
        steps.append(step_to(view, bound, atom))
        bound.append(atom)
    return Plan(origin, conjunction(view.residuals_within([origin])), tuple(steps))


def step_to(view: View, bound: Sequence[Atom], atom: Atom) -> PlanStep:
    """The step that adds an atom when these are there."""
    return _step_to(view, tuple(bound), atom)


@lru_cache(maxsize=4096)
def _step_to(view: View, bound: tuple[Atom, ...], atom: Atom) -> PlanStep:
    before = view.residuals_within(bound)
    new = tuple(r for r in view.residuals_within([*bound, atom]) if r not in before)
    return PlanStep(atom, _links_between(view, bound, atom), conjunction(new))


def _next_atom(view: View, atoms: Sequence[Atom], origin: Atom, bound: Sequence[Atom]) -> Atom:
    """The nearest linked atom on the left; when there is none, the nearest one on the right."""
    linked = [a for a in atoms if a not in bound and _links_between(view, bound, a)]
    left = [atom for atom in linked if atom.index < origin.index]
    return left[-1] if left else linked[0]


def _links_between(view: View, bound: Sequence[Atom], atom: Atom) -> tuple[tuple[str, str], ...]:
    there = {other.index: other for other in bound}
    ends = (link.seen_from(atom.index) for link in view.links)
    return tuple(
        (there[index].qualified(column), own)
        for (index, column), own in (end for end in ends if end is not None)
        if index in there
    )
