"""From the SQL of a view to the references in it (Ceri and Widom, Section 2).

Conditions are taken apart into conjuncts. What the paper leaves out (OR, deeper subqueries) is
kept, but only as what it mentions; a relation in there is `elsewhere`. Clauses that its criteria do
not speak of are refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

from sqlglot import exp

from protocols.analysis.references import Conjunct, Selected, Subquery, TableReference
from protocols.views.binding.statement import Text
from protocols.views.catalog import Catalog, Relation

Keys: TypeAlias = Mapping[Relation, Iterable[tuple[str, ...]]]
_COVERED_CLAUSES = {"expressions", "from_", "joins", "where", "distinct", "kind"}
#: Each comparison, and what has to hold for a row of … ALL that rules the row outside out.
_COMPARISONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "<>"),
    exp.NEQ: ("<>", "="),
    exp.LT: ("<", ">="),
    exp.LTE: ("<=", ">"),
    exp.GT: (">", "<="),
    exp.GTE: (">=", "<"),
}


def selects_of(
    sql: str, catalog: Catalog, further_keys: Keys | None = None
) -> tuple[Selected, ...]:
    """The SELECTs of a view: one, or all that UNION or INTERSECT connect (Section 8).

    `further_keys` are keys beside those of the catalog, which has one for each relation.
    ViewRefused says what in the view the criteria do not speak of.
    """
    text = Text(sql)
    return tuple(
        _Reading(text, catalog, further_keys or {}).selected(select)
        for select in _selects(text, text.query())
    )


def _selects(text: Text, query: exp.Expr) -> Iterator[exp.Select]:
    query = query.unnest()
    if isinstance(query, exp.Union | exp.Intersect):
        yield from _selects(text, query.left)
        yield from _selects(text, query.right)
    elif isinstance(query, exp.Select):
        yield query
    else:
        text.refuse(query, "only SELECT, UNION and INTERSECT are looked at for safe references")


@dataclass
class _Scope:
    """The tables of one FROM by alias, and those around it."""

    select: exp.Select
    tables: dict[str, TableReference]
    outer: "_Scope | None" = None

    def column(self, column: exp.Column) -> str | None:
        """The column that is meant, as `name.column`."""
        for alias, reference in self.tables.items():
            if column.table.lower() in ("", alias):
                for own in reference.relation.column_names:
                    if own.lower() == column.name.lower():
                        return f"{reference.name}.{own}"
        return self.outer.column(column) if self.outer is not None else None


@dataclass
class _Reading:
    """The reading of one SELECT; names of references stay different in all of it."""

    text: Text
    catalog: Catalog
    further_keys: Keys
    names: set[str] = field(default_factory=set)

    def selected(self, select: exp.Select) -> Selected:
        tables, places, own = self._from(select, None)
        scope = _Scope(select, tables)
        conjuncts, subqueries, elsewhere = [*own], [], list[TableReference]()
        for node in self._conditions(select):
            subquery = self._subquery(node, scope)
            if subquery is not None:
                subqueries.append(subquery)
            else:
                conjuncts.append(self._conjunct(node, scope))
                elsewhere += map(self._reference, node.find_all(exp.Table))
        items = (item.unalias() for item in select.expressions)
        shown = chain.from_iterable(self._shown(item, scope) for item in items)
        return Selected(
            tuple(tables.values()),
            tuple(dict.fromkeys(shown)),
            tuple(conjuncts),
            tuple(subqueries),
            tuple(elsewhere),
            bool(select.args.get("distinct")),
            select,
            places,
        )

    # -- FROM -------------------------------------------------------------------------------------

    def _from(
        self, select: exp.Select, outer: _Scope | None
    ) -> tuple[dict[str, TableReference], tuple[exp.Table, ...], list[Conjunct]]:
        """The references of FROM by alias, where they stand, and what USING says."""
        for clause, value in select.args.items():
            if value and clause not in _COVERED_CLAUSES:
                name = clause.strip("_").upper()
                self.text.refuse(select, f"safe references are not looked for under {name}")
        if select.args.get("from_") is None:
            self.text.refuse(select, "there is no FROM, so there are no references")
        for shown in select.expressions if outer is None else ():
            aggregate = shown.find(exp.AggFunc)
            if aggregate is not None and aggregate.find_ancestor(exp.Select) is select:
                self.text.refuse(aggregate, "safe references are not looked for under aggregates")
        items = [select.args["from_"].this]
        tables: dict[str, TableReference] = {}
        conjuncts = []
        self._add(items[0], tables)
        for join in select.args.get("joins") or ():
            if join.side or join.method:
                words = f"{join.method} {join.side}".strip()
                self.text.refuse(join, f"safe references are not looked for in {words} JOIN")
            before = _Scope(select, dict(tables), outer)
            self._add(join.this, tables)
            items.append(join.this)
            alias = join.this.alias_or_name.lower()
            after = _Scope(select, {alias: tables[alias]})
            for column in join.args.get("using") or ():
                ends = [scope.column(exp.column(column.name)) for scope in (before, after)]
                pair = tuple(end for end in ends if end is not None)
                conjuncts.append(Conjunct(f"USING ({column.name})", frozenset(pair), pair))
        return tables, tuple(items), conjuncts

    def _add(self, item: exp.Expr, tables: dict[str, TableReference]) -> None:
        if not isinstance(item, exp.Table):
            self.text.refuse(item, "safe references are not looked for in subqueries of FROM")
        tables[item.alias_or_name.lower()] = self._reference(item)

    def _reference(self, table: exp.Table) -> TableReference:
        relation = next(
            (
                each
                for each in self.catalog
                if (each.source.lower(), each.name.lower())
                == (table.db.lower(), table.name.lower())
            ),
            None,
        )
        if relation is None:
            known = ", ".join(map(str, self.catalog.relations))
            self.text.refuse(table, f"there is no relation {table.sql()}; there are: {known}")
        name, number = table.alias_or_name, 2
        while name in self.names:
            name, number = f"{table.alias_or_name}_{number}", number + 1
        self.names.add(name)
        keys = dict.fromkeys((relation.key, *self.further_keys.get(relation, ())))
        qualified = (tuple(f"{name}.{column}" for column in key) for key in keys if key)
        return TableReference(name, relation, tuple(qualified))

    # -- conditions -------------------------------------------------------------------------------

    def _conditions(self, select: exp.Select) -> Iterator[exp.Expr]:
        """The conjuncts of ON and WHERE."""
        joins = select.args.get("joins") or ()
        where = select.args.get("where")
        for node in (*(join.args.get("on") for join in joins), where and where.this):
            if node is not None:
                yield from _conjuncts(node)

    def _conjunct(self, node: exp.Expr, scope: _Scope) -> Conjunct:
        found = [self._column(column, scope) for column in node.find_all(exp.Column)]
        columns = frozenset(column for column in found if column is not None)
        equal: tuple[str, ...] = ()
        if isinstance(node, exp.EQ):
            equal = self._equal(node.left, node.right, scope)
        return Conjunct(node.sql("duckdb"), columns, equal, _rejects_null(node))

    def _equal(self, left: exp.Expr, right: exp.Expr, scope: _Scope) -> tuple[str, ...]:
        """The columns on both sides of `=`, if each side is a column or a constant."""
        found = []
        for side in (left.unnest(), right.unnest()):
            if isinstance(side, exp.Column):
                found.append(self._column(side, scope))
            elif side.find(exp.Column, exp.Query) is not None:
                return ()
        return tuple(column for column in found if column is not None)

    def _column(self, column: exp.Column, scope: _Scope) -> str | None:
        """The column by its own name; None for one of a deeper subquery."""
        found = scope.column(column)
        if found is None and column.parent_select is scope.select:
            self.text.refuse(column, f"no relation in FROM has a column {column.sql()}")
        return found

    def _shown(self, item: exp.Expr, scope: _Scope) -> Iterator[str]:
        if isinstance(item, exp.Star):
            for reference in scope.tables.values():
                yield from reference.columns
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            yield from scope.tables[item.table.lower()].columns
        elif isinstance(item, exp.Column):
            column = self._column(item, scope)
            if column is not None:
                yield column

    # -- subqueries -------------------------------------------------------------------------------

    def _subquery(self, node: exp.Expr, outer: _Scope) -> Subquery | None:
        """A condition that is a single subquery; None if it is anything else."""
        inner, negated = node, False
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        comparison = _comparison(inner)
        if comparison is None:
            return None
        operator, left, query = comparison
        select = query.unnest()
        if not isinstance(select, exp.Select) or _reaches_deeper(select):
            return None
        tables, places, conjuncts = self._from(select, outer)
        scope = _Scope(select, tables, outer)
        conjuncts += [self._conjunct(each, scope) for each in self._conditions(select)]
        compares, compared = [], list[str]()
        for ours, theirs in zip(left, _items(select, tables), strict=False):
            sides = [self._side(ours, outer), self._side(theirs, scope)]
            columns = frozenset(column for side in sides for column in side.columns)
            plain = tuple(side.text for side in sides if side.columns == {side.text})
            equal = plain if operator == "=" and len(plain) == 2 else ()
            text = f"{sides[0].text} {operator} {sides[1].text}"
            compares.append(Conjunct(text, columns, equal))
            compared += [side.text for side in sides if side.columns]
        negative = negated != isinstance(inner.args.get("expression"), exp.All)
        return Subquery(
            "negative" if negative else "positive",
            tuple(tables.values()),
            tuple(conjuncts),
            tuple(compares),
            tuple(compared),
            node,
            places,
        )

    def _side(self, side: exp.Expr, scope: _Scope) -> Conjunct:
        """One side of a comparison with a subquery; a column by its own name."""
        side = side.unnest()
        found = self._conjunct(side, scope)
        return replace(found, text=min(found.columns)) if isinstance(side, exp.Column) else found


def _items(select: exp.Select, tables: Mapping[str, TableReference]) -> Iterator[exp.Expr]:
    """What a subquery shows, * written out."""
    for item in select.expressions:
        if isinstance(item, exp.Star):
            for alias, reference in tables.items():
                yield from (exp.column(c, table=alias) for c in reference.relation.column_names)
        else:
            yield item.unalias()


def _comparison(node: exp.Expr) -> tuple[str, list[exp.Expr], exp.Expr] | None:
    """(operator, what is compared, the SELECT) of a condition that is a subquery."""
    if isinstance(node, exp.Exists):
        return "", [], node.this
    if isinstance(node, exp.In) and node.args.get("query") is not None:
        left = node.this.unnest()
        return "=", left.expressions if isinstance(left, exp.Tuple) else [left], node.args["query"]
    right = node.args.get("expression")
    if type(node) in _COMPARISONS and isinstance(right, exp.Any | exp.All):
        operator = _COMPARISONS[type(node)][isinstance(right, exp.All)]
        return operator, [node.this], right.this
    return None


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _reaches_deeper(select: exp.Select) -> bool:
    """Whether there are further subqueries in it."""
    return any(query is not select for query in select.find_all(exp.Query))


def _rejects_null(node: exp.Expr) -> bool:
    """Whether it is a comparison of columns and constants as they are, or IS NOT NULL of one."""
    if isinstance(node, exp.Not) and isinstance(node.this, exp.Is):
        return isinstance(node.this.this, exp.Column) and isinstance(node.this.expression, exp.Null)
    sides = (node.args.get("this"), node.args.get("expression"))
    return type(node) in _COMPARISONS and all(
        isinstance(s, exp.Column | exp.Literal) for s in sides
    )
