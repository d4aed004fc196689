"""The rows that a SELECT has gathered so far, to which its clauses add columns."""

from dataclasses import dataclass, field

from protocols.algebra.expressions import Case, Column, Expression, IsNull, Not
from protocols.algebra.types import ColumnType
from protocols.views import tree
from protocols.views.binding.scope import Shown


@dataclass
class Names:
    """Names for columns of the tree, each given once; case makes no difference."""

    taken: set[str] = field(default_factory=set)

    def fresh(self, wanted: str) -> str:
        """The name, or one like it that is free."""
        name, number = wanted, 2
        while name.lower() in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name.lower())
        return name


def with_columns(node: tree.Node, more: list[tuple[str, Expression, ColumnType]]) -> tree.Node:
    """All columns of a node, and these."""
    if not more:
        return node
    kept = [(name, Column(name), type_) for name, type_ in node.columns.items()]
    return tree.Compute(node, (*kept, *more))


def as_column(
    node: tree.Node, value: Expression, type_: ColumnType, names: Names, wanted: str
) -> tuple[tree.Node, Shown]:
    """A value as a column of the node: the one that it is, or a new one."""
    if isinstance(value, Column) and value.name in node.columns:
        return node, Shown(value.name, type_)
    shown = Shown(names.fresh(wanted), type_)
    return with_columns(node, [(shown.name, value, type_)]), shown


def either(first: Expression, second: Expression, type_: ColumnType) -> Expression:
    """COALESCE of two values."""
    return Case(((Not(IsNull(first)), first),), second, type_)
