"""Auxiliary views as views of the product: inner joins, which any protocol keeps.

A semijoin along a foreign key meets one row, so it can be written as a join (section 5), and A_R is
R joined with everything that it depends on, showing columns of R only.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from protocols.algebra.expressions import (
    Column,
    Comparison,
    Condition,
    columns_of,
    conjunction,
    renamed,
)
from protocols.selfmaintenance.auxiliary import AuxiliaryView, AuxiliaryViews, own_column
from protocols.selfmaintenance.sqltext import (
    condition_text,
    quoted,
    relation_text,
)
from protocols.views.view import Atom, Link, OutputColumn, View


def kept_as(vertex: str, found: AuxiliaryViews) -> View:
    """The auxiliary view of a vertex as a view over the sources' relations."""
    own = found.views[vertex]
    parts = [own, *_depended_on(own, found)]
    atoms = sorted((a for part in parts for a in part.vertex.atoms), key=lambda atom: atom.index)
    conditions = list(dict.fromkeys(each for part in parts for each in _conditions(part)))
    of = {a.qualified(c): (a, c) for a in atoms for c in a.relation.column_names}
    local = {a: [c for c in conditions if _reads_only(c, a, of)] for a in atoms}
    across = [c for c in conditions if len({of[name][0] for name in columns_of(c)}) > 1]
    links = [link for c in across if (link := _link(c, atoms, of)) is not None]
    residuals = tuple(c for c in across if _link(c, atoms, of) is None)
    used = {*own.columns, *(name for each in across for name in columns_of(each))}
    return View(
        own.name,
        _sql(own, atoms, conditions, of),
        tuple(_narrowed(a, index, used, local[a]) for index, a in enumerate(atoms)),
        tuple(links),
        residuals,
        tuple(_outputs(own, of)),
    )


def _depended_on(view: AuxiliaryView, found: AuxiliaryViews) -> list[AuxiliaryView]:
    """The auxiliary views below it, directly and indirectly, each once."""
    below: dict[str, AuxiliaryView] = {}
    for edge in view.semijoins:
        parent = found.views[edge.parent]
        below[edge.parent] = parent
        below.update({each.vertex.name: each for each in _depended_on(parent, found)})
    return list(below.values())


def _conditions(view: AuxiliaryView) -> Iterator[Condition]:
    """Its own conditions, and those of its semijoins."""
    yield from view.conditions
    for edge in view.semijoins:
        yield from (Comparison(Column(b), "=", Column(a)) for b, a in edge.on)


def _reads_only(condition: Condition, atom: Atom, of: Mapping[str, tuple[Atom, str]]) -> bool:
    read = {of[name][0] for name in columns_of(condition)}
    # A condition on constants is one of the first relation.
    return read == {atom} or (not read and atom.index == min(a.index for a, _ in of.values()))


def _link(
    condition: Condition, atoms: list[Atom], of: Mapping[str, tuple[Atom, str]]
) -> Link | None:
    match condition:
        case Comparison(Column(one), "=", Column(other)):
            (left, ours), (right, theirs) = of[one], of[other]
            if left.relation.type_of(ours) == right.relation.type_of(theirs):
                return Link((atoms.index(left), ours), (atoms.index(right), theirs))
    return None


def _narrowed(atom: Atom, index: int, used: Collection[str], local: list[Condition]) -> Atom:
    columns = tuple(c for c in atom.relation.column_names if atom.qualified(c) in used)
    own = tuple(renamed(each, lambda name: own_column(name, atom)) for each in local)
    return replace(atom, index=index, columns=columns, condition=conjunction(own))


def _shown_names(view: AuxiliaryView, of: Mapping[str, tuple[Atom, str]]) -> dict[str, str]:
    """Column `alias.column` → its name in the auxiliary view."""
    single = len(view.vertex.atoms) == 1
    places = {name: of[name] for name in view.columns}
    return {n: own if single else f"{a.alias}_{own}" for n, (a, own) in places.items()}


def _outputs(view: AuxiliaryView, of: Mapping[str, tuple[Atom, str]]) -> Iterator[OutputColumn]:
    for column, name in _shown_names(view, of).items():
        atom, own = of[column]
        yield OutputColumn(name, column, atom.relation.type_of(own))


def _sql(
    view: AuxiliaryView,
    atoms: list[Atom],
    conditions: list[Condition],
    of: Mapping[str, tuple[Atom, str]],
) -> str:
    def named(column: str) -> str:
        atom, own = of[column]
        return f"{quoted(atom.alias)}.{quoted(own)}"

    shown = _shown_names(view, of).items()
    tables = ", ".join(f"{relation_text(a.relation)} AS {quoted(a.alias)}" for a in atoms)
    lines = [
        "SELECT " + ", ".join(f"{named(column)} AS {quoted(name)}" for column, name in shown),
        f"FROM {tables}",
    ]
    if conditions:
        tests = (condition_text(each, named) for each in conditions)
        lines.append("WHERE " + " AND\n      ".join(tests))
    return "\n".join(lines)
