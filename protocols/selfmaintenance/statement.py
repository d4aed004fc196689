"""Auxiliary views as SQL statements, as the paper prints them.

    CREATE VIEW aux_line AS
    SELECT line_id, sale_id, item_id, sales_price
    FROM shop.line
    WHERE item_id IN (SELECT item_id FROM aux_item)

Where the appendix leaves a choice, `statement` has one form and `alternative` the other:

    a circle of foreign keys (B.2)   the join of its relations; or each of them, semijoined with it
    two occurrences of a relation    a view each; or one over both, with either condition and all
    (B.3)                            columns
"""

from collections.abc import Iterable, Iterator

from protocols.algebra.expressions import Condition, columns_of
from protocols.selfmaintenance.auxiliary import AuxiliaryView, AuxiliaryViews, own_column
from protocols.selfmaintenance.joingraph import Edge, Vertex
from protocols.selfmaintenance.sqltext import (
    condition_text,
    quoted,
    relation_text,
    tuple_text,
)
from protocols.views.view import Atom


def statement(vertex: str, found: AuxiliaryViews) -> str:
    """CREATE VIEW of the auxiliary view of a vertex."""
    view = found.views[vertex]
    atoms = view.vertex.atoms
    if len(atoms) == 1:
        shown = [quoted(own_column(column, atoms[0])) for column in view.columns]
        return _create(view.name, shown, [relation_text(atoms[0].relation)], _tests(view, found))
    shown = [f"{_qualified(c, atoms)} AS {stored_name(c, view)}" for c in view.columns]
    tables = [f"{relation_text(atom.relation)} AS {quoted(atom.alias)}" for atom in atoms]
    return _create(view.name, shown, tables, _tests(view, found))


def alternative(vertex: str, found: AuxiliaryViews) -> tuple[str, ...]:
    """The statements of the other form, if there is one; for a pair with its later occurrence."""
    view = found.views[vertex]
    if len(view.vertex.atoms) > 1:
        return tuple(_members(view))
    earlier = _earlier_occurrence(view, found)
    return () if earlier is None else (_both(earlier, view, found),)


def stored_name(column: str, view: AuxiliaryView) -> str:
    """The name of a column of the view in its auxiliary view, in SQL."""
    atom = _owner(column, view.vertex.atoms)
    own = own_column(column, atom)
    return quoted(own if len(view.vertex.atoms) == 1 else f"{atom.alias}_{own}")


def _create(name: str, shown: Iterable[str], tables: Iterable[str], tests: list[str]) -> str:
    lines = [
        f"CREATE VIEW {quoted(name)} AS",
        f"SELECT {', '.join(shown)}",
        f"FROM {', '.join(tables)}",
    ]
    if tests:
        lines.append("WHERE " + " AND\n      ".join(tests))
    return "\n".join(lines)


def _tests(view: AuxiliaryView, found: AuxiliaryViews) -> list[str]:
    conditions = [_condition(each, view) for each in view.conditions]
    return [*conditions, *(_semijoin(edge, view, found) for edge in view.semijoins)]


def _condition(condition: Condition, view: AuxiliaryView) -> str:
    return condition_text(condition, lambda column: _named(column, view))


def _semijoin(edge: Edge, view: AuxiliaryView, found: AuxiliaryViews) -> str:
    parent = found.views[found.same_as.get(edge.parent, edge.parent)]
    ours = [_named(b, view) for b, _ in edge.on]
    theirs = [_stored_in(parent, a, found.graph.vertex(edge.parent)) for _, a in edge.on]
    return f"{tuple_text(ours)} IN (SELECT {', '.join(theirs)} FROM {quoted(parent.name)})"


def _stored_in(view: AuxiliaryView, column: str, vertex: Vertex) -> str:
    """The name of a vertex's column in the auxiliary view that serves it (see `same_as`)."""
    owner = _owner(column, vertex.atoms)
    counterpart = view.vertex.atoms[vertex.atoms.index(owner)]
    return stored_name(counterpart.qualified(own_column(column, owner)), view)


def _named(column: str, view: AuxiliaryView) -> str:
    """A column in the statement of an auxiliary view."""
    atoms = view.vertex.atoms
    return quoted(own_column(column, atoms[0])) if len(atoms) == 1 else _qualified(column, atoms)


def _qualified(column: str, atoms: tuple[Atom, ...]) -> str:
    atom = _owner(column, atoms)
    return f"{quoted(atom.alias)}.{quoted(own_column(column, atom))}"


def _owner(column: str, atoms: tuple[Atom, ...]) -> Atom:
    """The relation of a column; of two aliases that fit, the longer one."""
    fitting = [atom for atom in atoms if column.startswith(f"{atom.alias}.")]
    return max(fitting, key=lambda atom: len(atom.alias))


def _members(view: AuxiliaryView) -> Iterator[str]:
    """Each relation of a circle, semijoined with their join."""
    for atom in view.vertex.atoms:
        own = [c for c in view.columns if _owner(c, view.vertex.atoms) is atom]
        key = [atom.qualified(column) for column in atom.relation.all_keys[0]]
        ours = tuple_text([quoted(own_column(column, atom)) for column in key])
        theirs = ", ".join(stored_name(column, view) for column in key)
        shown = [quoted(own_column(column, atom)) for column in own]
        test = f"{ours} IN (SELECT {theirs} FROM {quoted(view.name)})"
        yield _create(f"aux_{atom.alias}", shown, [relation_text(atom.relation)], [test])


def _earlier_occurrence(view: AuxiliaryView, found: AuxiliaryViews) -> AuxiliaryView | None:
    """Another auxiliary view over the same relation that is stored beside this one."""
    relation = view.vertex.atoms[0].relation
    for name, other in found.views.items():
        if other is view:
            return None
        single = len(other.vertex.atoms) == 1 and other.vertex.atoms[0].relation == relation
        if single and name not in found.same_as and view.vertex.name not in found.same_as:
            return other
    return None


def _both(one: AuxiliaryView, other: AuxiliaryView, found: AuxiliaryViews) -> str:
    """One view for two occurrences: the rows of either, and all columns of both.

    The columns of conditions that only one of them has are shown as well. Without them, which the
    appendix does not mention, nobody could tell whose row it is.
    """
    relation = one.vertex.atoms[0].relation
    tests = [_tests(view, found) for view in (one, other)]
    wanted = {own for view in (one, other) for own in _told_apart_by(view, tests)}
    shown = [quoted(c) for c in relation.column_names if c in wanted]
    either = [f"({' AND '.join(tests[0])}) OR ({' AND '.join(tests[1])})"] if all(tests) else []
    return _create(f"{one.name}_{other.vertex.name}", shown, [relation_text(relation)], either)


def _told_apart_by(view: AuxiliaryView, tests: list[list[str]]) -> Iterator[str]:
    """The columns of one of two occurrences, and those of the conditions that tell them apart."""
    (atom,) = view.vertex.atoms
    yield from (own_column(column, atom) for column in view.columns)
    shared = set(tests[0]) & set(tests[1])
    for condition in view.conditions:
        if _condition(condition, view) not in shared:
            yield from (own_column(column, atom) for column in columns_of(condition))
