"""Algorithm 3.1: the auxiliary views that make a view self-maintainable.

For each relation R_i of the view: if R_i depends on all others and is in no need set, nothing of it
is stored. Otherwise

    A_Ri = (π_P σ_S R_i) ⋉_C1 A_Rk1 ⋉_C2 ... ⋉_Cm A_Rkm        with Dep(R_i, G) = {R_k1, ..., R_km}

    P   the columns that the view preserves or joins on, and a key; if only ways of need sets lead
        through R_i, less will do: a key, and the columns that these are joined on
    S   the strictest local conditions
    C   the join along the foreign key

For relations that reference one another in a circle, A is the join of them all, or nothing (B.2).
The appendix says that insertions into such relations never change their join. They do, if one
transaction inserts a row into each; the new rows of the join are then made of new rows only.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from protocols.algebra.expressions import Condition, columns_of, renamed
from protocols.selfmaintenance.dependence import (
    coalesced,
    dep,
    parents_first,
    root,
)
from protocols.selfmaintenance.joingraph import (
    Edge,
    JoinGraph,
    Vertex,
    join_graph,
)
from protocols.selfmaintenance.need import must_be_found, need_sets, passed
from protocols.selfmaintenance.rules import CHANGES, WithAuxiliaryViews, WithView, form_of
from protocols.selfmaintenance.selection import local_conditions
from protocols.views.catalog import ForeignKey
from protocols.views.view import Atom, View


@dataclass(frozen=True)
class AuxiliaryView:
    """A_Ri; all columns are named `alias.column`."""

    name: str
    vertex: Vertex
    #: P
    columns: tuple[str, ...]
    #: S; of a circle also the conditions that join its relations.
    conditions: tuple[Condition, ...]
    #: Its semijoins with the auxiliary views of those that it depends on, one for each.
    semijoins: tuple[Edge, ...]


@dataclass(frozen=True)
class AuxiliaryViews:
    """The result of Algorithm 3.1 for a view."""

    #: The reduced join graph.
    graph: JoinGraph
    #: By vertex, parents first; without the relation of which nothing is stored.
    views: Mapping[str, AuxiliaryView]

    @property
    def not_needed(self) -> str | None:
        """The vertex of which nothing is stored."""
        return next(iter(self.graph.names - self.views.keys()), None)

    @cached_property
    def same_as(self) -> Mapping[str, str]:
        """Auxiliary views that are equal to an earlier one: vertex → that vertex (B.3)."""
        found: dict[str, str] = {}
        forms: dict[object, str] = {}
        for name, view in self.views.items():
            first = forms.setdefault(_form(view, self.graph, found), name)
            if first != name:
                found[name] = first
        return found


def auxiliary_views(
    view: View,
    foreign_keys: Collection[ForeignKey] = (),
    together: Collection[Collection[str]] = (),
) -> AuxiliaryViews:
    """Algorithm 3.1, with the extensions of appendix B."""
    graph = coalesced(join_graph(view, foreign_keys, together))
    superfluous = root(graph)
    if superfluous is not None and any(_needing(superfluous, graph)):
        superfluous = None
    names = _names(graph)
    return AuxiliaryViews(
        graph,
        {
            vertex: _auxiliary_view(names[vertex], graph.vertex(vertex), graph)
            for vertex in parents_first(graph)
            if vertex != superfluous
        },
    )


def needing(name: str, graph: JoinGraph) -> tuple[str, ...]:
    """The relations that have this vertex in their need set, by alias."""
    return tuple(_needing(name, graph))


def _needing(name: str, graph: JoinGraph) -> Iterator[str]:
    ways = need_sets(graph)
    for vertex in graph.vertices:
        if not must_be_found(vertex.name, graph):
            continue
        if vertex.name == name:
            yield from _lost_in(vertex, graph)
        elif not ways[vertex.name] or name in passed(ways[vertex.name][0]):
            yield from (atom.alias for atom in vertex.atoms)


def _lost_in(circle: Vertex, graph: JoinGraph) -> Iterator[str]:
    """The members of a circle whose rows are found only through their join with the others."""
    if len(circle.atoms) > 1:
        yield from (atom.alias for atom in circle.atoms if atom.alias not in graph.preserved)


def _auxiliary_view(name: str, vertex: Vertex, graph: JoinGraph) -> AuxiliaryView:
    view = graph.view
    inside = {atom.qualified(c) for atom in vertex.atoms for c in atom.relation.column_names}
    links = (*view.equalities, *view.residuals)
    within = tuple(each for each in links if columns_of(each) <= inside)
    outward = {column for each in links if each not in within for column in columns_of(each)}
    shown = {output.column for output in view.outputs}
    wanted = {*(shown | outward if _is_joined(vertex, graph) else ()), *_on_ways(graph)}
    for atom in vertex.atoms:
        wanted.update(map(atom.qualified, atom.relation.all_keys[0]))
    local = (each for atom in vertex.atoms for each in local_conditions(atom, view))
    return AuxiliaryView(
        name,
        vertex,
        tuple(c for a in vertex.atoms for c in _qualified_columns(a) if c in wanted),
        (*within, *dict.fromkeys(local)),
        tuple(_semijoins(vertex.name, graph)),
    )


def _is_joined(vertex: Vertex, graph: JoinGraph) -> bool:
    """Whether an expression joins all that the view has of a vertex with a change.

    A change of one relation of a circle becomes one of their join, before it goes any further.
    """
    forms = [form_of(v.name, change, graph) for v in graph.vertices for change in CHANGES]
    if len(vertex.atoms) > 1:
        forms += [form_of(vertex.name, change, graph) for change in ("deletions", "updates")]
        if any(isinstance(form, WithAuxiliaryViews) for form in forms[-2:]):
            return True
    return any(isinstance(f, WithAuxiliaryViews) and vertex.name in f.others for f in forms)


def _on_ways(graph: JoinGraph) -> Iterator[str]:
    """The columns that changes are joined on, on their ways into the view."""
    for name in graph.names:
        for change in CHANGES:
            match form_of(name, change, graph):
                case WithView(way, on):
                    yield from (column for edge in way for pair in edge.on for column in pair)
                    yield from (column for _, column in on)


def _qualified_columns(atom: Atom) -> list[str]:
    return [atom.qualified(column) for column in atom.relation.column_names]


def _semijoins(name: str, graph: JoinGraph) -> Iterator[Edge]:
    """An edge for each vertex that this one depends on, with the columns of all RI edges there."""
    depends = dep(name, graph)
    for parent in (vertex.name for vertex in graph.vertices if vertex.name in depends):
        ends = (name, parent)
        edges = [e for e in graph.edges if (e.child, e.parent) == ends and e.reference is not None]
        pairs = dict.fromkeys(pair for edge in edges for pair in edge.on)
        yield replace(edges[0], on=tuple(pairs))


def _names(graph: JoinGraph) -> dict[str, str]:
    """Vertex → the name of its auxiliary view: after the relation, unless it occurs twice."""
    relations = [atom.relation.name.lower() for atom in graph.view.atoms]
    if len(set(relations)) < len(relations):
        return {name: f"aux_{name}" for name in graph.names}
    called = {v.name: "_".join(atom.relation.name for atom in v.atoms) for v in graph.vertices}
    return {name: f"aux_{relation}" for name, relation in called.items()}


def _form(view: AuxiliaryView, graph: JoinGraph, same: Mapping[str, str]) -> object:
    """The form that two auxiliary views share if they hold the same rows."""

    def own(vertex: Vertex, column: str) -> str:
        return column if len(vertex.atoms) > 1 else own_column(column, vertex.atoms[0])

    def semijoin(edge: Edge) -> object:
        parent = graph.vertex(edge.parent)
        on = frozenset((own(view.vertex, b), own(parent, a)) for b, a in edge.on)
        return same.get(edge.parent, edge.parent), on

    return (
        view.vertex.atoms[0].relation if len(view.vertex.atoms) == 1 else view.vertex,
        frozenset(own(view.vertex, column) for column in view.columns),
        frozenset(renamed(each, lambda c: own(view.vertex, c)) for each in view.conditions),
        frozenset(map(semijoin, view.semijoins)),
    )


def own_column(column: str, atom: Atom) -> str:
    """The name of `alias.column` in its relation."""
    return column.removeprefix(f"{atom.alias}.")
