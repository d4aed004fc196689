"""FROM: relations, subqueries and WITH names, and how they are joined."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, TypeAlias

from sqlglot import exp

from protocols.algebra.expressions import Column, Comparison, Condition, Expression, conjunction
from protocols.algebra.types import BOOLEAN, ColumnType, SqlType
from protocols.views import tree
from protocols.views.binding.rows import Names, either, with_columns
from protocols.views.binding.scope import Columns, NamedColumn, ShownColumn, Visible, called
from protocols.views.binding.statement import Text
from protocols.views.catalog import Catalog, Relation
from protocols.views.operands import kept
from protocols.views.view import Atom, OutputColumn, View

#: A whole query as a subquery: its node and its columns.
Bound: TypeAlias = tuple[tree.Node, Columns]
#: The names of WITH, in lower case; each use of a name reads its query again.
Common: TypeAlias = Mapping[str, Callable[[], Bound]]
_KINDS: dict[str, tree.JoinKind | Literal["right"]] = {
    "": "inner",
    "LEFT": "left",
    "FULL": "full",
    "RIGHT": "right",
}
#: Joins that show the rows of the left side only.
_EXISTING: dict[str, tree.JoinKind] = {"SEMI": "semi", "ANTI": "anti"}
_WORDS = {"", "INNER", "OUTER", "CROSS", *_EXISTING}


@dataclass(frozen=True)
class Part:
    """A part of FROM, a table or several that are joined."""

    node: tree.Node
    visible: Visible


@dataclass(frozen=True)
class MergedColumn:
    """A column of USING: that of the left side, that of the right side."""

    ours: NamedColumn
    theirs: NamedColumn

    @property
    def equality(self) -> Condition:
        """The condition that it stands for."""
        ours, theirs = (Column(each.shown.name) for each in (self.ours, self.theirs))
        return Comparison(ours, "=", theirs)


@dataclass
class From:
    """Reads the FROM clause of one SELECT."""

    text: Text
    catalog: Catalog
    names: Names
    common: Common
    bind: Callable[[exp.Query], Bound]
    #: Reads the condition of an ON clause over the columns of both sides.
    condition: Callable[[exp.Expr, Visible], Condition]
    #: Reads values without columns: their common type, and each of them.
    constants: Callable[[exp.Expr, list[exp.Expr]], tuple[SqlType, list[Any]]]
    #: Where each relation of the tree stands in the text, by the alias of its atom.
    places: dict[str, exp.Expr]
    #: The aliases before the last comma, in lower case.
    _before: set[str] = field(default_factory=set)

    def whole(self, select: exp.Select) -> Part:
        """Reads all of FROM: the items between its commas, and then what they make together."""
        first = select.args.get("from_")
        if first is None:
            return Part(self._constants([BOOLEAN], [(True,)]), Visible())
        parts = [self._item(first.this)]
        for join in select.args.get("joins") or ():
            if _is_comma(join):
                self._before |= {alias.lower() for alias in parts[-1].visible.tables}
                parts.append(self._item(join.this))
            else:
                parts[-1] = self._joined(parts[-1], join)
        return reduce(self._beside, parts)

    def _item(self, item: exp.Expr) -> Part:
        """Reads a table and the joins in its parentheses."""
        if isinstance(item, exp.Paren):
            part = self._item(item.this)
        elif isinstance(item, exp.Subquery) and not _is_query(item):
            part = self._aliased(self._item(item.this), item)
        else:
            part = self._table(item)
        for join in item.args.get("joins") or ():
            part = self._joined(part, join)
        return part

    # -- joins -----------------------------------------------------------------------------------

    def _joined(self, left: Part, join: exp.Join) -> Part:
        side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
        if method not in ("", "NATURAL") or kind not in _WORDS or side not in _KINDS:
            words = " ".join(word for word in (method, side, kind) if word)
            known = "INNER, LEFT, RIGHT, FULL, CROSS, NATURAL, SEMI and ANTI are"
            self.text.refuse(join, f"{words} JOIN is not supported; {known}")
        right = self._item(join.this)
        on = join.args.get("on")
        using = [(each.name, each) for each in join.args.get("using") or ()]
        if method:
            using = [(name, join.this) for name in self._common(left, right, join.this)]
        if (side or kind in _EXISTING) and on is None and not using:
            self.text.refuse(join, f"{side or kind} JOIN needs ON or USING")
        subquery = None if on is None else on.find(exp.Query)
        if subquery is not None:
            self.text.refuse(
                subquery, "a subquery cannot stand in ON; move it to WHERE, or join it in FROM"
            )
        both = self._both(left.visible, right.visible)
        merged = [self._using(*each, left.visible, right.visible) for each in using]
        tests = [each.equality for each in merged]
        if on is not None:
            self._refuse_before(on)
            tests.append(self.condition(on, both))
        condition = conjunction(tuple(tests))
        if kind in _EXISTING:
            existing = tree.Join(_EXISTING[kind], left.node, right.node, (), condition)
            return Part(existing, left.visible)
        joined = _join(_KINDS[side], left.node, right.node, condition)
        return self._merged(Part(joined, both), merged, side)

    def _common(self, left: Part, right: Part, at: exp.Expr) -> list[str]:
        """The names that a natural join compares, in the order of the left side."""
        common = [c.name for c in left.visible.columns if called(right.visible.columns, c.name)]
        if not common:
            what = "no column of one side is called like one of the other"
            self.text.refuse(at, f"NATURAL JOIN: {what}; write JOIN … ON")
        return list(dict.fromkeys(common))

    def _refuse_before(self, on: exp.Expr) -> None:
        for column in on.find_all(exp.Column):
            if column.table.lower() in self._before:
                where = f"{column.table} stands before a comma, where ON does not reach"
                self.text.refuse(column, f"{where}; write CROSS JOIN instead of the comma")

    def _beside(self, left: Part, right: Part) -> Part:
        """All pairs of rows."""
        node = tree.Join("inner", left.node, right.node, ())
        return Part(node, self._both(left.visible, right.visible))

    def _both(self, mine: Visible, other: Visible) -> Visible:
        there = {alias.lower() for alias in mine.tables}
        for alias, columns in other.tables.items():
            if alias.lower() in there:
                at = columns[0].at
                self.text.refuse(at, f"the name {alias!r} occurs twice in FROM; give one an alias")
        return Visible(
            {**mine.tables, **other.tables},
            (*mine.columns, *other.columns),
            mine.disputed | other.disputed,
        )

    def _using(self, name: str, at: exp.Expr, left: Visible, right: Visible) -> MergedColumn:
        """Reads USING (c): c of one side equals c of the other, and is called just c."""
        sides = [called(side.columns, name) for side in (left, right)]
        if any(len(found) != 1 for found in sides):
            self.text.refuse(at, f"USING ({name}): each side must have it exactly once; write ON")
        merged = MergedColumn(*(found for (found,) in sides))
        types = [kept(each.shown.type) for each in (merged.ours, merged.theirs)]
        if types[0] != types[1]:
            names = " and ".join(type_.name for type_ in types)
            self.text.refuse(at, f"columns of two types are compared: {names}; write ON")
        return merged

    def _merged(self, part: Part, merged: Sequence[MergedColumn], side: str) -> Part:
        """The join with each column of USING once, where the left side has it.

        It is the column of the side that is never padded, or of whichever is there.
        """
        if not merged:
            return part
        more: list[tuple[str, Expression, ColumnType]] = []
        instead: dict[int, NamedColumn | None] = {}
        for each in merged:
            ours, theirs = each.ours.shown, each.theirs.shown
            shown = theirs if side == "RIGHT" else ours
            if side == "FULL":
                type_ = ours.type if ours.type == theirs.type else kept(ours.type)
                shown = ShownColumn(self.names.fresh(each.ours.name), type_)
                value = either(Column(ours.name), Column(theirs.name), type_)
                more.append((shown.name, value, kept(type_)))
            instead[id(each.ours)] = replace(each.ours, shown=shown)
            instead[id(each.theirs)] = None
        before = part.visible.columns
        columns = tuple(c for each in before if (c := instead.get(id(each), each)) is not None)
        first = [each.ours for each in merged]
        agree = all(one is other for one, other in zip(first, before, strict=False))
        disputed = part.visible.disputed | (frozenset() if agree else {""})
        visible = replace(part.visible, columns=columns, disputed=disputed)
        return Part(with_columns(part.node, more), visible)

    # -- tables ------------------------------------------------------------------------------

    def _table(self, table: exp.Expr) -> Part:
        if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Query):
            return self._shown(*self.bind(table.this), table.alias, table)
        if isinstance(table, exp.Values):
            return self._listed(table.expressions, table)
        if isinstance(table.this, exp.Values):
            return self._listed(table.this.expressions, table)
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            self.text.refuse(table, "only relations and subqueries can stand in FROM")
        if not table.db and table.name.lower() in self.common:
            bound = self.common[table.name.lower()]()
            return self._shown(*bound, table.alias or table.name, table)
        if not table.db or table.catalog:
            self.text.refuse(table, f"write relations as source.relation, not {table.sql()!r}")
        return self._relation(self._known(table), table.alias or table.name, table)

    def _listed(self, listed: Sequence[exp.Expr], table: exp.Expr) -> Part:
        """Reads (VALUES …) AS v(a, b)."""
        alias, rows = table.args.get("alias"), [row.expressions for row in listed]
        width = len(rows[0])
        if alias is None or len(alias.columns) != width:
            names = ", ".join("abcdefghijklmnopqrstuvwxyz"[:width])
            self.text.refuse(
                table, f"VALUES needs an alias and names for its columns: (VALUES …) AS v({names})"
            )
        columns = [self.constants(table, [row[place] for row in rows]) for place in range(width)]
        types = [type_ for type_, _ in columns]
        node = self._constants(
            list(map(kept, types)), list(zip(*(values for _, values in columns), strict=True))
        )
        named = tuple(
            NamedColumn(name, ShownColumn(name, type_), table)
            for name, type_ in zip(node.columns, types, strict=True)
        )
        return self._shown(node, named, table.alias, table)

    def _constants(
        self, types: Sequence[ColumnType], rows: Sequence[tuple[Any, ...]]
    ) -> tree.Constants:
        named = tuple((self.names.fresh("constant"), type_) for type_ in types)
        return tree.Constants(named, tuple(rows))

    def _aliased(self, part: Part, at: exp.Subquery) -> Part:
        """Joined tables under one alias, which hides their own."""
        if not at.alias:
            return part
        aliased = self._shown(part.node, part.visible.columns, at.alias, at)
        if not part.visible.disputed:
            return aliased
        disputed = frozenset({"", at.alias.lower()})
        return Part(part.node, replace(aliased.visible, disputed=disputed))

    def _shown(self, node: tree.Node, columns: Columns, alias: str, at: exp.Expr) -> Part:
        """A table of FROM, with the names that an alias gives to its columns."""
        given = at.args["alias"].columns if at.args.get("alias") else ()
        named = renamed(self.text, columns, given, alias, at)
        placed = tuple(replace(each, at=at) for each in named)
        return Part(node, Visible({alias: placed} if alias else {}, placed))

    def _known(self, table: exp.Table) -> Relation:
        wanted = (table.db.lower(), table.name.lower())
        for relation in self.catalog:
            if (relation.source.lower(), relation.name.lower()) == wanted:
                return relation
        if (reason := self.catalog.left_out.get(f"{table.db}.{table.name}")) is not None:
            self.text.refuse(table, f"{table.db}.{table.name} cannot be used: {reason}")
        known = ", ".join(map(str, self.catalog.relations)) or "none at all"
        self.text.refuse(table, f"there is no relation {table.db}.{table.name}; there are: {known}")

    def _relation(self, relation: Relation, alias: str, at: exp.Expr) -> Part:
        """A relation as an inner join of just itself."""
        unique = self.names.fresh(alias)
        self.places[unique] = at
        atom = Atom(0, unique, relation, relation.column_names, None)
        columns = tuple(
            NamedColumn(column, ShownColumn(self.names.fresh(atom.qualified(column)), type_), at)
            for column, type_ in relation.columns
        )
        outputs = tuple(
            OutputColumn(each.shown.name, atom.qualified(each.name), kept(each.shown.type))
            for each in columns
        )
        core = tree.Core(View(unique, self.text.sql, (atom,), (), (), outputs))
        return self._shown(core, columns, alias, at)


def renamed(
    text: Text, columns: Columns, given: Sequence[exp.Identifier], alias: str, at: exp.Expr
) -> Columns:
    """The columns with the names that are given to the first of them."""
    if len(given) > len(columns):
        number = f"{len(columns)} column{'s' * (len(columns) > 1)}"
        text.refuse(at, f"{alias} has {number}, not {len(given)}")
    first = [replace(each, name=name.name) for each, name in zip(columns, given, strict=False)]
    return (*first, *columns[len(given) :])


def _join(
    kind: tree.JoinKind | Literal["right"],
    left: tree.Node,
    right: tree.Node,
    condition: Condition | None,
) -> tree.Join:
    if kind == "right":
        return tree.Join("left", right, left, (), condition)
    return tree.Join(kind, left, right, (), condition)


def _is_comma(join: exp.Join) -> bool:
    return set(_given(join)) == {"this"}


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


def _is_query(item: exp.Subquery) -> bool:
    """Whether it is a query in parentheses, rather than tables."""
    inner = item.this
    if isinstance(inner, exp.Subquery):
        return _is_query(inner) and not inner.args.get("joins") and not inner.alias
    return isinstance(inner, exp.Query)
