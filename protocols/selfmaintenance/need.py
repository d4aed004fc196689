"""Need: how a changed row is found in the view (section 3 and appendix B.1).

A row of R_i is found by its key, if the view preserves it. If not, a child R_j may hold that key:
R_j joined with the changed row is found by its own key, or by that of a child of its own. The
relations on such a *way* from R_i are a need set of R_i. Without a way all other relations are
needed, to compute what the view derives from the row.

In a forest each relation has one parent edge at most, and so one need set. In general graphs there
are several; any of them will do, and the appendix finds them in three phases. Three places of it
cannot be taken literally:

- A vertex without a child and off all cycles remains "undefined" there. It needs all others, as in
  section 3.
- The need set of a node on a cycle, added to the other nodes of the cycle, does not lead to a node
  two steps away: for R1 -> R2 -> R3 -> R1 with the key of R1 in the view it makes {R1} a need set
  of R3, but rows of R1 do not hold the key of R3. It is {R2, R1}. Following the edges until nothing
  new is found is right on cycles and off them.
- Removing the need sets that contain the unique root must leave one.
"""

from collections.abc import Mapping
from typing import TypeAlias

from protocols.selfmaintenance.dependence import dependents, root
from protocols.selfmaintenance.joingraph import Edge, JoinGraph

#: From a relation to the one whose key the view preserves; each step leads to a child.
Way: TypeAlias = tuple[Edge, ...]


def need(name: str, graph: JoinGraph) -> frozenset[str]:
    """Need(R_i, G); if there are several need sets, a smallest one."""
    ways = need_sets(graph)[name]
    if not ways:
        return graph.names - {name}
    return passed(min(ways, key=len))


def need_0(graph: JoinGraph) -> dict[str, tuple[Way, ...]]:
    """The initial need sets.

    For a relation whose own key the view preserves, the empty set; for any other relation, none.
    """
    return {v.name: ((),) if graph.preserves(v.name) else () for v in graph.vertices}


def need_sets(graph: JoinGraph) -> Mapping[str, tuple[Way, ...]]:
    """The ways from each relation into the view, shortest first; none where all is needed."""
    found = need_0(graph)
    grown = True
    while grown:
        grown = False
        for edge in graph.edges:
            if graph.preserves(edge.parent):
                continue
            longer = [(edge, *way) for way in found[edge.child] if edge.parent not in passed(way)]
            kept = _least((*found[edge.parent], *longer))
            grown = grown or kept != found[edge.parent]
            found[edge.parent] = kept
    top = root(graph)
    return {name: _avoiding(top, ways) for name, ways in found.items()}


def passed(way: Way) -> frozenset[str]:
    """The need set of a way: the relations on it."""
    return frozenset(edge.child for edge in way)


def must_be_found(name: str, graph: JoinGraph) -> bool:
    """Whether deletions or updates of a relation ever have to be found in the view.

    The paper always does. But the rows that a deletion of R_i takes out of the view are gone
    already if R_i is in the Dep of some R_j: the foreign key says that the children of the row are
    deleted by the same transaction or an earlier one, and children go first. So only updates have
    to be found there, and ignorable ones do not.
    """
    return graph.vertex(name).updates != "ignorable" or not dependents(name, graph)


def _least(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """One way for each need set that contains no other one."""
    by_set = {passed(way): way for way in reversed(ways)}
    least = [way for names, way in by_set.items() if not any(other < names for other in by_set)]
    return tuple(sorted(least, key=lambda way: (len(way), [edge.child for edge in way])))


def _avoiding(top: str | None, ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """The ways that do not use the one relation that may turn out superfluous, if there are any."""
    without = tuple(way for way in ways if top not in passed(way))
    return without or ways
