"""GROUP BY, aggregates and HAVING.

Grouping expressions and the arguments of aggregates become columns of their own, with a `Group`
above them. From there on the text may name only grouping expressions and aggregates.
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from protocols.algebra.expressions import Case, Column, Expression, Literal
from protocols.algebra.types import BIGINT, SqlType, column_type
from protocols.views import tree
from protocols.views.binding.rows import GatheredRows
from protocols.views.binding.scope import Scope, ShownColumn
from protocols.views.operands import kept, type_name
from protocols.views.scalars import ScalarReader

_FUNCTIONS: dict[type[exp.Expr], tree.AggregateFunction] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_FIRST_BELOW = "aggregate in a subquery in FROM first"


class Grouping:
    """The grouping of one SELECT."""

    def __init__(
        self, select: exp.Select, scope: Scope, scalars: ScalarReader, rows: GatheredRows
    ) -> None:
        """`scalars` are those of the SELECT before it is restricted to grouped values."""
        self._select = select
        self._text = scope.text
        self._scope, self._scalars, self._rows = scope, scalars, rows
        #: The expressions of GROUP BY, as they are written → their columns.
        self._keys: dict[exp.Expr, ShownColumn] = {}
        #: Aggregates as they are written → their columns.
        self._aggregates: dict[exp.Expr, ShownColumn] = {}

    def group(self, also: Sequence[ShownColumn] = ()) -> None:
        """Puts the Group on top of the rows so far; `also` are further keys."""
        keys = [(node, self._key(node)) for node in self._expressions()]
        aggregates = [(node, *self._aggregate(node)) for node in self._called()]
        self._keys = dict(keys)
        self._aggregates = {node: ShownColumn(each.name, type_) for node, each, type_ in aggregates}
        names = dict.fromkeys(shown.name for shown in (*also, *(s for _, s in keys)))
        wanted = {each.name: each for _, each, _ in aggregates}
        self._rows.group(tuple(names), tuple(wanted.values()))

    def value(self, node: exp.Expr) -> tuple[Expression, SqlType] | None:
        """The column of a grouping expression or an aggregate."""
        shown = self._aggregates.get(node) or self._keys.get(node)
        return None if shown is None else (Column(shown.name), shown.type)

    def refuse_ungrouped(self, column: exp.Column, shown: ShownColumn) -> None:
        """Refuses a column beside aggregates unless GROUP BY has it."""
        if shown.name not in {key.name for key in self._keys.values()}:
            self._text.refuse(
                column,
                f"{column.sql()!r} is neither in GROUP BY nor in an aggregate, so a group has no"
                " single value of it",
            )

    def refuse_inside(self, node: exp.Expr) -> None:
        """Refuses a subquery that names more of the groups around it than columns of GROUP BY."""
        summed = {id(c) for each in aggregates_in(node) for c in each.find_all(exp.Column)}
        for column in node.find_all(exp.Column):
            if id(column) not in summed:
                self.refuse_ungrouped(column, self._scope.column(column))

    def _expressions(self) -> Iterator[exp.Expr]:
        group = self._select.args.get("group")
        if group is None:
            return
        for node in group.expressions:
            yield self._meant(node)

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """The item of SELECT that GROUP BY 2 or GROUP BY alias stands for; else the node itself."""
        items = self._select.expressions
        if isinstance(node, exp.Literal) and not node.is_string:
            number = int(node.this) if node.this.isdigit() else 0
            if not 1 <= number <= len(items):
                self._text.refuse(node, f"SELECT has no item {node.this}, it has {len(items)}")
            return _unnamed(items[number - 1])
        if isinstance(node, exp.Column) and not node.table and not self._scope.has(node.name):
            for item in items:
                if item.alias.lower() == node.name.lower():
                    return _unnamed(item)
        return node

    def _key(self, node: exp.Expr) -> ShownColumn:
        if has_aggregate(node):
            self._text.refuse(node, f"an aggregate cannot be grouped by; {_FIRST_BELOW}")
        return self._rows.column(*self._scalars.typed(node), "group")

    # -- aggregates ------------------------------------------------------------------------------

    def _called(self) -> Iterator[exp.Expr]:
        """The aggregates of SELECT and HAVING, each once."""
        clauses = [*self._select.expressions, self._select.args.get("having")]
        found: dict[exp.Expr, None] = {}
        for clause in clauses:
            if clause is not None:
                found.update(dict.fromkeys(aggregates_in(clause)))
        yield from found

    def _aggregate(self, node: exp.Expr) -> tuple[tree.Aggregate, SqlType]:
        """The aggregate, and its type in SQL."""
        condition = None
        call = node
        if isinstance(node, exp.Filter):
            call, condition = node.this, node.expression.this
        function = _FUNCTIONS.get(type(call))
        if function is None:
            known = "COUNT, SUM, AVG, MIN and MAX"
            self._text.refuse(call, f"{call.sql('duckdb')}: of aggregates, {known} are kept")
        argument = call.this
        distinct = isinstance(argument, exp.Distinct)
        if distinct:
            if len(argument.expressions) != 1:
                many = "DISTINCT takes one value in an aggregate"
                self._text.refuse(call, f"{many}; count the rows of a SELECT DISTINCT in FROM")
            argument = argument.expressions[0]
        counts_rows = isinstance(argument, exp.Star) and function == "count" and not distinct
        if argument is None or (isinstance(argument, exp.Star) and not counts_rows):
            self._text.refuse(call, f"{call.sql('duckdb')}: only COUNT(*) needs no value")
        name = self._rows.names.fresh(function)
        if counts_rows:
            return self._count_all(name, condition), BIGINT
        column = self._argument(argument, condition)
        type_ = self._type(function, column.type, call)
        return tree.Aggregate(name, function, column.name, kept(type_), distinct), type_

    def _count_all(self, name: str, condition: exp.Expr | None) -> tree.Aggregate:
        if condition is None:
            return tree.Aggregate(name, "count", None, BIGINT)
        column = self._chosen(Literal(1, BIGINT), BIGINT, condition)
        return tree.Aggregate(name, "count", column.name, BIGINT)

    def _argument(self, argument: exp.Expr, condition: exp.Expr | None) -> ShownColumn:
        if has_aggregate(argument):
            self._text.refuse(
                argument, f"an aggregate cannot stand in an aggregate; {_FIRST_BELOW}"
            )
        value, type_ = self._scalars.typed(argument)
        return self._chosen(value, type_, condition)

    def _chosen(self, value: Expression, type_: SqlType, condition: exp.Expr | None) -> ShownColumn:
        """The value as a column; NULL, which no aggregate counts, where FILTER is not true."""
        if condition is not None:
            test = self._scalars.condition(condition)
            value = Case(((test, value),), Literal(None, kept(type_)), kept(type_))
        return self._rows.column(value, type_, "value")

    def _type(self, function: tree.AggregateFunction, type_: SqlType, at: exp.Expr) -> SqlType:
        if function == "count":
            return BIGINT
        if function in ("min", "max"):
            return type_
        if type_.family == "DOUBLE":
            self._text.refuse(
                at,
                f"{at.sql('duckdb')}: a sum of DOUBLE depends on the order of its rows; cast the"
                " value to a DECIMAL",
            )
        if kept(type_).family not in ("BIGINT", "DECIMAL"):
            self._text.refuse(
                at, f"{at.sql('duckdb')}: {type_name(type_)} cannot be added up, only numbers"
            )
        if function == "avg":
            return column_type("DOUBLE")
        scale = type_.precision_and_scale[1] if type_.family == "DECIMAL" else 0
        return column_type(f"DECIMAL(38,{scale})")


def _unnamed(item: exp.Expr) -> exp.Expr:
    """An item of SELECT without its AS."""
    return item.this if isinstance(item, exp.Alias) else item


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of a clause itself, not those of its subqueries."""
    if isinstance(node, exp.Filter | exp.AggFunc):
        yield node
        return
    if isinstance(node, exp.Query):
        return
    for child in node.iter_expressions():
        yield from aggregates_in(child)


def has_aggregate(node: exp.Expr) -> bool:
    """Whether a clause aggregates."""
    return next(aggregates_in(node), None) is not None
