"""FROM: relations, subqueries and WITH names, and how they are joined."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sqlglot import exp

from protocols.algebra.expressions import Column, Comparison, Condition, Expression, conjunction
from protocols.algebra.types import ColumnType
from protocols.views import tree
from protocols.views.binding.rows import Names, either, with_columns
from protocols.views.binding.scope import Scope, ShownColumn
from protocols.views.binding.statement import Text
from protocols.views.catalog import Catalog, Relation
from protocols.views.operands import kept
from protocols.views.view import Atom, OutputColumn, View

#: A whole query as a subquery: (its node, its columns by name in order).
Bound: TypeAlias = tuple[tree.Node, dict[str, ShownColumn]]
#: The names of WITH, in lower case; each use of a name reads its query again.
Common: TypeAlias = Mapping[str, Callable[[], Bound]]
_KINDS: dict[str, tree.JoinKind | Literal["right"]] = {
    "": "inner",
    "LEFT": "left",
    "FULL": "full",
    "RIGHT": "right",
}


@dataclass
class From:
    """Reads the FROM clause of one SELECT into a node, and its columns into a scope."""

    text: Text
    catalog: Catalog
    names: Names
    scope: Scope
    common: Common
    bind: Callable[[exp.Query], Bound]
    #: Reads the condition of an ON clause, with the columns seen so far.
    condition: Callable[[exp.Expr], Condition]
    #: Where each relation of the tree stands in the text, by the alias of its atom.
    places: dict[str, exp.Expr]

    def node(self, select: exp.Select) -> tree.Node:
        """Reads all of FROM as one node."""
        first = select.args.get("from_")
        if first is None:
            self.text.refuse(
                select, "this SELECT names no relation: FROM source.relation is missing"
            )
        node = self._item(first.this)
        for join in select.args.get("joins") or ():
            node = self._joined(node, join)
        return node

    def _item(self, item: exp.Expr) -> tree.Node:
        """Reads a table and the joins in its parentheses."""
        if isinstance(item, exp.Paren) or (
            isinstance(item, exp.Subquery)
            and isinstance(item.this, exp.Table | exp.Subquery)
            and not item.alias
        ):
            node = self._item(item.this)
        else:
            node = self._table(item)
        for join in item.args.get("joins") or ():
            node = self._joined(node, join)
        return node

    def _joined(self, left: tree.Node, join: exp.Join) -> tree.Node:
        side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
        if method or kind not in ("", "INNER", "OUTER", "CROSS") or side not in _KINDS:
            words = " ".join(word for word in (method, side, kind) if word)
            self.text.refuse(join, f"{words} JOIN is not supported; INNER, LEFT, RIGHT, FULL are")
        before = dict(self.scope.tables)
        right = self._item(join.this)
        new = {alias for alias in self.scope.tables if alias not in before}
        on = join.args.get("on")
        using = join.args.get("using") or ()
        if side and on is None and not using:
            self.text.refuse(join, f"{side} JOIN needs ON or USING")
        subquery = None if on is None else on.find(exp.Query)
        if subquery is not None:
            self.text.refuse(
                subquery, "a subquery cannot stand in ON; move it to WHERE, or join it in FROM"
            )
        pairs = [self._using(column, set(before), new) for column in using]
        tests = tuple(
            Comparison(Column(ours.name), "=", Column(theirs.name)) for _, ours, theirs in pairs
        )
        condition = conjunction(tests if on is None else (*tests, self.condition(on)))
        kind = _KINDS[side]
        if kind == "right":
            node = tree.Join("left", right, left, (), condition)
        else:
            node = tree.Join(kind, left, right, (), condition)
        return self._merged(node, pairs, side)

    def _using(
        self, column: exp.Identifier, left: set[str], right: set[str]
    ) -> tuple[str, ShownColumn, ShownColumn]:
        """Reads USING (c): c of the new table equals c of those before, and is called just c."""
        name = column.name.lower()
        ours = self._owners(name, left)
        if name in self.scope.merged:
            ours = [self.scope.merged[name]]
        theirs = self._owners(name, right)
        if len(ours) != 1 or len(theirs) != 1:
            self.text.refuse(
                column, f"USING ({column.name}): each side must have it exactly once; write ON"
            )
        if kept(ours[0].type) != kept(theirs[0].type):
            types = f"{kept(ours[0].type).name} and {kept(theirs[0].type).name}"
            self.text.refuse(column, f"columns of two types are compared: {types}; write ON")
        return name, ours[0], theirs[0]

    def _owners(self, name: str, aliases: set[str]) -> list[ShownColumn]:
        return [
            shown
            for alias in aliases
            for column, shown in self.scope.tables[alias].items()
            if column.lower() == name
        ]

    def _merged(
        self, node: tree.Node, pairs: list[tuple[str, ShownColumn, ShownColumn]], side: str
    ) -> tree.Node:
        """The columns of USING: from the side that is never padded, or from whichever is there."""
        more: list[tuple[str, Expression, ColumnType]] = []
        for name, ours, theirs in pairs:
            shown = theirs if side == "RIGHT" else ours
            if side == "FULL":
                type_ = ours.type if ours.type == theirs.type else kept(ours.type)
                shown = ShownColumn(self.names.fresh(name), type_)
                value = either(Column(ours.name), Column(theirs.name), type_)
                more.append((shown.name, value, kept(type_)))
            self.scope.merged[name] = shown
        return with_columns(node, more)

    # -- tables ------------------------------------------------------------------------------

    def _table(self, table: exp.Expr) -> tree.Node:
        if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Query):
            if not table.alias:
                self.text.refuse(table, "a subquery in FROM needs an alias")
            return self._shown(*self.bind(table.this), table.alias, table)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            self.text.refuse(table, "only relations and subqueries can stand in FROM")
        if not table.db and table.name.lower() in self.common:
            bound = self.common[table.name.lower()]()
            return self._shown(*bound, table.alias or table.name, table)
        if not table.db or table.catalog:
            self.text.refuse(table, f"write relations as source.relation, not {table.sql()!r}")
        return self._relation(self._known(table), table.alias or table.name, table)

    def _shown(
        self, node: tree.Node, columns: dict[str, ShownColumn], alias: str, at: exp.Expr
    ) -> tree.Node:
        """A table of FROM, with the names that an alias gives to its columns."""
        renamed = at.args["alias"].columns if at.args.get("alias") else ()
        if renamed:
            if len(renamed) != len(columns):
                self.text.refuse(at, f"{alias} has {len(columns)} columns, not {len(renamed)}")
            columns = dict(zip((c.name for c in renamed), columns.values(), strict=True))
        self.scope.add(alias, columns, at)
        return node

    def _known(self, table: exp.Table) -> Relation:
        wanted = (table.db.lower(), table.name.lower())
        for relation in self.catalog:
            if (relation.source.lower(), relation.name.lower()) == wanted:
                return relation
        known = ", ".join(map(str, self.catalog.relations)) or "none at all"
        self.text.refuse(table, f"there is no relation {table.db}.{table.name}; there are: {known}")

    def _relation(self, relation: Relation, alias: str, at: exp.Expr) -> tree.Node:
        """A relation as an inner join of just itself."""
        unique = self.names.fresh(alias)
        self.places[unique] = at
        atom = Atom(0, unique, relation, relation.column_names, None)
        columns = {
            column: ShownColumn(self.names.fresh(atom.qualified(column)), type_)
            for column, type_ in relation.columns
        }
        outputs = tuple(
            OutputColumn(shown.name, atom.qualified(column), kept(shown.type))
            for column, shown in columns.items()
        )
        core = tree.Core(View(unique, self.text.sql, (atom,), (), (), outputs))
        return self._shown(core, columns, alias, at)
