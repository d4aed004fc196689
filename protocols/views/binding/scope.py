"""Scopes: the columns that can be named at a place of a query."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from sqlglot import exp

from protocols.algebra.types import SqlType
from protocols.views.binding.statement import Text


@dataclass(frozen=True)
class ShownColumn:
    """A column of the tree, by a name that occurs only once there."""

    name: str
    #: Its type in SQL. INTEGER is one of these types, and kept as a BIGINT.
    type: SqlType


@dataclass(frozen=True)
class NamedColumn:
    """A column by its name in the text, which others may have, too."""

    name: str
    shown: ShownColumn
    #: Where the text names it.
    at: exp.Expr


#: Columns in order.
Columns: TypeAlias = tuple[NamedColumn, ...]


def called(columns: Columns, name: str) -> list[NamedColumn]:
    """The columns with this name; case is ignored."""
    return [each for each in columns if each.name.lower() == name.lower()]


@dataclass(frozen=True)
class Visible:
    """The columns of a part of FROM."""

    #: Alias → its columns.
    tables: Mapping[str, Columns] = field(default_factory=dict)
    #: The columns that need no alias, as * lists them: those that USING merged stand there once.
    columns: Columns = ()
    #: The aliases for which `alias.*` has another order in PostgreSQL, which puts the columns of
    #: USING first; "" for * itself.
    disputed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Scope:
    """The columns of FROM, or of a part of it, and the scope around a subquery."""

    text: Text
    visible: Visible
    outer: "Scope | None" = None

    def column(self, column: exp.Column) -> ShownColumn:
        """The column that is named here, perhaps one of the query around (see `is_outer`)."""
        if column.args.get("db"):
            self.text.refuse(column, f"write columns as alias.column, not {column.sql()!r}")
        found = self._find(column)
        if found is not None:
            return found
        if self.outer is not None and (around := self.outer._find(column)) is not None:
            return around
        if self.outer is not None and self.outer.outer is not None:
            self.text.refuse(
                column,
                f"{column.sql()!r} is neither in this subquery nor in the query around it; columns"
                " from further out are not supported",
            )
        self._refuse_unknown(column)

    def is_outer(self, column: exp.Column) -> bool:
        """Whether a column belongs to the query around; refuses a column that neither query has."""
        if self.outer is None or self._find(column) is not None:
            return False
        self.column(column)
        return True

    def has(self, name: str) -> bool:
        """Whether a column has this name."""
        return bool(called(self.visible.columns, name))

    def star(self, alias: str, at: exp.Expr) -> Iterator[NamedColumn]:
        """The columns that `*`, or `alias.*`, stands for."""
        if alias.lower() in self.visible.disputed:
            self.text.refuse(
                at,
                "* begins with the columns of USING in PostgreSQL, and DuckDB has them where they"
                " stand; list the columns",
            )
        yield from self._of_table(alias, at) if alias else self.visible.columns

    def _of_table(self, alias: str, at: exp.Expr) -> Columns:
        for name, columns in self.visible.tables.items():
            if name.lower() == alias.lower():
                return columns
        self._refuse_alias(alias, at)

    def _find(self, column: exp.Column) -> ShownColumn | None:
        tables = self.visible.tables
        if not column.table:
            found = called(self.visible.columns, column.name)
            owners = [alias for alias in tables if called(tables[alias], column.name)]
            choices = [f"{alias}.{column.name}" for alias in owners]
        else:
            alias = next((a for a in tables if a.lower() == column.table.lower()), "")
            found = called(tables.get(alias, ()), column.name)
            choices = []
        if len(found) > 1:
            self._refuse_ambiguous(column, choices)
        return found[0].shown if found else None

    def _refuse_ambiguous(self, column: exp.Column, choices: list[str]) -> NoReturn:
        what = f"{column.sql()!r} is ambiguous"
        if len(choices) > 1:
            self.text.refuse(column, f"{what}: write {' or '.join(choices)}")
        self.text.refuse(column, f"{what}: give each of these columns a name of its own with AS")

    def _refuse_unknown(self, column: exp.Column) -> NoReturn:
        if not column.table:
            self.text.refuse(column, f"no relation in FROM has a column {column.name!r}")
        for alias, columns in self.visible.tables.items():
            if alias.lower() == column.table.lower():
                known = f"it has: {', '.join(each.name for each in columns)}"
                self.text.refuse(column, f"{alias} has no column {column.name!r}; {known}")
        self._refuse_alias(column.table, column)

    def _refuse_alias(self, alias: str, at: exp.Expr) -> NoReturn:
        there = ", ".join(self.visible.tables) or "only tables without an alias"
        self.text.refuse(at, f"{alias!r} is not in FROM; there are: {there}")
