"""The maintenance expressions of a view over its auxiliary views (section 4).

    ∇R  ΔR  μR     the rows of R that are deleted, inserted, and updated in place (old and new)
    A_R            the auxiliary view of R

Exposed updates are deletions of the old rows and insertions of the new ones. A transaction is
propagated one relation after the other, each expression over the state before its own change:

    deletions      children before parents, see `need.must_be_found`
    updates        in any order
    insertions     parents before children, as Rule 4.1 assumes

`rules` says what is left of each expression. Here it is put into the words of the paper, with
auxiliary views in the place of relations.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from protocols.selfmaintenance.auxiliary import AuxiliaryViews, own_column
from protocols.selfmaintenance.dependence import parents_first
from protocols.selfmaintenance.joingraph import JoinGraph
from protocols.selfmaintenance.need import Way
from protocols.selfmaintenance.rules import (
    Change,
    Empty,
    Form,
    WithAuxiliaryViews,
    WithView,
    form_of,
)

_SYMBOLS: dict[Change, str] = {"deletions": "∇", "updates": "μ", "insertions": "Δ"}


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
    form = form_of(name, change, found.graph)
    return MaintenanceExpression(name, change, form, _text(name, change, form, found))


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
