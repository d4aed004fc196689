"""The rows that a SELECT has gathered so far, and names for their columns."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from protocols.algebra.expressions import (
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    IsNull,
    Literal,
    Not,
    conjuncts,
)
from protocols.algebra.types import ColumnType, SqlType
from protocols.views import tree
from protocols.views.binding.scope import ShownColumn
from protocols.views.operands import kept


@dataclass
class Names:
    """Names for columns of the tree, each given once; case is ignored."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        """The wanted name, with a number after it if it is taken."""
        name, number = wanted, 2
        while name.lower() in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name.lower())
        return name


def with_columns(node: tree.Node, more: list[tuple[str, Expression, ColumnType]]) -> tree.Node:
    """The node with further columns beside its own."""
    if not more:
        return node
    kept = [(name, Column(name), type_) for name, type_ in node.columns.items()]
    return tree.Compute(node, (*kept, *more))


def as_column(
    node: tree.Node, value: Expression, type_: SqlType, names: Names, wanted: str
) -> tuple[tree.Node, ShownColumn]:
    """A value as a column of the node: an existing one if the value is just that, else new."""
    if isinstance(value, Column) and value.name in node.columns:
        return node, ShownColumn(value.name, type_)
    shown = ShownColumn(names.fresh(wanted), type_)
    return with_columns(node, [(shown.name, value, kept(type_))]), shown


@dataclass
class GatheredRows:
    """The rows that a SELECT has gathered so far; each clause adds its part."""

    node: tree.Node
    names: Names

    def filter(self, test: Condition | None) -> None:
        """Keeps the rows for which a condition is true."""
        if test is not None:
            self.node = tree.Filter(self.node, test)

    def column(self, value: Expression, type_: SqlType, wanted: str) -> ShownColumn:
        """A value as a column of the rows: an existing one if the value is just that, else new."""
        self.node, shown = as_column(self.node, value, type_, self.names, wanted)
        return shown

    def exist(
        self,
        kind: tree.JoinKind,
        others: tree.Node,
        on: Sequence[tuple[str, str]],
        condition: Condition | None,
    ) -> None:
        """Keeps the rows that have a partner among others (semi), or that have none (anti)."""
        self.node = tree.Join(kind, self.node, others, tuple(on), condition)

    def look_up(self, values: tree.Node, on: Sequence[tuple[str, str]]) -> None:
        """Adds the values of a subquery, which has at most one row for each of ours."""
        self.node = tree.Join("left", self.node, values, tuple(on), of_subquery=True)


def either(first: Expression, second: Expression, type_: SqlType) -> Expression:
    """COALESCE of two values."""
    return Case(((Not(IsNull(first)), first),), second, kept(type_))


def tells_rows_apart(node: tree.Node, known: Collection[str]) -> bool:
    """Whether these columns contain a key of every relation, or of its groups."""
    match node:
        case tree.Filter():
            return tells_rows_apart(node.input, known)
        case tree.Window():
            return tells_rows_apart(node.input, known)
        case tree.Compute():
            values = {name: value for name, value, _ in node.values}
            below = {v.name for n in known if isinstance(v := values.get(n), Column)}
            return tells_rows_apart(node.input, below)
        case tree.Group():
            return set(node.keys) <= set(known)
        case tree.Join(kind="semi" | "anti"):
            return tells_rows_apart(node.left, known)
        case tree.Join():
            return all(tells_rows_apart(side, known) for side in (node.left, node.right))
        case tree.Core():
            return all(
                any(set(key) <= known_of for key in keys) for keys, known_of in _keys(node, known)
            )
    return False


def never_null(node: tree.Node, name: str) -> bool:
    """Whether a column is a key of a relation, on no side that is padded."""
    match node:
        case tree.Filter() | tree.Window():
            return name in node.input.columns and never_null(node.input, name)
        case tree.Compute():
            value = next(v for n, v, _ in node.values if n == name)
            return isinstance(value, Column) and never_null(node.input, value.name)
        case tree.Group():
            return name in node.keys and never_null(node.input, name)
        case tree.Join(kind="inner" | "semi" | "anti" | "left"):
            if name in node.left.columns:
                return never_null(node.left, name)
            return node.kind == "inner" and never_null(node.right, name)
        case tree.Core():
            below = {output.name: output.column for output in node.view.outputs}
            places = {
                a.qualified(c): (a, c) for a in node.view.atoms for c in a.relation.column_names
            }
            atom, column = places[below[name]]
            return column in atom.relation.never_null
    return False


def _keys(
    core: tree.Core, known: Collection[str]
) -> list[tuple[tuple[tuple[str, ...], ...], set[str]]]:
    """For each relation of a leaf: its keys, and its columns among the known ones."""
    found = []
    for atom in core.view.atoms:
        names = {atom.qualified(c): c for c in atom.relation.column_names}
        own = {names[o.column] for o in core.view.outputs if o.name in known and o.column in names}
        found.append((atom.relation.all_keys, own))
    return found


def has_one_row_at_most(node: tree.Node, fixed: Collection[str]) -> bool:
    """Whether these columns, and those that equal a constant, contain a key of one relation."""
    known = set(fixed)
    while isinstance(node, tree.Filter | tree.Compute):
        if isinstance(node, tree.Filter):
            tests = conjuncts(node.condition)
            known |= {name for test in tests if (name := _equals_constant(test)) is not None}
        node = node.input
    if not isinstance(node, tree.Core) or len(node.view.atoms) != 1:
        return False
    (atom,) = node.view.atoms
    names = {atom.qualified(c): c for c in atom.relation.column_names}
    fixed_here = {names[o.column] for o in node.view.outputs if o.name in known}
    return any(set(key) <= fixed_here for key in atom.relation.all_keys)


def _equals_constant(test: Condition) -> str | None:
    match test:
        case Comparison(Column(name), "=", Literal()) | Comparison(Literal(), "=", Column(name)):
            return name
    return None
