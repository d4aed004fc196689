"""The maintenance expressions of a view over its auxiliary views (section 4).

    ∇R  ΔR  μR     the rows of R that are deleted, inserted, and updated in place (old and new)
    A_R            the auxiliary view of R

Exposed updates are deletions of the old rows and insertions of the new ones. A transaction is
propagated one relation after the other, each expression over the state before its own change:

    deletions      children before parents, see `need.must_be_found`
    updates        in any order
    insertions     parents before children, as Rule 4.1 assumes

Each expression has one of three forms. Rule 4.1 leaves nothing of insertions into a relation that
others depend on. Rules 4.2 and 4.3 join a change with V along a way of its need set. What is left
joins the change with all other auxiliary views.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.selfmaintenance.auxiliary import AuxiliaryViews, own_column
from protocols.selfmaintenance.dependence import dependents, parents_first
from protocols.selfmaintenance.joingraph import JoinGraph
from protocols.selfmaintenance.need import Way, must_be_found, need_sets

Change: TypeAlias = Literal["deletions", "updates", "insertions"]
_SYMBOLS: dict[Change, str] = {"deletions": "∇", "updates": "μ", "insertions": "Δ"}


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


@dataclass(frozen=True)
class MaintenanceExpression:
    """The effect of one kind of change to one relation (or circle of relations) on the view."""

    vertex: str
    change: Change
    form: Form
    #: The text of the paper, with the names of the auxiliary views.
    text: str

    def __str__(self) -> str:
        return self.text


def maintenance_expressions(found: AuxiliaryViews) -> tuple[MaintenanceExpression, ...]:
    """All expressions, in the order in which they are evaluated for a transaction."""
    upwards = parents_first(found.graph)
    downwards = tuple(reversed(upwards))
    return (
        *(_expression(name, "deletions", found) for name in downwards),
        *(_expression(name, "updates", found) for name in downwards),
        *(_expression(name, "insertions", found) for name in upwards),
    )


def _expression(name: str, change: Change, found: AuxiliaryViews) -> MaintenanceExpression:
    form = _form(name, change, found.graph)
    return MaintenanceExpression(name, change, form, _text(name, change, form, found))


def _form(name: str, change: Change, graph: JoinGraph) -> Form:
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


# -- as text ---------------------------------------------------------------------------------------


def _text(name: str, change: Change, form: Form, found: AuxiliaryViews) -> str:
    changed = f"{_SYMBOLS[change]}{name}" if " " not in name else f"{_SYMBOLS[change]}({name})"
    match form:
        case Empty(because):
            return f"none: {because}"
        case WithView(way, on):
            return f"π(V {''.join(_steps(way, on, found))}{changed})"
        case WithAuxiliaryViews(others):
            return f"π({' ⋈ '.join([changed, *(_stored(other, found) for other in others)])})"


def _steps(way: Way, on: tuple[tuple[str, str], ...], found: AuxiliaryViews) -> Iterator[str]:
    """`⋈[key] A_S ⋈[key] A_T ⋈[key] `, from V towards the change."""
    yield f"⋈[{', '.join(name for name, _ in on) or 'all rows'}] "
    for edge in reversed(way):
        columns = (_own(a, edge.parent, found.graph) for _, a in edge.on)
        yield f"{_stored(edge.child, found)} ⋈[{', '.join(columns)}] "


def _stored(name: str, found: AuxiliaryViews) -> str:
    return found.views[found.same_as.get(name, name)].name


def _own(column: str, vertex: str, graph: JoinGraph) -> str:
    atoms = graph.vertex(vertex).atoms
    return own_column(column, atoms[0]) if len(atoms) == 1 else column
