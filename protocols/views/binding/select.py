"""Reads a query clause by clause: FROM, WHERE, GROUP BY, HAVING, SELECT, DISTINCT.

Names are unique in the whole tree, so a subquery may be joined anywhere without renaming.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from sqlglot import exp

from protocols.algebra.expressions import Column, Condition, Expression, conjunction
from protocols.algebra.types import SqlType
from protocols.views import tree
from protocols.views.binding import setoperations
from protocols.views.binding.conditions import conjuncts
from protocols.views.binding.grouping import Grouping, has_aggregate
from protocols.views.binding.groupingsets import GroupingSet, grouping_sets
from protocols.views.binding.rows import GatheredRows, Names
from protocols.views.binding.scope import NamedColumn, Scope, ShownColumn, Visible
from protocols.views.binding.sources import Bound, Common, From, renamed
from protocols.views.binding.statement import Text
from protocols.views.binding.subqueries import Inner, Subqueries
from protocols.views.binding.windows import Windows
from protocols.views.catalog import Catalog
from protocols.views.naming import item_names
from protocols.views.operands import kept
from protocols.views.scalars import ScalarReader


@dataclass
class Binder:
    """The state that all parts of one view's text share."""

    text: Text
    catalog: Catalog
    names: Names = field(default_factory=Names)
    #: Where each relation of the tree stands in the text, by the alias of its atom.
    places: dict[str, exp.Expr] = field(default_factory=dict)

    def whole(self, query: exp.Query) -> Bound:
        """Reads the query of the view, whose columns need names of their own."""
        node, columns = self.query(query, {})
        seen: set[str] = set()
        for each in columns:
            if each.name.lower() in seen:
                two = f"two columns are called {each.name!r}"
                self.text.refuse(each.at, f"{two}; give one another name with AS")
            seen.add(each.name.lower())
        return node, columns

    def query(self, query: exp.Query, common: Common, outer: Scope | None = None) -> Bound:
        """Reads a SELECT or a set operation: its node, and its columns in order."""
        common = self.common(query, common)
        if isinstance(query, exp.SetOperation):
            sides = [self.query(side, common) for side in (query.left, query.right)]
            return setoperations.bound(self.text, self.names, query, sides[0], sides[1])
        if isinstance(query, exp.Subquery):
            return self.query(query.this, common, outer)
        if not isinstance(query, exp.Select):
            self.text.refuse(query, "only SELECT, UNION, INTERSECT and EXCEPT can stand here")
        sets = grouping_sets(self.text, query)
        if sets is None:
            return Select(self, common, query, outer).bound()
        read = [Select(self, common, query, outer, each).bound() for each in sets]
        return setoperations.all_of(self.names, read, bool(query.args.get("distinct")))

    def common(self, query: exp.Query, around: Common) -> Common:
        """Reads WITH: each name stands for its query, which may use the names before it."""
        with_ = query.args.get("with_")
        known = dict(around)
        for each in () if with_ is None else with_.expressions:
            known[each.alias.lower()] = partial(self._common_query, each, dict(known))
        return known

    def _common_query(self, named: exp.CTE, known: Common) -> Bound:
        """Reads a query of WITH, perhaps with names for its columns."""
        node, columns = self.query(named.this, known)
        given = named.args["alias"].columns
        return node, renamed(self.text, columns, given, named.alias, named)


@dataclass(frozen=True)
class Item:
    """A column that SELECT shows."""

    name: str
    value: Expression
    type: SqlType
    at: exp.Expr


