"""Advice about a view: what has to be stored so that no source is asked, and why.

It is computed from the view and the catalog, and rests on what they declare (`relied_on`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from protocols.analysis.wording import listed
from protocols.selfmaintenance.auxiliary import AuxiliaryViews, auxiliary_views, needing
from protocols.selfmaintenance.dependence import dep, dep_plus, root
from protocols.selfmaintenance.joingraph import JoinGraph, Vertex, selection_columns
from protocols.selfmaintenance.keptas import kept_as
from protocols.selfmaintenance.language import select_project_join
from protocols.selfmaintenance.maintaining import MaintenanceExpression, maintenance_expressions
from protocols.selfmaintenance.need import passed
from protocols.selfmaintenance.rules import Change, WithAuxiliaryViews, WithView
from protocols.selfmaintenance.sizes import Sizes, sizes_of, total
from protocols.selfmaintenance.statement import alternative, statement
from protocols.views.catalog import Catalog
from protocols.views.sql import parse_view
from protocols.views.statistics import Statistics
from protocols.views.view import View

_CHANGES: dict[Change, str] = {
    "insertions": "insertions into",
    "deletions": "deletions from",
    "updates": "updates of",
}


@dataclass(frozen=True)
class StoredPart:
    """The stored part of a relation, or of a circle of relations."""

    vertex: Vertex
    keep: Literal["auxiliary", "none"]
    because: str
    #: Its CREATE VIEW; None if nothing of its own is stored.
    sql: str | None
    #: The statements of the other form that appendix B leaves the choice of.
    instead: tuple[str, ...]
    #: The same rows as an inner join, a view that can be kept.
    kept_as: View | None
    sizes: Sizes | None

    @property
    def relations(self) -> str:
        return " + ".join(str(atom.relation) for atom in self.vertex.atoms)


@dataclass(frozen=True)
class Advice:
    """Everything that is advised about a view."""

    view: View
    #: In an order in which their statements can be run.
    parts: tuple[StoredPart, ...]
    #: How each kind of change reaches the view.
    expressions: tuple[MaintenanceExpression, ...]
    relied_on: tuple[str, ...]
    not_relied_on: tuple[str, ...]
    #: What would make less necessary.
    hints: tuple[str, ...]
    total: Sizes | None

    def to_json(self) -> dict[str, Any]:
        whole = self.total
        return {
            "view": self.view.name,
            "relations": [_part_json(part) for part in self.parts],
            "base_rows": whole and whole.base,
            "local_rows": whole and whole.local,
            "auxiliary_rows": whole and whole.auxiliary,
            "maintenance": [
                {"relation": e.vertex, "change": e.change, "expression": e.text}
                for e in self.expressions
            ],
            "relied_on": list(self.relied_on),
            "not_relied_on": list(self.not_relied_on),
            "hints": list(self.hints),
        }


def advise(
    name: str,
    sql: str,
    catalog: Catalog,
    statistics: Mapping[str, Statistics] | None = None,
    together: Collection[Collection[str]] = (),
) -> Advice:
    """Finds the advice for a view.

    WrongUse if the view uses SQL that the paper does not cover.
    """
    view = select_project_join(parse_view(name, sql, catalog))
    found = auxiliary_views(view, catalog.foreign_keys, together)
    expressions = maintenance_expressions(found)
    known = statistics or {}
    sizes = sizes_of(found, known)
    order = (*found.views, *([found.not_needed] if found.not_needed else []))
    return Advice(
        view,
        tuple(_part(vertex, found, expressions, sizes[vertex]) for vertex in order),
        expressions,
        tuple(_relied_on(found.graph)),
        tuple(_not_relied_on(found.graph)),
        tuple(_hints(found)),
        total(sizes, found, known),
    )


def _part(
    name: str,
    found: AuxiliaryViews,
    expressions: Collection[MaintenanceExpression],
    sizes: Sizes | None,
) -> StoredPart:
    vertex = found.graph.vertex(name)
    if name == found.not_needed:
        return StoredPart(vertex, "none", _superfluous(name, found.graph), None, (), None, sizes)
    if name in found.same_as:
        same = found.views[found.same_as[name]].name
        because = f"the rows of {same}, which serves both"
        return StoredPart(vertex, "auxiliary", because, None, (), None, sizes)
    return StoredPart(
        vertex,
        "auxiliary",
        f"for {listed(list(_uses(name, found.graph, expressions)))}",
        statement(name, found),
        alternative(name, found),
        kept_as(name, found),
        sizes,
    )


def _superfluous(name: str, graph: JoinGraph) -> str:
    others = sorted(graph.names - {name})
    if not others:
        return "its changes alone tell how the view changes"
    return (
        "it references all others, so a row newly inserted into one of them joins with none of its"
        " rows, and no changed row has to be located in the view through it"
    )


def _uses(
    name: str, graph: JoinGraph, expressions: Collection[MaintenanceExpression]
) -> Iterator[str]:
    """The changes of other relations that need its rows."""
    for each in expressions:
        match each.form:
            case WithAuxiliaryViews(others) if name in others:
                yield f"{_CHANGES[each.change]} {each.vertex}"
            case WithView(way) if name in passed(way):
                yield f"{_CHANGES[each.change]} {each.vertex}"
    if any(name == vertex.name and len(vertex.atoms) > 1 for vertex in graph.vertices):
        lost = [alias for alias in needing(name, graph) if alias not in graph.preserved]
        yield from (f"deletions from and updates of {alias}" for alias in lost)


# -- what it rests on ------------------------------------------------------------------------------


def _relied_on(graph: JoinGraph) -> Iterator[str]:
    for relation in graph.view.relations:
        yield f"({', '.join(relation.all_keys[0])}) is a key of {relation}"
    used = {
        str(edge.reference): edge.reference
        for edge in graph.edges
        if edge.reference is not None and edge.parent in dep(edge.child, graph)
    }
    for text, key in used.items():
        ends = f"{key.child.source} and {key.parent.source}"
        yield (
            text
            if key.within_source
            else (f"{text}, and {ends} commit together: each transaction over both is a global one")
        )
    for vertex in graph.vertices:
        for atom in vertex.atoms:
            fixed = sorted(selection_columns(atom, graph.view) - set(atom.relation.key))
            if vertex.updates != "exposed" and fixed:
                yield f"modifications of {atom.relation} never change {listed(fixed)}"


def _not_relied_on(graph: JoinGraph) -> Iterator[str]:
    for key in graph.not_relied_on:
        if key.within_source:
            yield (
                f"{key}: it does not reference the key of {key.parent}, so a transaction may put"
                " another row in the place of the one that is referenced"
            )
            continue
        ends = f"{key.child.source},{key.parent.source}"
        yield (
            f"{key}: it leads to another source, and need not hold for what has been delivered so"
            f" far, since a row may arrive before the one that it references. If the two commit"
            f" together, in global transactions, say so: --together {ends}"
        )


def _hints(found: AuxiliaryViews) -> Iterator[str]:
    graph = found.graph
    for edge in graph.edges:
        parent = graph.vertex(edge.parent)
        if edge.reference is not None and parent.updates == "exposed":
            atom = parent.atoms[0]
            columns = sorted(atom.relation.modifiable & selection_columns(atom, graph.view))
            yield (
                f"if modifications of {atom.relation} never change {listed(columns)}, declare that"
                f' ("updates"): then less of {edge.child} has to be stored'
            )
    top = root(graph)
    for alias in needing(top, graph) if top is not None and top != found.not_needed else ():
        atom = next(a for vertex in graph.vertices for a in vertex.atoms if a.alias == alias)
        key = listed([f"{alias}.{column}" for column in atom.relation.all_keys[0]])
        yield f"with {key} in the SELECT list, changes of {alias} would not need {top}"
    if top is None and len(graph.vertices) > 1:
        most = max(graph.names, key=lambda name: (len(dep_plus(name, graph)), name))
        lacking = sorted(graph.names - {most} - dep_plus(most, graph))
        yield (
            f"{most} depends on all relations but {listed(lacking)}; with foreign keys that lead"
            f" there, nothing of {most} would have to be stored for insertions"
        )


def _part_json(part: StoredPart) -> dict[str, Any]:
    sizes = part.sizes
    return {
        "relation": part.relations,
        "alias": part.vertex.name,
        "updates": part.vertex.updates,
        "keep": part.keep,
        "because": part.because,
        "sql": part.sql,
        "instead": list(part.instead),
        "kept_as": part.kept_as and part.kept_as.sql,
        "base_rows": sizes and sizes.base,
        "local_rows": sizes and sizes.local,
        "rows": sizes and sizes.auxiliary,
    }
