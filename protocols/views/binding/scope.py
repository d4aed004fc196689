"""Scopes: the columns that can be named at a place of a query."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from protocols.algebra.types import SqlType
from protocols.views.binding.statement import Text


@dataclass(frozen=True)
class ShownColumn:
    """A column of the tree, by a name that occurs only once there."""

    name: str
    #: Its type in SQL. INTEGER is one of these types, and kept as a BIGINT.
    type: SqlType


@dataclass
class Scope:
    """The tables that FROM has brought in so far, and the scope around a subquery."""

    text: Text
    outer: "Scope | None" = None
    #: Alias → its columns as they are spelled.
    tables: dict[str, dict[str, ShownColumn]] = field(default_factory=dict)
    #: Columns that USING merged, in lower case.
    merged: dict[str, ShownColumn] = field(default_factory=dict)

    def add(self, alias: str, columns: dict[str, ShownColumn], at: exp.Expr) -> None:
        """Adds a table of FROM."""
        if any(alias.lower() == other.lower() for other in self.tables):
            self.text.refuse(at, f"the name {alias!r} occurs twice in FROM; give one an alias")
        self.tables[alias] = columns

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

    def of_table(self, alias: str, at: exp.Expr) -> Iterator[tuple[str, ShownColumn]]:
        """The columns that `alias.*` stands for."""
        for name, columns in self.tables.items():
            if name.lower() == alias.lower():
                yield from columns.items()
                return
        self._refuse_alias(alias, at)

    def _find(self, column: exp.Column) -> ShownColumn | None:
        wanted = column.name.lower()
        if column.table:
            tables = (c for a, c in self.tables.items() if a.lower() == column.table.lower())
            columns = next(tables, {})
            return next((s for name, s in columns.items() if name.lower() == wanted), None)
        if wanted in self.merged:
            return self.merged[wanted]
        owners = [
            (alias, shown)
            for alias, columns in self.tables.items()
            for name, shown in columns.items()
            if name.lower() == wanted
        ]
        if len(owners) > 1:
            choices = " or ".join(f"{alias}.{column.name}" for alias, _ in owners)
            self.text.refuse(column, f"{column.name!r} is ambiguous: write {choices}")
        return owners[0][1] if owners else None

    def _refuse_unknown(self, column: exp.Column) -> NoReturn:
        if not column.table:
            self.text.refuse(column, f"no relation in FROM has a column {column.name!r}")
        for alias, columns in self.tables.items():
            if alias.lower() == column.table.lower():
                known = f"it has: {', '.join(columns)}"
                self.text.refuse(column, f"{alias} has no column {column.name!r}; {known}")
        self._refuse_alias(column.table, column)

    def _refuse_alias(self, alias: str, at: exp.Expr) -> NoReturn:
        self.text.refuse(at, f"{alias!r} is not in FROM; there are: {', '.join(self.tables)}")
