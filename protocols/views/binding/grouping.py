"""GROUP BY, aggregates and HAVING.

Grouping expressions and the arguments of aggregates become columns of their own, with a `Group`
above them. From there on the text may name only grouping expressions and aggregates.

BOOL_AND and BOOL_OR follow from counts: of the values, and of those that decide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from protocols.algebra.expressions import (
    Call,
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    IsTrue,
    Literal,
    Not,
)
from protocols.algebra.function import Unfit
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.numbertypes import INTEGER
from protocols.algebra.types import BIGINT, BOOLEAN, DOUBLE, SqlType, column_type
from protocols.views import tree
from protocols.views.binding import distinctvalues
from protocols.views.binding.groupingsets import GroupingSet, grouped_by
from protocols.views.binding.rows import GatheredRows, with_columns
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
_NOTHING = Literal(None, BIGINT)
_SPREAD = (
    exp.Variance,
    exp.VariancePop,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Corr,
    exp.CovarPop,
    exp.CovarSamp,
)
_ANY_ROW = (exp.ArgMax, exp.ArgMin, exp.First, exp.Last, exp.AnyValue, exp.IgnoreNulls)
_RANKED = (exp.Median, exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.Mode)
#: Aggregates that cannot be kept → the reason, and what can be kept instead.
_NOT_KEPT: dict[tuple[type[exp.Expr], ...], str] = {
    _SPREAD: "the databases round it differently; keep COUNT(x), SUM(x) and SUM(x * x), from which"
    " it follows",
    _ANY_ROW: "of several rows the databases take any; keep MIN or MAX, and join the rows that"
    " have it",
    (exp.GroupConcat, exp.ArrayAgg): "it depends on an order of the rows; keep the rows, and"
    " aggregate them when you read the view",
    (*_RANKED, exp.WithinGroup): "it needs all values of a group; keep each value with its"
    " COUNT(*), and compute it when you read the view",
    (exp.CountIf,): "PostgreSQL does not have it; write COUNT(*) FILTER (WHERE …)",
}
#: The truth value that decides over BOOL_AND and BOOL_OR, and is the result then.
_DECIDED_BY: dict[type[exp.Expr], bool] = {exp.LogicalAnd: False, exp.LogicalOr: True}
_FIRST_BELOW = "aggregate in a subquery in FROM first"


@dataclass(frozen=True)
class AggregateValue:
    """An aggregate of the text: what has to be aggregated, and its value and type then."""

    parts: tuple[tree.Aggregate, ...]
    value: Expression
    type: SqlType


class Grouping:
    """The grouping of one SELECT."""

    def __init__(
        self,
        select: exp.Select,
        scope: Scope,
        scalars: ScalarReader,
        rows: GatheredRows,
        of_set: GroupingSet | None = None,
    ) -> None:
        """`scalars` are those of the SELECT before it is restricted to grouped values.

        `of_set` has those expressions of GROUP BY that are grouped by, if not all are.
        """
        self._select = select
        self._text = scope.text
        self._scope, self._scalars, self._rows = scope, scalars, rows
        self._set = None if of_set is None else [self._meant(node) for node in of_set]
        #: The expressions of GROUP BY, as they are written → their columns.
        self._keys: dict[exp.Expr, ShownColumn] = {}
        #: Aggregates as they are written.
        self._aggregates: dict[exp.Expr, AggregateValue] = {}
        #: The columns that count: these are 0, and not NULL, over nothing.
        self.counts: frozenset[str] = frozenset()

    def group(self, also: Sequence[ShownColumn] = ()) -> None:
        """Puts the Group on top of the rows so far; `also` are further keys."""
        keys = {node: self._key(node) for node in self._expressions()}
        self._aggregates = {node: self._aggregate(node) for node in self._called()}
        self._keys = keys
        of_set = [shown for node, shown in keys.items() if self._set is None or node in self._set]
        names = tuple(dict.fromkeys(shown.name for shown in (*also, *of_set)))
        parts = {each.name: each for a in self._aggregates.values() for each in a.parts}
        self.counts = frozenset(e.name for e in parts.values() if e.function == "count")
        below, fresh = self._rows.node, self._rows.names
        group = distinctvalues.grouped(below, names, list(parts.values()), fresh)
        lacking = {s.name: kept(s.type) for s in keys.values() if s.name not in names}
        nulls = [(name, Literal(None, type_), type_) for name, type_ in lacking.items()]
        self._rows.node = with_columns(group, [*nulls])

    def value(self, node: exp.Expr) -> tuple[Expression, SqlType] | None:
        """The value of a grouping expression or an aggregate."""
        if isinstance(node, exp.Grouping):
            return self._lacking(node), BIGINT
        if (aggregate := self._aggregates.get(node)) is not None:
            return aggregate.value, aggregate.type
        shown = self._keys.get(node)
        return None if shown is None else (Column(shown.name), shown.type)

    def _lacking(self, node: exp.Grouping) -> Literal:
        """GROUPING(a, b): a number with a bit for each expression, 1 if the set lacks it."""
        number = 0
        for each in node.expressions:
            if each not in self._keys:
                self._text.refuse(each, f"{each.sql('duckdb')} in GROUPING is not in GROUP BY")
            number = 2 * number + (self._set is not None and each not in self._set)
        return Literal(number, BIGINT)

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
        yield from dict.fromkeys(map(self._meant, grouped_by(group)))

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
        more = (self._select.args.get(name) for name in ("having", "qualify"))
        clauses = [*self._select.expressions, *more]
        found: dict[exp.Expr, None] = {}
        for clause in clauses:
            if clause is not None:
                found.update(dict.fromkeys(aggregates_in(clause)))
        yield from found

    def _aggregate(self, node: exp.Expr) -> AggregateValue:
        condition = None
        call = node
        if isinstance(node, exp.Filter):
            call, condition = node.this, node.expression.this
        if type(call) in _DECIDED_BY:
            return self._decided(call, _DECIDED_BY[type(call)], condition)
        function = _FUNCTIONS.get(type(call))
        if function is None:
            self._refuse_aggregate(call)
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
            counted = self._count_all(name, condition)
            return AggregateValue((counted,), Column(name), BIGINT)
        column = self._argument(argument, condition)
        type_ = self._type(function, column.type, call)
        if self._text.dialect == "postgres" and column.type != DOUBLE:
            if function == "avg":
                return self._exact_average(column, distinct, call)
            if function == "sum" and column.type == INTEGER:
                each = tree.Aggregate(name, function, column.name, kept(type_), distinct)
                return AggregateValue((each,), Call("cast", (Column(name),), BIGINT), BIGINT)
        each = tree.Aggregate(name, function, column.name, kept(type_), distinct)
        return AggregateValue((each,), Column(name), type_)

    def _refuse_aggregate(self, call: exp.Expr) -> NoReturn:
        reasons = (why for kinds, why in _NOT_KEPT.items() if isinstance(call, kinds))
        why = next(
            reasons, "of aggregates, COUNT, SUM, AVG, MIN, MAX, BOOL_AND and BOOL_OR are kept"
        )
        self._text.refuse(call, f"{call.sql('duckdb')}: {why}")

    def _decided(self, call: exp.Expr, by: bool, condition: exp.Expr | None) -> AggregateValue:
        """BOOL_AND is false if one value is, BOOL_OR true; NULL if there is no value."""
        argument = call.this
        if isinstance(argument, exp.Distinct):
            (argument,) = argument.expressions
        column = self._argument(argument, condition)
        if column.type != BOOLEAN:
            what = f"{call.sql('duckdb')}: {type_name(column.type)} is no condition"
            self._text.refuse(call, f"{what}; compare it with a value")
        truth: Condition = IsTrue(Column(column.name))
        decisive = Case(((truth if by else Not(truth), Literal(1, BIGINT)),), _NOTHING, BIGINT)
        marked = self._rows.column(decisive, BIGINT, "decisive")
        parts = [
            tree.Aggregate(self._rows.names.fresh(name), "count", of.name, BIGINT)
            for name, of in (("values", column), ("decided", marked))
        ]
        number, deciding = (Column(each.name) for each in parts)
        branches = (
            (Comparison(number, "=", Literal(0, BIGINT)), Literal(None, BOOLEAN)),
            (Comparison(deciding, ">", Literal(0, BIGINT)), Literal(by, BOOLEAN)),
        )
        return AggregateValue(
            tuple(parts), Case(branches, Literal(not by, BOOLEAN), BOOLEAN), BOOLEAN
        )

    def _exact_average(self, column: ShownColumn, distinct: bool, call: exp.Expr) -> AggregateValue:
        """AVG of PostgreSQL: SUM / COUNT, as exact numbers."""
        added = kept(self._type("sum", column.type, call))
        fresh, counted = self._rows.names.fresh, column_type("DECIMAL(19,0)")
        total = tree.Aggregate(fresh("sum"), "sum", column.name, added, distinct)
        number = tree.Aggregate(fresh("count"), "count", column.name, BIGINT, distinct)
        try:
            type_ = FUNCTIONS["exact quotient"].signature([added, counted]).result
        except Unfit as error:
            self._text.refuse(call, str(error))
        divisor = Call("cast", (Column(number.name),), counted)
        quotient = Call("exact quotient", (Column(total.name), divisor), kept(type_))
        return AggregateValue((total, number), quotient, type_)

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
        if kept(type_).family not in ("BIGINT", "DECIMAL", "DOUBLE"):
            self._text.refuse(
                at, f"{at.sql('duckdb')}: {type_name(type_)} cannot be added up, only numbers"
            )
        if function == "avg" or type_ == DOUBLE:
            return DOUBLE
        scale = type_.precision_and_scale[1] if type_.family == "DECIMAL" else 0
        return column_type(f"DECIMAL(38,{scale})")


def _unnamed(item: exp.Expr) -> exp.Expr:
    """An item of SELECT without its AS."""
    return item.this if isinstance(item, exp.Alias) else item


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of a clause itself, not those of its subqueries."""
    if isinstance(node, exp.Grouping):
        return
    if isinstance(node, exp.Window):
        # A window function is no aggregate, but its parts may be.
        filtered = isinstance(node.this, exp.Filter)
        called = node.this.this if filtered else node.this
        parts = [each for each in node.iter_expressions() if each is not node.this]
        parts += [*called.iter_expressions(), *([node.this.expression] if filtered else [])]
        for part in parts:
            yield from aggregates_in(part)
        return
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