class Select:
    """Turns one SELECT into a node."""

    def __init__(
        self,
        binder: Binder,
        common: Common,
        select: exp.Select,
        outer: Scope | None = None,
        of_set: GroupingSet | None = None,
    ) -> None:
        """`of_set` is what is grouped by, if GROUP BY has several sets."""
        self._set = of_set
        self.binder = binder
        self.common = common
        self.select = select
        self.text = binder.text
        self.names = binder.names
        self._outer = outer
        self.grouping: Grouping | None = None
        from_ = From(
            self.text,
            binder.catalog,
            self.names,
            common,
            lambda query: binder.query(query, common),
            self._condition_of_join,
            self._scalars(self._no_column, self._refuse_aggregate).constants,
            binder.places,
        ).whole(select)
        self.from_ = from_.node
        self.scope = Scope(self.text, from_.visible, outer)
        self.rows = GatheredRows(self.from_, self.names)
        self.scalars = self._scalars(self._column, self._special)
        self.windows = Windows(self.text, self.scalars, self.rows)
        self.subqueries = Subqueries(
            self.text, self.rows, self.scalars, self.inner, self._refuse_inside
        )
        #: The conjuncts of its conditions; None for a subquery that is joined to the rows.
        self.conjuncts: list[tuple[exp.Expr, Condition | None]] = []
        #: The subqueries of its conditions, as first read, by the identity of their nodes.
        self.inners: dict[int, tuple[Select, Inner]] = {}
        self.shown: list[Item] = []

    def bound(self) -> Bound:
        """Reads the whole SELECT."""
        where = self.select.args.get("where")
        if where is not None:
            self.filter(where.this)
        self.group()
        self._read_windows()
        items = list(self._items())
        self.shown = items
        distinct = self.select.args.get("distinct")
        if distinct and not distinct.args.get("on"):
            return self._distinct(items)
        columns = tuple(
            NamedColumn(item.name, self.rows.column(item.value, item.type, item.name), item.at)
            for item in items
        )
        return self.rows.node, columns

    def _read_windows(self) -> None:
        """Reads window functions, and keeps the rows that QUALIFY or DISTINCT ON says."""
        qualify, distinct = self.select.args.get("qualify"), self.select.args.get("distinct")
        test = None if qualify is None else self._without_names(qualify.this)
        tests = [] if test is None else [test]
        self.windows.read([*self.select.expressions, *tests])
        if test is not None:
            self.rows.filter(conjunction(tuple(map(self.scalars.condition, conjuncts(test)))))
        if distinct and (on := distinct.args.get("on")):
            keys = on.expressions if isinstance(on, exp.Tuple) else [on]
            self.windows.first_of_each(keys, self.select.args.get("order"), distinct)

    def _without_names(self, node: exp.Expr) -> exp.Expr:
        """A condition in which the names of items are the items themselves."""
        items = {item.alias.lower(): item.this for item in self.select.expressions if item.alias}

        def meant(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column) and not part.table and not self.scope.has(part.name):
                item: exp.Expr = items.get(part.name.lower(), part)
                return item.copy()
            return part

        found: exp.Expr = node.copy().transform(meant)
        return found

    def filter(self, where: exp.Expr) -> None:
        """Keeps the rows for which a condition of the text is true."""
        tests: list[Condition] = []
        for part in conjuncts(where):
            joined = self.subqueries.restricts(part)
            tests += [] if joined else [self.scalars.condition(part)]
            self.conjuncts.append((part, None if joined else tests[-1]))
        self.rows.filter(conjunction(tuple(tests)))

    # -- as a subquery of a condition ------------------------------------------------------------

    def inner(self, query: exp.Select) -> Inner:
        """Reads a subquery of ours: its rows, and the conditions of its WHERE that link it."""
        if grouping_sets(self.text, query) is not None:
            what = "GROUPING SETS, ROLLUP and CUBE cannot stand in a subquery of a condition"
            self.text.refuse(query.args["group"], f"{what}; move it to WITH, and select from there")
        common = self.binder.common(query, self.common)
        select = Select(self.binder, common, query, self.scope)
        where = query.args.get("where")
        aggregates = select.is_grouped() or bool(query.args.get("distinct"))
        scalars = select.scalars
        inner = Inner(query, select.rows, scalars, select.of_both(), aggregates, select.group)
        own = []
        for part in () if where is None else conjuncts(where.this):
            if not select.names_outer(part):
                own.append(part)
                continue
            inner.links.append(part)
            if (equality := select.link(part)) is not None:
                inner.equalities.append(equality)
            else:
                inner.others.append(part)
        for part in own:
            select.filter(part)
        self.inners.setdefault(id(query), (select, inner))
        return inner

    def names_outer(self, node: exp.Expr) -> bool:
        """Whether a column of the query around is named, subqueries in between not counted."""
        parts = node.walk(prune=lambda part: isinstance(part, exp.Query))
        columns = (part for part in parts if isinstance(part, exp.Column))
        return any(map(self.scope.is_outer, columns))

    def link(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """An equality as (value of the query around, value of ours); None for other conditions."""
        node = node.unnest() if isinstance(node, exp.Paren) else node
        if not isinstance(node, exp.EQ):
            return None
        for around, ours in ((node.left, node.right), (node.right, node.left)):
            columns = list(around.find_all(exp.Column))
            if columns and all(map(self.scope.is_outer, columns)) and not self.names_outer(ours):
                return around, ours
        return None

    def group(self, keys: Sequence[ShownColumn] = ()) -> frozenset[str]:
        """Groups, by these columns too, if the text aggregates; then applies HAVING.

        Returns the columns that count.
        """
        if self.is_grouped():
            grouping = Grouping(self.select, self.scope, self.scalars, self.rows, self._set)
            grouping.group(keys)
            self.grouping = grouping
        having = self.select.args.get("having")
        if having is not None:
            self.filter(having.this)
        return frozenset() if self.grouping is None else self.grouping.counts

    def of_both(self) -> ScalarReader:
        """Reads conditions that name columns of the query around as well."""

        def either(column: exp.Column) -> tuple[str, SqlType]:
            shown = self.scope.column(column)
            return shown.name, shown.type

        return self._scalars(either, lambda _: None)

    def _scalars(
        self,
        column: Callable[[exp.Column], tuple[str, SqlType]],
        special: Callable[[exp.Expr], tuple[Expression, SqlType] | None],
    ) -> ScalarReader:
        return ScalarReader(column, self.text.refuse, special, self.text.dialect)

    # -- for the parts of the text ---------------------------------------------------------------

    def _column(self, column: exp.Column) -> tuple[str, SqlType]:
        shown = self._own(self.scope, column)
        if self.grouping is not None:
            self.grouping.refuse_ungrouped(column, shown)
        return shown.name, shown.type

    def _own(self, scope: Scope, column: exp.Column) -> ShownColumn:
        """A column of this SELECT; refuses one of the query around."""
        shown = scope.column(column)
        if scope.is_outer(column):
            self.text.refuse(
                column,
                f"{column.sql()!r} is a column of the query around; in a subquery those can only"
                " stand in conditions of WHERE",
            )
        return shown

    def _no_column(self, column: exp.Column) -> NoReturn:
        self.text.refuse(column, "VALUES can only list constants; select columns FROM a relation")

    def _condition_of_join(self, node: exp.Expr, visible: Visible) -> Condition:
        """Reads ON, which can name the columns of the two sides."""
        scope = Scope(self.text, visible, self._outer)

        def column(named: exp.Column) -> tuple[str, SqlType]:
            shown = self._own(scope, named)
            return shown.name, shown.type

        scalars = self._scalars(column, self._refuse_aggregate)
        test = conjunction(tuple(map(scalars.condition, conjuncts(node))))
        assert test is not None
        return test

    def _special(self, node: exp.Expr) -> tuple[Expression, SqlType] | None:
        """Reads nodes that are more than scalars: aggregates, grouped expressions, subqueries."""
        if (window := self.windows.value(node)) is not None:
            return window
        if self.grouping is not None:
            found = self.grouping.value(node)
            if found is not None:
                return found
        else:
            self._refuse_aggregate(node)
        return self.subqueries.value(node)

    def _refuse_aggregate(self, node: exp.Expr) -> None:
        if is_aggregate(node):
            self.text.refuse(
                node,
                f"{node.sql('duckdb')} is an aggregate, which cannot stand here; test it in HAVING",
            )

    def _refuse_inside(self, node: exp.Expr) -> None:
        """Refuses a subquery that names ungrouped columns of the groups around it."""
        if self.grouping is not None:
            self.grouping.refuse_inside(node)

    def is_grouped(self) -> bool:
        """Whether the text groups or aggregates."""
        clauses = any(self.select.args.get(name) for name in ("group", "having"))
        return clauses or any(map(has_aggregate, self.select.expressions))

    # -- SELECT ----------------------------------------------------------------------------------

    def _items(self) -> Iterator[Item]:
        names = item_names(self.select.expressions, self.text.sql)
        for item, name in zip(self.select.expressions, names, strict=True):
            inner = item.unalias()
            if inner.is_star:
                if self.grouping is not None:
                    self.text.refuse(inner, "* cannot stand beside GROUP BY; list the columns")
                alias = inner.table if isinstance(inner, exp.Column) else ""
                for each in self.scope.star(alias, inner):
                    yield Item(each.name, Column(each.shown.name), each.shown.type, inner)
                continue
            if name.startswith("_"):
                self.text.refuse(item, f"{name!r}: names with a leading _ are reserved")
            yield Item(name, *self.scalars.typed(inner), item)

    def _distinct(self, items: list[Item]) -> Bound:
        columns = tuple(
            NamedColumn(each.name, ShownColumn(self.names.fresh(each.name), each.type), each.at)
            for each in items
        )
        values = tuple(
            (column.shown.name, each.value, kept(each.type))
            for column, each in zip(columns, items, strict=True)
        )
        keys = tuple(each.shown.name for each in columns)
        return tree.Group(tree.Compute(self.rows.node, values), keys, ()), columns


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node is itself an aggregate."""
    return isinstance(node, exp.AggFunc)
