"""Subqueries in conditions: EXISTS, IN, ANY, ALL, and a single value.

A subquery is joined to the rows of the query around it; at least some of its links have to be
equalities (`inner = outer`). As a conjunct of WHERE, EXISTS and IN are semi joins and NOT EXISTS is
an anti join. Anywhere else they are values: the subquery is counted per value of its links, a left
join adds the counts, and the value follows from them in three-valued logic (the counting method):

    EXISTS            there are rows
    x IN S            a row equals x; else unknown if x is NULL and there are rows, or one is NULL
    x > ALL S         no rows, or x above the greatest; unknown if one is NULL
    (SELECT f(…) …)   the aggregate of the group; over nothing, COUNT is 0 and all else is NULL

A value that is linked by a key has one row at most, which a left join looks up. EXISTS without
links is one truth for all rows: it is made from the count of the subquery, and changes only when
that becomes zero or stops being zero.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from protocols.algebra.expressions import (
    And,
    Case,
    Column,
    Comparison,
    Condition,
    Expression,
    IsNull,
    Literal,
    Not,
    Or,
    Truth,
    conjunction,
    in_value,
)
from protocols.algebra.types import BIGINT, BOOLEAN, ColumnType, SqlType
from protocols.views import tree
from protocols.views.binding.conditions import SubqueryQuestion, asked, bare, row_of, without_not
from protocols.views.binding.rows import GatheredRows, either, has_one_row_at_most
from protocols.views.binding.scope import ShownColumn
from protocols.views.binding.statement import Text
from protocols.views.operands import kept
from protocols.views.scalars import ScalarReader

_ZERO = Literal(0, BIGINT)
_TRUE, _FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)
_UNKNOWN = Literal(None, BOOLEAN)


@dataclass
class Inner:
    """A subquery by itself, and its links to the query around."""

    select: exp.Select
    rows: GatheredRows
    scalars: ScalarReader
    #: Reads conditions that name columns of the query around as well.
    of_both: ScalarReader
    #: Whether the text groups or aggregates.
    aggregates: bool
    #: Groups the rows, if the text does, by these columns as well; returns those that count.
    group: Callable[[Sequence[ShownColumn]], frozenset[str]]
    #: Equalities (of the query around, of the subquery), as they stand in the text.
    equalities: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    #: Other conditions over columns of both.
    others: list[exp.Expr] = field(default_factory=list)
    #: All conditions over columns of both, equalities too.
    links: list[exp.Expr] = field(default_factory=list)


class Subqueries:
    """The subqueries in the conditions of one SELECT."""

    def __init__(
        self,
        text: Text,
        rows: GatheredRows,
        scalars: ScalarReader,
        read: Callable[[exp.Select], Inner],
        refuse_inside: Callable[[exp.Expr], None],
    ) -> None:
        """`rows` and `scalars` are the SELECT's; `refuse_inside` limits the names in a subquery."""
        self._text = text
        self._rows = rows
        self._scalars = scalars
        self._read = read
        self._refuse_inside = refuse_inside

    # -- as a conjunct of WHERE ------------------------------------------------------------------

    def restricts(self, node: exp.Expr) -> bool:
        """Joins the conjunct if it is EXISTS or IN; returns whether it was."""
        test, negated = without_not(node)
        match asked(test):
            case SubqueryQuestion(None, _, _, query):
                inner = self._any_row(query)
                if not inner.equalities and not inner.others:
                    return False
                self._semi(inner, "anti" if negated else "semi")
            case SubqueryQuestion(exp.Expr() as value, "=", False, query) if not negated:
                self._semi_in(row_of(value) or [value], query, test)
            case _:
                return False
        return True

    def _semi_in(self, values: Sequence[exp.Expr], query: exp.Expr, at: exp.Expr) -> None:
        ours = [self._column(value, "value") for value in values]
        inner, items = self._items(query, len(values))
        if len(values) > 1 and (inner.equalities or inner.others):
            self._text.refuse(
                inner.links[0],
                "in DuckDB a subquery that rows are compared with cannot name columns of the query"
                " around it; write EXISTS",
            )
        for mine, item in zip(ours, items, strict=True):
            self._refuse_types(mine.type, item.type, at)
        pairs = zip(ours, items, strict=True)
        self._semi(inner, "semi", [(mine.name, item.name) for mine, item in pairs])

    def _semi(
        self, inner: Inner, kind: tree.JoinKind, also: Sequence[tuple[str, str]] = ()
    ) -> None:
        on = [*self._linked(inner), *also]
        condition = conjunction(tuple(map(inner.of_both.condition, inner.others)))
        self._rows.exist(kind, inner.rows.node, on, condition)

    # -- as a value ------------------------------------------------------------------------------

    def value(self, node: exp.Expr) -> tuple[Expression, SqlType] | None:
        """The value of a node that is a subquery or compares with one; None for other nodes."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            return self._scalar(node)
        match asked(node):
            case SubqueryQuestion(None, _, _, query):
                return self._exists(query), BOOLEAN
            case SubqueryQuestion(exp.Expr() as value, "=", False, query):
                return self._in(value, query, node), BOOLEAN
            case SubqueryQuestion(exp.Expr() as value, "<>", True, query):
                return _not(self._in(value, query, node)), BOOLEAN
            case SubqueryQuestion(exp.Expr() as value, op, every, query):
                return self._quantified(value, op, every, query, node), BOOLEAN
        return None

    def _exists(self, query: exp.Expr) -> Expression:
        inner = self._any_row(query)
        if not inner.equalities and not inner.others:
            return self._exists_at_all(inner)
        [number] = self._counted(inner, [("rows", "count", None, BIGINT)])
        return _chosen((_none(number), _FALSE), otherwise=_TRUE)

    def _exists_at_all(self, inner: Inner) -> Expression:
        """Whether a subquery without links has rows: one truth, which seldom changes."""
        number = tree.Aggregate(self._rows.names.fresh("rows"), "count", None, BIGINT)
        some = Truth(Comparison(Column(number.name), ">", _ZERO))
        name = self._rows.names.fresh("exists")
        counted = tree.Group(inner.rows.node, (), (number,))
        self._rows.look_up(tree.Compute(counted, ((name, some, BOOLEAN),)), ())
        return Column(name)

    def _in(self, value: exp.Expr, query: exp.Expr, at: exp.Expr) -> Expression:
        if row_of(value) is not None:
            self._text.refuse(
                value, "rows can stand in conditions of WHERE only, without NOT; write EXISTS"
            )
        shown = self._column(value, "value")
        x, type_ = Column(shown.name), shown.type
        inner, item = self._single(query)
        self._refuse_types(type_, item.type, at)
        rows, known = self._counted(
            inner,
            [("rows", "count", None, BIGINT), ("known", "count", item.name, BIGINT)],
        )
        again, item = self._single(query)
        [equal] = self._counted(
            again, [("equal", "count", None, BIGINT)], [(shown.name, item.name)]
        )
        return _chosen(
            (_none(rows), _FALSE),
            (IsNull(x), _UNKNOWN),
            (Not(IsNull(equal)), _TRUE),
            (Comparison(known, "<", rows), _UNKNOWN),
            otherwise=_FALSE,
        )

    def _quantified(
        self, value: exp.Expr, op: str, every: bool, query: exp.Expr, at: exp.Expr
    ) -> Expression:
        """Computes x > ALL S and its like: only the least and the greatest value of S matter."""
        shown = self._column(value, "value")
        x, type_ = Column(shown.name), shown.type
        inner, item = self._single(query)
        self._refuse_types(type_, item.type, at)
        rows, known, least, greatest = self._counted(
            inner,
            [
                ("rows", "count", None, BIGINT),
                ("known", "count", item.name, BIGINT),
                ("least", "min", item.name, kept(item.type)),
                ("greatest", "max", item.name, kept(item.type)),
            ],
        )
        both = (Comparison(x, op, least), Comparison(x, op, greatest))
        decided, holds = (Not(And(both)), _FALSE) if every else (Or(both), _TRUE)
        return _chosen(
            (_none(rows), _TRUE if every else _FALSE),
            (IsNull(x), _UNKNOWN),
            (decided, holds),
            (Comparison(known, "<", rows), _UNKNOWN),
            otherwise=_TRUE if every else _FALSE,
        )

    def _counted(
        self,
        inner: Inner,
        wanted: list[tuple[str, tree.AggregateFunction, str | None, ColumnType]],
        also: list[tuple[str, str]] | None = None,
    ) -> list[Column]:
        """Counts the subquery per value of its links and joins the aggregates to the outer rows."""
        self._refuse_others(inner)
        on = [*self._linked(inner), *(also or ())]
        keys = tuple(dict.fromkeys(theirs for _, theirs in on))
        aggregates = tuple(
            tree.Aggregate(self._rows.names.fresh(name), function, column, type_)
            for name, function, column, type_ in wanted
        )
        self._rows.look_up(tree.Group(inner.rows.node, keys, aggregates), on)
        return [Column(each.name) for each in aggregates]

    def _scalar(self, node: exp.Subquery) -> tuple[Expression, SqlType]:
        """Reads (SELECT aggregate FROM …): one value per value of its links."""
        inner = self._inner(node.this)
        self._refuse_others(inner)
        query = inner.select
        if not inner.aggregates and has_one_row_at_most(inner.rows.node, self._keys_of(inner)):
            return self._looked_up(inner)
        if len(query.expressions) != 1 or query.args.get("group") or query.args.get("distinct"):
            self._text.refuse(
                query, "a subquery that stands for a value has to select one aggregate"
            )
        keys = [_column_of(inner, theirs, "link") for _, theirs in inner.equalities]
        counts = inner.group(keys)
        if not inner.aggregates or query.args.get("having"):
            self._text.refuse(
                query,
                "a subquery that stands for a value may have several rows, unless it selects an"
                " aggregate and has no HAVING, or is linked by a key; select MAX(…)",
            )
        value, type_ = inner.scalars.typed(query.expressions[0].unalias())
        on = [
            (self._ours(around, shown, around), shown.name)
            for (around, _), shown in zip(inner.equalities, keys, strict=True)
        ]
        self._rows.look_up(inner.rows.node, on)
        return _over_nothing(value, counts), type_

    def _keys_of(self, inner: Inner) -> list[str]:
        """The columns that the links of a subquery compare."""
        found = (inner.scalars.typed(node)[0] for _, node in inner.equalities)
        return [value.name for value in found if isinstance(value, Column)]

    def _looked_up(self, inner: Inner) -> tuple[Expression, SqlType]:
        """Reads (SELECT value FROM …) of the one row that its links leave, or of none."""
        if len(inner.select.expressions) != 1 or inner.select.expressions[0].is_star:
            self._text.refuse(
                inner.select, "a subquery that stands for a value has to select one column"
            )
        on = list(self._linked(inner))
        shown = _column_of(inner, inner.select.expressions[0].unalias(), "value")
        found, name = inner.rows.node, shown.name
        if not on:
            # There is always one row then, with NULL if the subquery has none.
            name = self._rows.names.fresh("value")
            only = tree.Aggregate(name, "max", shown.name, kept(shown.type))
            found = tree.Group(found, (), (only,))
        self._rows.look_up(found, on)
        return Column(name), shown.type

    # -- a subquery by itself --------------------------------------------------------------------

    def _inner(self, query: exp.Expr) -> Inner:
        """Reads a subquery and separates the conditions that link it."""
        query = bare(query)
        if not isinstance(query, exp.Query):
            self._text.refuse(query, "ANY and ALL take a subquery here; list values with IN (…)")
        if not isinstance(query, exp.Select):
            self._text.refuse(query, "a set operation cannot stand in a condition; join it in FROM")
        return self._read(query)

    def _any_row(self, query: exp.Expr) -> Inner:
        """The subquery of EXISTS; its select list has to be valid, but has no effect."""
        inner = self._inner(query)
        self._group(inner)
        for item in inner.select.expressions:
            if not isinstance(item.unalias(), exp.Null) and not item.is_star:
                inner.scalars.typed(item.unalias())
        return inner

    def _single(self, query: exp.Expr) -> tuple[Inner, ShownColumn]:
        """The subquery of IN, and its one column."""
        inner, (item,) = self._items(query, 1)
        return inner, item

    def _items(self, query: exp.Expr, number: int) -> tuple[Inner, list[ShownColumn]]:
        """The subquery of IN, and its columns."""
        inner = self._inner(query)
        items = inner.select.expressions
        if len(items) != number or any(item.is_star for item in items):
            many = "one column" if number == 1 else f"{number} columns"
            self._text.refuse(query, f"a subquery in IN, ANY or ALL has to select {many}")
        self._group(inner)
        return inner, [_column_of(inner, item.unalias(), "item") for item in items]

    def _group(self, inner: Inner) -> None:
        """Groups a subquery that aggregates; refuses it if it has links to the query around."""
        before = inner.rows.node
        inner.group(())
        if inner.rows.node is not before and (inner.equalities or inner.others):
            self._text.refuse(
                inner.select,
                "a subquery that aggregates cannot name columns of the query around it here",
            )

    def _linked(self, inner: Inner) -> Iterator[tuple[str, str]]:
        """The equalities as (column of the outer rows, column of the subquery)."""
        for around, node in inner.equalities:
            theirs = _column_of(inner, node, "link")
            yield self._ours(around, theirs, node), theirs.name

    def _ours(self, around: exp.Expr, theirs: ShownColumn, at: exp.Expr) -> str:
        """The outer side of an equality as a column."""
        self._refuse_inside(around)
        ours = self._column(around, "link")
        self._refuse_types(ours.type, theirs.type, at)
        return ours.name

    def _column(self, node: exp.Expr, wanted: str) -> ShownColumn:
        """A value of the query around as a column of its rows."""
        return self._rows.column(*self._scalars.typed(node), wanted)

    def _refuse_others(self, inner: Inner) -> None:
        if inner.others:
            self._text.refuse(
                inner.others[0],
                "here a subquery can be linked to the query around it by equalities only"
                " (as a conjunct of WHERE, EXISTS takes other conditions as well)",
            )

    def _refuse_types(self, ours: SqlType, theirs: SqlType, at: exp.Expr) -> None:
        if kept(ours) != kept(theirs):
            types = f"{kept(ours).name} is compared with {kept(theirs).name} here"
            self._text.refuse(at, f"{types}; cast one of them")


def _column_of(inner: Inner, node: exp.Expr, wanted: str) -> ShownColumn:
    """A value of a subquery as a column of its rows."""
    return inner.rows.column(*inner.scalars.typed(node), wanted)


def _chosen(*branches: tuple[Condition, Expression], otherwise: Expression) -> Expression:
    return Case(branches, otherwise, BOOLEAN)


def _none(number: Column) -> Condition:
    """Whether there is no row: no group with that link, or one over nothing."""
    return Or((IsNull(number), Comparison(number, "=", _ZERO)))


def _not(value: Expression) -> Expression:
    return Case(
        ((IsNull(value), _UNKNOWN), (Comparison(value, "=", _TRUE), _FALSE)), _TRUE, BOOLEAN
    )


def _over_nothing(value: Expression, counts: Collection[str]) -> Expression:
    """The value with COUNT as 0 where there is no group."""

    def count(column: Column) -> Expression:
        if column.name not in counts:
            return column
        return either(column, _ZERO, BIGINT)

    return in_value(value, count)
