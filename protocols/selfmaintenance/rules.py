"""Rules 4.1, 4.2 and 4.3: what is left to be computed of each kind of change (section 4).

Insertions, deletions and updates in place are propagated separately, exposed updates as deletions
of the old rows and insertions of the new ones. Rule 4.1 leaves nothing of insertions into a
relation that others depend on. Rules 4.2 and 4.3 join a change with V along a way of its need set.
What is left joins the change with all other relations.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.selfmaintenance.dependence import dependents
from protocols.selfmaintenance.joingraph import JoinGraph
from protocols.selfmaintenance.need import Way, must_be_found, need_sets

Change: TypeAlias = Literal["deletions", "updates", "insertions"]
CHANGES: tuple[Change, ...] = ("deletions", "updates", "insertions")


@dataclass(frozen=True)
class Empty:
    """The change has no effect on the view."""

    because: str


@dataclass(frozen=True)
class WithView:
    """π V ⋈ A ⋈ ... ⋈ change: the rows of V that are derived from the changed rows."""

    way: Way
    #: (column of V, key column of the last relation of the way)
    on: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class WithAuxiliaryViews:
    """π(change ⋈ all other auxiliary views)."""

    others: tuple[str, ...]


Form: TypeAlias = Empty | WithView | WithAuxiliaryViews


def form_of(name: str, change: Change, graph: JoinGraph) -> Form:
    """The effect of a kind of change to a vertex on the view."""
    others = WithAuxiliaryViews(tuple(v.name for v in graph.vertices if v.name != name))
    children = dependents(name, graph)
    if change == "insertions":
        if children:
            return Empty(f"Rule 4.1: rows of {children[0]} that are there reference other rows")
        return others
    kind = graph.vertex(name).updates
    if change == "updates" and kind == "ignorable":
        return Empty("they change nothing that the view shows or has a condition on")
    if change == "updates" and kind == "exposed":
        return Empty("as deletions of the old rows and insertions of the new ones")
    if not must_be_found(name, graph):
        return Empty(f"the rows of {children[0]} that reference them are deleted before")
    ways = need_sets(graph)[name]
    return WithView(ways[0], _shown(ways[0], name, graph)) if ways else others


def _shown(way: Way, name: str, graph: JoinGraph) -> tuple[tuple[str, str], ...]:
    """The columns on which V is joined with the last relation of a way."""
    last = graph.vertex(way[-1].child if way else name)
    return next(graph.preserved[a.alias] for a in last.atoms if a.alias in graph.preserved)
