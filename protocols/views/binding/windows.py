"""Window functions in SELECT and QUALIFY, and DISTINCT ON.

Their arguments become columns, with a `Window` above them for each partition and order that the
text names. A function whose value depends on the order of rows that ORDER BY leaves equal is
refused: its value would change when nothing that it is about does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from protocols.algebra.expressions import Call, Case, Column, Comparison, Expression, Literal
from protocols.algebra.function import Unfit
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.numbertypes import INTEGER
from protocols.algebra.types import BIGINT, DOUBLE, SqlType, column_type
from protocols.views import tree
from protocols.views.binding.rows import GatheredRows, never_null, tells_rows_apart
from protocols.views.binding.scope import ShownColumn
from protocols.views.binding.statement import Text
from protocols.views.dialects import SAY_WHICH
from protocols.views.operands import kept, type_name
from protocols.views.scalars import ScalarReader

_NUMBERED: dict[type[exp.Expr], tree.WindowFunctionName] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
}
_NEIGHBOURS: dict[type[exp.Expr], tree.WindowFunctionName] = {exp.Lag: "lag", exp.Lead: "lead"}
_EDGES: dict[type[exp.Expr], tree.WindowFunctionName] = {
    exp.FirstValue: "first_value",
    exp.First: "first_value",
    exp.LastValue: "last_value",
    exp.Last: "last_value",
}
_AGGREGATES: dict[type[exp.Expr], tree.AggregateFunction] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
_KEPT = (
    "ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE, LAST_VALUE, COUNT, SUM, AVG, MIN and MAX"
)
_WHOLE = tree.Frame("range", None, None)
_UP_TO_PEERS = tree.Frame("range", None, 0)


class Windows:
    """The window functions of one SELECT."""

    def __init__(self, text: Text, scalars: ScalarReader, rows: GatheredRows) -> None:
        self._text = text
        self._scalars = scalars
        self._rows = rows
        #: Calls as they are written.
        self._values: dict[exp.Expr, tuple[Expression, SqlType]] = {}

    def read(self, clauses: Sequence[exp.Expr]) -> None:
        """Puts the windows of these clauses on top of the rows so far."""
        calls = dict.fromkeys(call for clause in clauses for call in windows_in(clause))
        for call in calls:
            self._values[call] = self._read(call)

    def value(self, node: exp.Expr) -> tuple[Expression, SqlType] | None:
        """The value of a call that was read."""
        return self._values.get(node)

    def first_of_each(self, keys: Sequence[exp.Expr], order: exp.Expr | None, at: exp.Expr) -> None:
        """DISTINCT ON: keeps the first row for each combination of keys."""
        partition = self._columns(keys, "part")
        ordered = self._order(order)
        self._refuse_ties("DISTINCT ON", at, partition, ordered)
        name = self._rows.names.fresh("first")
        first = tree.WindowFunction(name, "row_number", None, BIGINT, _WHOLE)
        self._rows.node = tree.Window(self._rows.node, partition, ordered, (first,))
        self._rows.filter(Comparison(Column(name), "=", Literal(1, BIGINT)))

    # -- one call --------------------------------------------------------------------------------

    def _read(self, window: exp.Window) -> tuple[Expression, SqlType]:
        if window.args.get("alias"):
            self._text.refuse(
                window.this, "a named window is not supported; write it out in OVER (…)"
            )
        if not window.args.get("partition_by"):
            self._text.refuse(
                window.this,
                "without PARTITION BY a window is over all rows, so each update could change every"
                " row of the view; add PARTITION BY, or join with an aggregate of all rows",
            )
        partition = self._columns(window.args["partition_by"], "part")
        order = self._order(window.args.get("order"))
        functions, value, type_ = self._called(window, order)
        for each in functions:
            if _depends_on_ties(each):
                self._refuse_ties(window.this.sql("duckdb"), window.this, partition, order)
        self._put(partition, order, functions)
        return value, type_

    def _put(
        self,
        partition: tuple[str, ...],
        order: tuple[tree.OrderKey, ...],
        functions: tuple[tree.WindowFunction, ...],
    ) -> None:
        """Adds functions; those of one window to the same node."""
        top = self._rows.node
        if isinstance(top, tree.Window) and (top.partition, top.order) == (partition, order):
            read = {c for f in functions for c in (f.column, f.default) if c is not None}
            if read <= top.input.columns.keys():
                self._rows.node = replace(top, functions=(*top.functions, *functions))
                return
        self._rows.node = tree.Window(top, partition, order, functions)

    def _called(
        self, window: exp.Window, order: tuple[tree.OrderKey, ...]
    ) -> tuple[tuple[tree.WindowFunction, ...], Expression, SqlType]:
        """The functions of a call, and its value and type."""
        call, condition = window.this, None
        if isinstance(call, exp.Filter):
            call, condition = call.this, call.expression.this
        frame = self._frame(window.args.get("spec"), bool(order))
        if type(call) in _NUMBERED:
            return self._one(_NUMBERED[type(call)], None, BIGINT, _WHOLE)
        if type(call) in _NEIGHBOURS:
            return self._neighbour(call, _NEIGHBOURS[type(call)])
        if type(call) in _EDGES:
            column = self._argument(call.this, None)
            return self._one(_EDGES[type(call)], column, column.type, frame)
        function = _AGGREGATES.get(type(call))
        if function is None or isinstance(call.this, exp.Distinct):
            what = f"{window.this.sql('duckdb')} cannot be kept as a window function"
            self._text.refuse(window.this, f"{what}; kept are, without DISTINCT, {_KEPT}")
        return self._aggregate(call, function, condition, frame)

    def _one(
        self,
        function: tree.WindowFunctionName | tree.AggregateFunction,
        column: ShownColumn | None,
        type_: SqlType,
        frame: tree.Frame,
    ) -> tuple[tuple[tree.WindowFunction, ...], Expression, SqlType]:
        name = self._rows.names.fresh(function)
        of = None if column is None else column.name
        return (
            (tree.WindowFunction(name, function, of, kept(type_), frame),),
            Column(name),
            type_,
        )

    def _neighbour(
        self, call: exp.Expr, function: tree.WindowFunctionName
    ) -> tuple[tuple[tree.WindowFunction, ...], Expression, SqlType]:
        distance, default = call.args.get("offset"), call.args.get("default")
        if distance is not None and not (isinstance(distance, exp.Literal) and distance.is_int):
            self._text.refuse(distance, "the distance in LAG and LEAD has to be a whole number")
        rows = 1 if distance is None else int(distance.this)
        column = self._argument(call.this, None)
        ((one,), value, type_) = self._one(function, column, column.type, _WHOLE)
        one = replace(one, distance=-rows if function == "lag" else rows)
        if default is not None:
            shown = self._argument(default, None)
            if kept(shown.type) != kept(type_):
                names = f"{type_name(type_)} and {type_name(shown.type)}"
                self._text.refuse(default, f"two types meet in LAG or LEAD: {names}; cast one")
            one = replace(one, default=shown.name)
        return (one,), value, type_

    def _aggregate(
        self,
        call: exp.Expr,
        function: tree.AggregateFunction,
        condition: exp.Expr | None,
        frame: tree.Frame,
    ) -> tuple[tuple[tree.WindowFunction, ...], Expression, SqlType]:
        if function == "count" and isinstance(call.this, exp.Star) and condition is None:
            return self._one("count", None, BIGINT, frame)
        counted = exp.Literal.number(1) if isinstance(call.this, exp.Star) else call.this
        column = self._argument(counted, condition)
        type_ = self._type(call, function, column.type)
        if self._text.dialect != "postgres" or column.type == DOUBLE:
            return self._one(function, column, type_, frame)
        if function == "avg":
            (total, number), value = self._exact_average(column, call, frame)
            return (total, number), value, column_type("DECIMAL(38,20)")
        if function == "sum" and column.type == INTEGER:
            functions, value, _ = self._one(function, column, type_, frame)
            return functions, Call("cast", (value,), BIGINT), BIGINT
        return self._one(function, column, type_, frame)

    def _exact_average(
        self, column: ShownColumn, call: exp.Expr, frame: tree.Frame
    ) -> tuple[tuple[tree.WindowFunction, tree.WindowFunction], Expression]:
        """AVG of PostgreSQL: SUM / COUNT, as exact numbers."""
        added, counted = self._type(call, "sum", column.type), column_type("DECIMAL(19,0)")
        ((total,), sum_, _) = self._one("sum", column, added, frame)
        ((number,), count, _) = self._one("count", column, BIGINT, frame)
        try:
            type_ = FUNCTIONS["exact quotient"].signature([added, counted]).result
        except Unfit as error:
            self._text.refuse(call, str(error))
        divisor = Call("cast", (count,), counted)
        return (total, number), Call("exact quotient", (sum_, divisor), kept(type_))

    def _type(self, call: exp.Expr, function: tree.AggregateFunction, type_: SqlType) -> SqlType:
        if function == "count":
            return BIGINT
        if function in ("min", "max"):
            return type_
        if kept(type_).family not in ("BIGINT", "DECIMAL", "DOUBLE"):
            what = f"{call.sql('duckdb')}: {type_name(type_)} cannot be added up, only numbers"
            self._text.refuse(call, what)
        if function == "avg" or type_ == DOUBLE:
            return DOUBLE
        scale = type_.precision_and_scale[1] if type_.family == "DECIMAL" else 0
        return column_type(f"DECIMAL(38,{scale})")

    # -- parts of a call -------------------------------------------------------------------------

    def _argument(self, node: exp.Expr, condition: exp.Expr | None) -> ShownColumn:
        value, type_ = self._scalars.typed(node)
        if condition is not None:
            test = self._scalars.condition(condition)
            value = Case(((test, value),), Literal(None, kept(type_)), kept(type_))
        return self._rows.column(value, type_, "value")

    def _columns(self, nodes: Sequence[exp.Expr], wanted: str) -> tuple[str, ...]:
        shown = [self._rows.column(*self._scalars.typed(node), wanted) for node in nodes]
        return tuple(dict.fromkeys(each.name for each in shown))

    def _order(self, order: exp.Expr | None) -> tuple[tree.OrderKey, ...]:
        keys: dict[str, tree.OrderKey] = {}
        for each in () if order is None else order.expressions:
            value, type_ = self._scalars.typed(each.this)
            if isinstance(each.this, exp.Literal):
                self._text.refuse(each, "a constant orders nothing here; name what to order by")
            shown = self._rows.column(value, type_, "ordered")
            descending, nulls_first = (
                bool(each.args.get("desc")),
                bool(each.args.get("nulls_first")),
            )
            if descending and not nulls_first:
                self._refuse_unsaid_nulls(each, shown)
            keys.setdefault(shown.name, tree.OrderKey(shown.name, descending, nulls_first))
        return tuple(keys.values())

    def _refuse_unsaid_nulls(self, key: exp.Expr, shown: ShownColumn) -> None:
        """Refuses DESC without NULLS FIRST or LAST where there may be a NULL."""
        end = max((part.meta.get("end", -1) for part in key.walk()), default=-1)
        said = re.match(r"[\s)\"]*(?:desc)\s+nulls\s", self._text.sql[end + 1 :], re.IGNORECASE)
        if said or self._text.dialect == "duckdb" or never_null(self._rows.node, shown.name):
            return
        more = "" if self._text.dialect else f", or {SAY_WHICH}"
        if self._text.dialect == "postgres":
            more = " (PostgreSQL means NULLS FIRST)"
        self._text.refuse(
            key,
            "NULL comes last in DuckDB and first in PostgreSQL; write DESC NULLS LAST or DESC NULLS"
            f" FIRST{more}",
        )

    def _frame(self, spec: exp.Expr | None, is_ordered: bool) -> tree.Frame:
        if spec is None:
            return _UP_TO_PEERS if is_ordered else _WHOLE
        kind = str(spec.args.get("kind") or "").lower()
        start = self._bound(spec, "start", -1)
        end = self._bound(spec, "end", 1) if spec.args.get("end") else 0
        if kind == "rows":
            return tree.Frame("rows", start, end)
        if kind == "range" and start in (None, 0) and end in (None, 0):
            return tree.Frame("range", start, end)
        self._text.refuse(
            spec.parent or spec,
            "of frames, ROWS BETWEEN …, and RANGE with UNBOUNDED and CURRENT ROW are kept",
        )

    def _bound(self, spec: exp.Expr, which: str, unbounded: int) -> int | None:
        """A bound of a frame as a number of rows from here; None if there is none."""
        bound, side = spec.args.get(which), str(spec.args.get(f"{which}_side") or "").lower()
        sign = -1 if side == "preceding" else 1
        if isinstance(bound, exp.Literal) and bound.is_int:
            return sign * int(bound.this)
        if str(bound).upper() == "CURRENT ROW":
            return 0
        if str(bound).upper() == "UNBOUNDED" and sign == unbounded:
            return None
        self._text.refuse(spec.parent or spec, "a frame is bounded by whole numbers of rows")

    def _refuse_ties(
        self,
        what: str,
        at: exp.Expr,
        partition: tuple[str, ...],
        order: tuple[tree.OrderKey, ...],
    ) -> None:
        known = {*partition, *(key.name for key in order)}
        if not tells_rows_apart(self._rows.node, known):
            self._text.refuse(
                at,
                f"{what} depends on which of several rows comes first that ORDER BY leaves equal;"
                " add a key of each relation to ORDER BY",
            )


def windows_in(node: exp.Expr) -> Iterator[exp.Window]:
    """The window functions of a clause itself, not those of its subqueries."""
    if isinstance(node, exp.Window):
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from windows_in(child)


def _depends_on_ties(function: tree.WindowFunction) -> bool:
    """Whether rows that are equal in the order can get different values."""
    if function.function in ("row_number", "lag", "lead", "first_value", "last_value"):
        return True
    frame = function.frame
    return frame.kind == "rows" and (frame.start, frame.end) != (None, None)
