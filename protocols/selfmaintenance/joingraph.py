"""The join graph of a view (section 3), with the kind of updates of each relation (section 2).

There is an edge from R_i to R_j if the view joins a column B of R_i with a key A of R_j: R_i is the
child, and each row of it meets at most one row of the parent R_j. The edge is annotated with *RI*
if a foreign key says that each row meets one. Several occurrences of a relation are vertices of
their own, under their aliases (appendix B.3).

A foreign key counts only if

- it holds on every prefix of the order of delivery: within one source, or between sources that are
  declared to commit together, so that transactions over both become visible at one position;
- it references the `key` that tells rows apart. A transaction may delete a row and insert another
  one with the same value of a further key, and rows that were there then meet an inserted row.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from protocols.algebra.expressions import columns_of
from protocols.selfmaintenance.equalities import Equalities, equalities
from protocols.views.catalog import ForeignKey
from protocols.views.view import Atom, View

#: What updates of a relation can do to a view; see `updates_of`.
UpdateKind: TypeAlias = Literal["exposed", "protected", "ignorable"]


@dataclass(frozen=True)
class Vertex:
    """A relation of the view, or several that reference one another in a circle (B.2)."""

    name: str
    atoms: tuple[Atom, ...]
    updates: UpdateKind


@dataclass(frozen=True)
class Edge:
    """e(R_i, R_j): the view joins the child R_i with a key of the parent R_j."""

    child: str
    parent: str
    #: (column B of the child, column A of the parent), one for each column of the key.
    on: tuple[tuple[str, str], ...]
    #: The foreign key that annotates the edge with RI.
    reference: ForeignKey | None


@dataclass(frozen=True)
class JoinGraph:
    """G(V)."""

    view: View
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    #: Alias → its key in the view's rows, as (column of the view, column of the key). Columns of
    #: the key that are constant are left out. Aliases whose key is not preserved are missing.
    preserved: Mapping[str, tuple[tuple[str, str], ...]]
    #: Foreign keys that would annotate an edge if they could be relied on.
    not_relied_on: tuple[ForeignKey, ...] = ()

    def vertex(self, name: str) -> Vertex:
        return next(vertex for vertex in self.vertices if vertex.name == name)

    @property
    def names(self) -> frozenset[str]:
        """The set of relations referenced in the view."""
        return frozenset(vertex.name for vertex in self.vertices)

    def preserves(self, name: str) -> bool:
        """Whether the view preserves the key of this vertex, or what equals it."""
        return any(atom.alias in self.preserved for atom in self.vertex(name).atoms)


def join_graph(
    view: View,
    foreign_keys: Collection[ForeignKey] = (),
    together: Collection[Collection[str]] = (),
) -> JoinGraph:
    """The graph of a view; each member of `together` names sources that commit together."""
    equal = equalities(view.conditions)
    reliable = [key for key in foreign_keys if _is_reliable(key, together)]
    others = [key for key in foreign_keys if key not in reliable]
    pairs = [(c, p) for c in view.atoms for p in view.atoms if c is not p]
    edges = [edge for c, p in pairs if (edge := _edge(c, p, reliable, equal)) is not None]
    lacking = {(e.child, e.parent) for e in edges if e.reference is None}
    asked = [_reference(c, p, others, equal) for c, p in pairs if (c.alias, p.alias) in lacking]
    return JoinGraph(
        view,
        tuple(Vertex(atom.alias, (atom,), updates_of(atom, view)) for atom in view.atoms),
        tuple(edges),
        {a.alias: shown for a in view.atoms if (shown := _shown_key(a, view, equal)) is not None},
        tuple(dict.fromkeys(key for key in asked if key is not None)),
    )


def updates_of(atom: Atom, view: View) -> UpdateKind:
    """The kind of updates of a relation, by what the view does with the columns that may change.

    *Exposed*: it has a condition on one, so rows may enter or leave the view. *Protected*: it
    shows one. *Ignorable*: neither.
    """
    if atom.relation.modifiable & selection_columns(atom, view):
        return "exposed"
    return "protected" if atom.relation.modifiable & preserved_columns(atom, view) else "ignorable"


def selection_columns(atom: Atom, view: View) -> set[str]:
    """The columns of a relation that the view's conditions read, local ones and joins."""
    own = columns_of(atom.condition) if atom.condition is not None else set()
    return own | join_columns(atom, view)


def join_columns(atom: Atom, view: View) -> set[str]:
    """The columns of a relation in conditions that read other relations as well."""
    read = set().union(*map(columns_of, (*view.equalities, *view.residuals)))
    return {column for column in atom.relation.column_names if atom.qualified(column) in read}


def preserved_columns(atom: Atom, view: View) -> set[str]:
    """The columns of a relation in the final projection."""
    shown = {output.column for output in view.outputs}
    return {column for column in atom.relation.column_names if atom.qualified(column) in shown}


def _is_reliable(key: ForeignKey, together: Collection[Collection[str]]) -> bool:
    ends = {key.child.source, key.parent.source}
    holds = key.within_source or any(ends <= set(sources) for sources in together)
    return holds and set(key.parent_columns) == set(key.parent.key)


def _edge(
    child: Atom, parent: Atom, foreign_keys: Collection[ForeignKey], equal: Equalities
) -> Edge | None:
    reference = _reference(child, parent, foreign_keys, equal)
    if reference is not None:
        pairs = zip(reference.columns, reference.parent_columns, strict=True)
        on = tuple((child.qualified(b), parent.qualified(a)) for b, a in pairs)
        return Edge(child.alias, parent.alias, on, reference)
    for key in parent.relation.all_keys:
        joined = tuple(_joined(child, parent.qualified(column), equal) for column in key)
        if all(joined):
            on = tuple(pair for pairs in joined for pair in pairs[:1])
            return Edge(child.alias, parent.alias, on, None)
    return None


def _joined(child: Atom, key_column: str, equal: Equalities) -> list[tuple[str, str]]:
    """The columns of the child that equal a column of the parent's key, each with it."""
    own = map(child.qualified, child.relation.column_names)
    same = equal.equal_to(key_column)
    return [(column, key_column) for column in own if column in same]


def _reference(
    child: Atom, parent: Atom, foreign_keys: Collection[ForeignKey], equal: Equalities
) -> ForeignKey | None:
    """The foreign key along which the view joins these two."""
    return next(
        (
            key
            for key in foreign_keys
            if (key.child, key.parent) == (child.relation, parent.relation)
            and all(
                equal.are_equal(child.qualified(b), parent.qualified(a))
                for b, a in zip(key.columns, key.parent_columns, strict=True)
            )
        ),
        None,
    )


def _shown_key(atom: Atom, view: View, equal: Equalities) -> tuple[tuple[str, str], ...] | None:
    """A key of a relation that the view's rows determine; None if there is none."""
    for key in atom.relation.all_keys:
        columns = [atom.qualified(column) for column in key]
        shown = [next(_outputs(column, view, equal), None) for column in columns]
        known = zip(columns, shown, strict=True)
        if all(name is not None or equal.is_constant(column) for column, name in known):
            pairs = zip(shown, columns, strict=True)
            return tuple((name, column) for name, column in pairs if name is not None)
    return None


def _outputs(column: str, view: View, equal: Equalities) -> Iterator[str]:
    """The columns of the view that show this column, or one that equals it."""
    same = equal.equal_to(column)
    exact = (output.name for output in view.outputs if output.column == column)
    yield from exact
    yield from (output.name for output in view.outputs if output.column in same)
