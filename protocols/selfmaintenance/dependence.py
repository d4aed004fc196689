"""Dep, Dep+ (section 3), and the coalescing of circles of foreign keys (appendix B.2)."""

from collections.abc import Iterable
from dataclasses import replace

from protocols.selfmaintenance.joingraph import JoinGraph, UpdateKind, Vertex


def dep(name: str, graph: JoinGraph) -> frozenset[str]:
    """Dep(R_i, G): the parents along RI edges that do not have exposed updates.

    A row of R_i that has no partner in one of them now will never have one.
    """
    return frozenset(
        edge.parent
        for edge in graph.edges
        if edge.child == name
        and edge.reference is not None
        and graph.vertex(edge.parent).updates != "exposed"
    )


def dep_plus(name: str, graph: JoinGraph) -> frozenset[str]:
    """Dep+(R_i, G), the transitive closure of Dep."""
    found: set[str] = set()
    waiting = set(dep(name, graph))
    while waiting:
        found |= waiting
        waiting = {each for above in waiting for each in dep(above, graph)} - found
    return frozenset(found)


def dependents(name: str, graph: JoinGraph) -> tuple[str, ...]:
    """The vertices R_j with this one in Dep(R_j, G)."""
    return tuple(each.name for each in graph.vertices if name in dep(each.name, graph))


def root(graph: JoinGraph) -> str | None:
    """The vertex that depends on all others, if there is one: Dep+(R_i, G) = R - {R_i}."""
    reaching = (n.name for n in graph.vertices if graph.names - {n.name} == dep_plus(n.name, graph))
    return next(reaching, None)


def parents_first(graph: JoinGraph) -> tuple[str, ...]:
    """The vertices, each after those that it depends on (section 5.4); no circles are left."""
    return tuple(
        vertex.name
        for vertex in sorted(graph.vertices, key=lambda v: (_depth(v.name, graph), _place(v)))
    )


def coalesced(graph: JoinGraph) -> JoinGraph:
    """The reduced graph: relations that depend on one another become one vertex.

    The appendix coalesces what is strongly connected by RI edges. An edge to a relation with
    exposed updates is in no Dep, so it closes no circle here.
    """
    circles = dict.fromkeys(_circle(vertex.name, graph) for vertex in graph.vertices)
    whole = {member: _joined(circle, graph) for circle in circles for member in circle}
    edges = (
        replace(edge, child=whole[edge.child].name, parent=whole[edge.parent].name)
        for edge in graph.edges
    )
    return replace(
        graph,
        vertices=tuple(dict.fromkeys(whole[vertex.name] for vertex in graph.vertices)),
        edges=tuple(edge for edge in edges if edge.child != edge.parent),
    )


def _circle(name: str, graph: JoinGraph) -> tuple[str, ...]:
    """The vertices that depend on this one, and it on them; itself included."""
    own = dep_plus(name, graph)
    return tuple(
        other.name
        for other in graph.vertices
        if other.name == name or (other.name in own and name in dep_plus(other.name, graph))
    )


def _joined(circle: tuple[str, ...], graph: JoinGraph) -> Vertex:
    vertices = [graph.vertex(name) for name in circle]
    if len(vertices) == 1:
        return vertices[0]
    atoms = tuple(atom for vertex in vertices for atom in vertex.atoms)
    return Vertex(" + ".join(circle), atoms, _strongest(vertex.updates for vertex in vertices))


def _strongest(kinds: Iterable[UpdateKind]) -> UpdateKind:
    """The kind of updates of a circle; none of its members is exposed."""
    return "protected" if "protected" in set(kinds) else "ignorable"


def _depth(name: str, graph: JoinGraph) -> int:
    return max((1 + _depth(above, graph) for above in dep(name, graph)), default=0)


def _place(vertex: Vertex) -> int:
    return vertex.atoms[0].index
