"""Auxiliary views as views of the product: inner joins, which any protocol keeps.

A semijoin along a foreign key meets one row, so it can be written as a join (section 5), and A_R is
R joined with everything that it depends on, showing columns of R only. A relation that R depends on
in two ways is joined twice: the two rows need not be the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from protocols.algebra.expressions import (
    Column,
    Comparison,
    Condition,
    columns_of,
    conjunction,
    renamed,
)
from protocols.selfmaintenance.auxiliary import AuxiliaryView, AuxiliaryViews, own_column
from protocols.selfmaintenance.sqltext import condition_text, quoted, relation_text
from protocols.views.view import Atom, Link, OutputColumn, View

#: Column `alias.column` → its relation's occurrence, and its name there.
_Places: TypeAlias = Mapping[str, tuple[Atom, str]]


def kept_as(vertex: str, found: AuxiliaryViews) -> View:
    """The auxiliary view of a vertex as a view over the sources' relations."""
    own = found.views[vertex]
    joined = _Joined(found)
    joined.add(own)
    conditions = list(dict.fromkeys(joined.conditions))
    places = {a.qualified(c): (a, c) for a in joined.atoms for c in a.relation.column_names}
    across = [c for c in conditions if len(_read(c, places)) > 1]
    links = {c: link for c in across if (link := _link(c, places)) is not None}
    used = {*own.columns, *(name for each in across for name in columns_of(each))}
    names = _shown_names(own)
    return View(
        own.name,
        _sql(joined.atoms, names, conditions, places),
        tuple(_narrowed(atom, used, conditions, places) for atom in joined.atoms),
        tuple(links.values()),
        tuple(c for c in across if c not in links),
        tuple(_output(name, column, places) for column, name in names.items()),
    )


@dataclass
class _Joined:
    """The occurrences of relations that are joined, and the conditions on them."""

    found: AuxiliaryViews
    atoms: list[Atom] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def add(self, view: AuxiliaryView) -> Mapping[str, str]:
        """Adds an auxiliary view with all that it is semijoined with; its columns → their names."""
        names: dict[str, str] = {}
        for atom in view.vertex.atoms:
            fresh = replace(atom, alias=self._unused(atom.alias), index=len(self.atoms))
            self.atoms.append(fresh)
            columns = atom.relation.column_names
            names.update({atom.qualified(c): fresh.qualified(c) for c in columns})
        self.conditions += [renamed(each, names.__getitem__) for each in view.conditions]
        for edge in view.semijoins:
            theirs = self.add(self.found.views[edge.parent])
            pairs = [(Column(names[b]), Column(theirs[a])) for b, a in edge.on]
            self.conditions += [Comparison(one, "=", other) for one, other in pairs]
        return names

    def _unused(self, alias: str) -> str:
        taken = {atom.alias for atom in self.atoms}
        numbered = (f"{alias}_{number}" for number in range(2, len(taken) + 3))
        return alias if alias not in taken else next(a for a in numbered if a not in taken)


def _read(condition: Condition, places: _Places) -> set[Atom]:
    return {places[name][0] for name in columns_of(condition)}


def _link(condition: Condition, places: _Places) -> Link | None:
    match condition:
        case Comparison(Column(one), "=", Column(other)):
            (left, ours), (right, theirs) = places[one], places[other]
            if left.relation.type_of(ours) == right.relation.type_of(theirs):
                return Link((left.index, ours), (right.index, theirs))
    return None


def _narrowed(atom: Atom, used: set[str], conditions: list[Condition], places: _Places) -> Atom:
    """The occurrence with its used columns and its own conditions."""
    first = atom.index == 0
    # A condition on constants is one of the first relation.
    local = [c for c in conditions if (read := _read(c, places)) == {atom} or (first and not read)]
    own = tuple(renamed(each, lambda name: own_column(name, atom)) for each in local)
    columns = tuple(c for c in atom.relation.column_names if atom.qualified(c) in used)
    return replace(atom, columns=columns, condition=conjunction(own))


def _shown_names(view: AuxiliaryView) -> dict[str, str]:
    """Column `alias.column` → its name in the auxiliary view."""
    single = len(view.vertex.atoms) == 1
    columns = [(a, c) for a in view.vertex.atoms for c in a.relation.column_names]
    return {
        atom.qualified(c): c if single else f"{atom.alias}_{c}"
        for atom, c in columns
        if atom.qualified(c) in view.columns
    }


def _output(name: str, column: str, places: _Places) -> OutputColumn:
    atom, own = places[column]
    return OutputColumn(name, column, atom.relation.type_of(own))


def _sql(
    atoms: list[Atom], names: Mapping[str, str], conditions: list[Condition], places: _Places
) -> str:
    def named(column: str) -> str:
        atom, own = places[column]
        return f"{quoted(atom.alias)}.{quoted(own)}"

    shown = ", ".join(f"{named(column)} AS {quoted(name)}" for column, name in names.items())
    tables = ", ".join(f"{relation_text(a.relation)} AS {quoted(a.alias)}" for a in atoms)
    lines = [f"SELECT {shown}", f"FROM {tables}"]
    if conditions:
        lines.append("WHERE " + " AND\n      ".join(condition_text(c, named) for c in conditions))
    return "\n".join(lines)
