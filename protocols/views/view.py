"""A checked view: its atoms, its links, its conditions and its outputs.

An *atom* is one occurrence of a relation in FROM; a self-join has two atoms of one relation. Above
a single atom every column is called `alias.column`. The conditions of a view are sorted by use:

    links       equalities between two atoms: they steer the sweep; their values are the keys asked
    conditions  about one atom alone: evaluated by the source, and here on its changes
    residuals   everything else: evaluated here as soon as all their columns are there
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from protocols.algebra.expressions import (
    Column,
    Comparison,
    Condition,
    columns_of,
    conjuncts,
    renamed,
)
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation
from protocols.views.dialects import Dialect


@dataclass(frozen=True)
class Atom:
    """One occurrence of a relation. `index` is its place in FROM, which also breaks ties."""

    index: int
    alias: str
    relation: Relation
    #: The columns that the view uses, by their names in the relation.
    columns: tuple[str, ...]
    condition: Condition | None

    def __hash__(self) -> int:
        # Within a view the index alone tells atoms apart.
        return hash((self.index, self.alias))

    def qualified(self, column: str) -> str:
        return f"{self.alias}.{column}"

    @cached_property
    def qualified_columns(self) -> tuple[str, ...]:
        """Its used columns by their qualified names."""
        return tuple(self.qualified(column) for column in self.columns)

    @cached_property
    def renaming(self) -> tuple[tuple[str, str], ...]:
        """Its used columns as (qualified name, own name)."""
        return tuple((self.qualified(column), column) for column in self.columns)


@dataclass(frozen=True)
class Link:
    """An equality between columns of two different atoms: (atom index, column) on both sides."""

    left: tuple[int, str]
    right: tuple[int, str]

    def seen_from(self, atom: int) -> tuple[tuple[int, str], str] | None:
        """The other end and our column; None if the link does not touch this atom."""
        if self.left[0] == atom:
            return self.right, self.left[1]
        if self.right[0] == atom:
            return self.left, self.right[1]
        return None


@dataclass(frozen=True)
class OutputColumn:
    """One column of the view."""

    name: str
    column: str
    type: ColumnType


@dataclass(frozen=True)
class View:
    """`SELECT outputs FROM atoms WHERE links AND conditions AND residuals`, bag semantics."""

    name: str
    sql: str
    atoms: tuple[Atom, ...]
    links: tuple[Link, ...]
    residuals: tuple[Condition, ...]
    outputs: tuple[OutputColumn, ...]
    #: None if it says only what the databases agree on.
    dialect: Dialect | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.sql))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(atom.relation.source for atom in self.atoms))

    @cached_property
    def relations(self) -> tuple[Relation, ...]:
        return tuple(dict.fromkeys(atom.relation for atom in self.atoms))

    def relations_of(self, source: str) -> tuple[Relation, ...]:
        return tuple(relation for relation in self.relations if relation.source == source)

    @cached_property
    def projection(self) -> tuple[tuple[str, str], ...]:
        return tuple((output.name, output.column) for output in self.outputs)

    @cached_property
    def schema(self) -> Mapping[str, ColumnType]:
        return {output.name: output.type for output in self.outputs}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """All conditions on its rows, one by one, over qualified columns."""
        own = (
            renamed(each, atom.qualified)
            for atom in self.atoms
            for each in conjuncts(atom.condition)
        )
        others = (each for residual in self.residuals for each in conjuncts(residual))
        return (*own, *self.equalities, *others)

    @property
    def equalities(self) -> tuple[Condition, ...]:
        """The links as conditions."""
        ends = (
            [Column(self.atoms[index].qualified(column)) for index, column in (one.left, one.right)]
            for one in self.links
        )
        return tuple(Comparison(left, "=", right) for left, right in ends)

    def residuals_within(self, atoms: Iterable[Atom]) -> tuple[Condition, ...]:
        """The residual conditions that mention only these atoms."""
        there = {atom.qualified(column) for atom in atoms for column in atom.columns}
        return tuple(condition for condition in self.residuals if columns_of(condition) <= there)
