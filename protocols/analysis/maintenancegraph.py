"""The terms that an update of one relation touches, and how (Larson and Zhou, 3.1 and 6.2).

    directly     the relation is in the term: rows of it come or go. These changes are the *primary
                 delta*
    indirectly   it is not, but it is in a parent: rows of the term become orphans or cease to be.
                 These changes are the *secondary delta*
    not at all   otherwise; such terms are left out

Foreign keys make the graph smaller. A parent that was just inserted, or that may be deleted, has no
children. So a term in which it is joined with a child on the key is not touched after all, and
neither is an indirect term that is left without a direct parent.

That holds for insertions and deletions, not for a modification that is carried out as both. In a
transaction that inserts parent and child, the parent has to come first, so that it meets the
children of before; in one that deletes both, the child has to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from protocols.analysis.foreignkeys import joined_children
from protocols.analysis.normalform import NormalForm, Term
from protocols.analysis.subsumption import subsumption_graph
from protocols.analysis.wording import listed
from protocols.errors import WrongUse
from protocols.views.catalog import ForeignKey


@dataclass(frozen=True)
class Affected:
    """A term that the update touches, and its parents among these."""

    term: Term
    how: Literal["directly", "indirectly"]
    direct_parents: tuple[Term, ...]
    indirect_parents: tuple[Term, ...]

    def __str__(self) -> str:
        if self.how == "directly":
            return f"{self.term.name} directly"
        parents = listed([parent.name for parent in self.direct_parents])
        return f"{self.term.name} indirectly, through {parents}"


@dataclass(frozen=True)
class MaintenanceGraph:
    """The terms that an update of one alias touches, those with the most aliases first."""

    updated: str
    affected: tuple[Affected, ...]

    @property
    def direct(self) -> tuple[Affected, ...]:
        return tuple(each for each in self.affected if each.how == "directly")

    @property
    def indirect(self) -> tuple[Affected, ...]:
        """From large to small, the order in which their orphans have to be computed."""
        return tuple(each for each in self.affected if each.how == "indirectly")

    @cached_property
    def edges(self) -> tuple[tuple[Term, Term], ...]:
        return tuple(
            (parent, each.term)
            for each in self.affected
            for parent in each.direct_parents + each.indirect_parents
        )

    def __str__(self) -> str:
        if not self.affected:
            return f"an update of {self.updated} touches no term"
        return (
            f"an update of {self.updated} touches {listed([str(each) for each in self.affected])}"
        )


def maintenance_graph(form: NormalForm, updated: str) -> MaintenanceGraph:
    """The graph for any update of an alias."""
    if updated not in form.aliases:
        raise WrongUse(f"there is no alias {updated!r}; choose one of: {', '.join(form.aliases)}")
    graph = subsumption_graph(form)
    affected = []
    for term in form.terms:
        parents = graph.parents(term)
        direct = tuple(parent for parent in parents if updated in parent.sources)
        if updated in term.sources:
            affected.append(Affected(term, "directly", direct, ()))
        elif direct:
            affected.append(Affected(term, "indirectly", direct, parents))
    return _within(MaintenanceGraph(updated, tuple(affected)))


def reduced(
    graph: MaintenanceGraph, form: NormalForm, foreign_keys: Iterable[ForeignKey]
) -> MaintenanceGraph:
    """The graph for insertions and deletions, less what foreign keys rule out (Theorem 3)."""
    keys = tuple(foreign_keys)

    def has_a_child(term: Term) -> bool:
        known = {a: r for a, r in form.known_relations.items() if a in term.sources}
        return bool(joined_children(graph.updated, known, term.conditions, keys))

    kept = [
        each for each in graph.affected if each.how == "indirectly" or not has_a_child(each.term)
    ]
    direct = {each.term for each in kept if each.how == "directly"}
    kept = [e for e in kept if e.how == "directly" or direct & set(e.direct_parents)]
    return _within(MaintenanceGraph(graph.updated, tuple(kept)))


def _within(graph: MaintenanceGraph) -> MaintenanceGraph:
    """The graph without parents that have no node in it; direct and indirect ones are separate."""
    direct = {each.term for each in graph.direct}
    indirect = {each.term for each in graph.indirect}
    return MaintenanceGraph(
        graph.updated,
        tuple(
            replace(
                each,
                direct_parents=tuple(p for p in each.direct_parents if p in direct),
                indirect_parents=tuple(p for p in each.indirect_parents if p in indirect),
            )
            for each in graph.affected
        ),
    )
