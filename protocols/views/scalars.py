"""Reads a node of the SQL text into a value or a condition, independent of its context.

Implicit conversions of SQL become explicit casts, and shorthands are written out
(scalar_shorthands.py).

A quoted constant, a number and NULL have no type yet: they take that of the value with which they
are compared or combined. The user of `Scalars` says what a column is, how a refusal is raised, and
which nodes it reads itself (`special`, asked once about every node), such as aggregates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import NoReturn

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.expressions_reference import value_of
from protocols.algebra.function import Unfit
from protocols.algebra.functions import FUNCTIONS, check_call
from protocols.algebra.functions_casts import by_way_of
from protocols.algebra.numbertypes import INTEGER, MOST_DIGITS, is_number
from protocols.algebra.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    VARCHAR,
    ColumnType,
    SqlType,
    column_type,
)
from protocols.errors import NoValue
from protocols.views import scalar_shorthands as shorthands
from protocols.views.dialects import SAY_WHICH, Dialect
from protocols.views.operands import (
    FROM_DIGITS,
    Number,
    Operand,
    common_type,
    digits_lost,
    kept,
    number_type,
    of_type,
    too_large,
    type_name,
    written_out,
)
from protocols.views.scalar_calls import CALLS
from protocols.views.scalar_refusals import reason_against

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_CONDITIONS = (
    *COMPARISONS,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.In,
    exp.Between,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
#: sqlglot's notes on how a dialect evaluates a node; here DuckDB's way is meant.
_NOTES = {"typed", "safe", "ignore_nulls", "coalesce"}


@dataclass(frozen=True)
class ScalarReader:
    """Reads the scalars of one SELECT."""

    column: Callable[[exp.Column], tuple[str, SqlType]]
    refuse: Callable[[exp.Expr, str], NoReturn]
    special: Callable[[exp.Expr], tuple[ex.Expression, SqlType] | None]
    dialect: Dialect | None = None

    def typed(self, node: exp.Expr) -> tuple[ex.Expression, SqlType]:
        """The value that a node means, and its type in SQL: INTEGER as well."""
        operand = self.operand(node)
        if operand.type is None:
            self.refuse(node, "NULL has no type here; write CAST(NULL AS …)")
        self._check_exponents((operand,))
        return operand.expression, operand.type

    def constants(self, at: exp.Expr, nodes: Sequence[exp.Expr]) -> tuple[SqlType, list[object]]:
        """Values without columns: their common type, and each of them in it."""
        type_, expressions = self.of_one_type(at, list(map(self.operand, nodes)))
        values = []
        for node, expression in zip(nodes, expressions, strict=True):
            try:
                values.append(value_of(expression, {}))
            except NoValue as error:
                self.refuse(node, f"{node.sql('duckdb')} has no value: {error}")
        return type_, values

    # -- conditions -----------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> ex.Condition:
        """The condition that a node means."""
        replaced = self.special(node)
        if replaced is not None:
            return self._as_condition(node, *replaced)
        condition = self._condition_of(node)
        self._check_extent(node, condition)
        return condition

    def _condition_of(self, node: exp.Expr) -> ex.Condition:
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And():
                return ex.And(tuple(map(self.condition, node.flatten())))
            case exp.Or():
                return ex.Or(tuple(map(self.condition, node.flatten())))
            case exp.Not():
                return ex.Not(self.condition(node.this))
            case exp.Is():
                return shorthands.is_(self, node)
            case exp.Between() if not node.args.get("symmetric"):
                return shorthands.between(self, node)
            case exp.In() if node.expressions:
                return shorthands.in_(self, node)
            case exp.NullSafeEQ():
                return shorthands.not_distinct(self, node)
            case exp.NullSafeNEQ():
                return ex.Not(shorthands.not_distinct(self, node))
            case exp.In() | exp.Exists() | exp.Between():
                self.refuse(node, f"the condition {node.sql('duckdb')} is not supported yet")
        if type(node) in COMPARISONS:
            left, right = self.operand(node.this), self.operand(node.expression)
            compared = self.comparison(node, left, COMPARISONS[type(node)], right)
            if left.is_constant and right.is_constant:
                return ex.IsTrue(_constant(ex.Truth(compared), BOOLEAN))
            return compared
        operand = self._operand_of(node)
        return self._as_condition(node, operand.expression, operand.type)

    def _as_condition(
        self, node: exp.Expr, expression: ex.Expression, type_: SqlType | None
    ) -> ex.Condition:
        match expression:
            case _ if type_ not in (BOOLEAN, None):
                self.refuse(node, f"{node.sql('duckdb')} is a {type_name(type_)}, not a condition")
            case ex.Truth(condition):
                return condition
            case ex.Column():
                return ex.Comparison(expression, "=", ex.Literal(True, BOOLEAN))
        return ex.IsTrue(expression)

    def comparison(self, node: exp.Expr, left: Operand, op: str, right: Operand) -> ex.Comparison:
        """Brings both sides to one type; a constant beside a column has to be one of its type."""
        self._check_exponents((left, right))
        if left.is_constant != right.is_constant:
            constant, other = (right, left) if right.is_constant else (left, right)
            if constant.is_open or other.is_column:
                literal = self._constant(constant, other)
                if literal is not None and right.is_constant:
                    return ex.Comparison(left.expression, op, literal)
                if literal is not None:
                    return ex.Comparison(literal, op, right.expression)
        common = common_type(left.type, right.type)
        if common is None:
            self._refuse_two_types(node, "are compared", left, right)
        return ex.Comparison(self.as_(left, common), op, self.as_(right, common))

    def _constant(self, constant: Operand, other: Operand) -> ex.Literal | None:
        """A constant in the type of the other side; None for two kinds of numbers."""
        assert other.type is not None
        type_ = kept(other.type)
        try:
            return of_type(constant, type_)
        except (ValueError, KeyError):
            if isinstance(constant.constant, Number) and is_number(type_):
                return None
            which = "the column" if other.is_column else "the other side"
            text = constant.node.sql("duckdb")
            not_one = f"{text} is not a {type_.name}, which {which} is"
            self.refuse(constant.node, f"{not_one}; write one, or cast {which}")

    def _refuse_two_types(
        self, node: exp.Expr, what: str, left: Operand, right: Operand
    ) -> NoReturn:
        names = " and ".join(type_name(side.type) for side in (left, right))
        things = "columns" if left.is_column and right.is_column else "values"
        self.refuse(node, f"{things} of two types {what}: {names}; cast one of them")

    # -- values ---------------------------------------------------------------------------------

    def operand(self, node: exp.Expr) -> Operand:
        """The value that a node means, before its type is settled."""
        replaced = self.special(node)
        operand = self._operand_of(node) if replaced is None else Operand(node, *replaced)
        self._check_extent(node, operand.expression)
        return operand

    def _operand_of(self, node: exp.Expr) -> Operand:
        match node:
            case exp.Paren():
                return self.operand(node.this)
            case exp.Column():
                name, type_ = self.column(node)
                return Operand(node, ex.Column(name), type_)
            case exp.Null():
                return Operand(node, ex.Literal(None, BOOLEAN), None, None)
            case exp.Boolean():
                truth = bool(node.this)
                return Operand(node, ex.Literal(truth, BOOLEAN), BOOLEAN, truth)
            case exp.Literal():
                return self._literal(node, str(node.this))
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                return self._literal(node, "-" + str(node.this.this))
            case exp.Cast():
                return self._cast(node)
            case exp.Case():
                return self._case(node)
            case exp.Coalesce():
                return shorthands.coalesce(self, node)
            case exp.Nullif():
                return shorthands.nullif(self, node)
        if isinstance(node, _CONDITIONS):
            return Operand(node, ex.Truth(self._condition_of(node)), BOOLEAN)
        if type(node) in CALLS:
            return CALLS[type(node)](self, node)
        self.refuse(node, reason_against(node))

    def _literal(self, node: exp.Expr, text: str) -> Operand:
        if isinstance(node, exp.Literal) and node.is_string:
            return Operand(node, ex.Literal(text, VARCHAR), VARCHAR, text)
        text = written_out(text) if self.dialect == "postgres" else text
        type_ = number_type(text)
        if type_ is None:
            more = f"the number {text} has more digits than a BIGINT or a DECIMAL"
            self.refuse(node, f"{more}; write CAST('{text}' AS DECIMAL({MOST_DIGITS},0))")
        exact = kept(type_)
        literal = ex.Literal(exact.decode(FROM_DIGITS[exact.family](text)), exact)
        return Operand(node, literal, type_, Number(text))

    def _cast(self, node: exp.Cast) -> Operand:
        if isinstance(node, exp.TryCast):
            self.refuse(node, "PostgreSQL has no TRY_CAST")
        inner, to = self.arguments(node, "this", "to")
        if any(part.meta.get("start", _EARLIEST) < _EARLIEST for part in to.walk()):
            self.refuse(inner, "a DECIMAL is another type in each database; write DECIMAL(p,s)")
        try:
            name = to.sql("duckdb")
            target = INTEGER if name == "INT" else column_type(_TYPE_NAMES.get(name, name))
        except ValueError as error:
            self.refuse(node, str(error))
        operand = self.operand(inner)
        if operand.has_exponent and target != DOUBLE:
            self._check_exponents((operand,))
        if operand.is_open:
            value = self._decoded(node, operand, kept(target))
        else:
            value = self.as_(operand, target)
        if target == INTEGER:
            value = ex.Call("integer", (value,), BIGINT)
        return Operand(node, value, target)

    def _decoded(self, node: exp.Expr, operand: Operand, type_: ColumnType) -> ex.Expression:
        """Reads CAST of a quoted constant: DATE '2024-02-29'."""
        value: object = operand.constant
        try:
            if isinstance(value, str) and type_.family in FROM_DIGITS:
                value = FROM_DIGITS[type_.family](value)
            elif isinstance(value, str) and type_ == BOOLEAN:
                value = {"true": True, "false": False}[value.lower()]
            return ex.Literal(type_.decode(value), type_)
        except (ValueError, KeyError):
            self.refuse(node, f"{operand.node.sql('duckdb')} is not a {type_.name}")

    def _case(self, node: exp.Case) -> Operand:
        subject = node.this and self.operand(node.this)
        conditions, values = [], []
        for branch in node.args["ifs"]:
            conditions.append(
                self.condition(branch.this)
                if subject is None
                else self.comparison(branch.this, subject, "=", self.operand(branch.this))
            )
            values.append(self.operand(branch.args["true"]))
        values.append(self.operand(node.args.get("default") or exp.null()))
        type_, (*thens, default) = self.of_one_type(node, values)
        branches = tuple(zip(conditions, thens, strict=True))
        return Operand(node, ex.Case(branches, default, kept(type_)), type_)

    def call(self, node: exp.Expr, name: str, *operands: Operand) -> Operand:
        """A function of the catalogue; NULL takes the type of another argument."""
        known = next((o.type for o in operands if o.type is not None), None)
        if known is None:
            self.refuse(node, f"{node.sql('duckdb')} has no type; write CAST(NULL AS …)")
        self._check_exponents(operands)
        try:
            signature = FUNCTIONS[name].signature([operand.type or known for operand in operands])
        except Unfit as error:
            self.refuse(node, str(error))
        pairs = zip(operands, signature.arguments, strict=True)
        arguments = tuple(self.as_(operand, type_) for operand, type_ in pairs)
        call = ex.Call(name, arguments, kept(signature.result))
        if signature.result == INTEGER:
            call = ex.Call("integer", (call,), BIGINT)
        return Operand(node, call, signature.result)

    # -- types ----------------------------------------------------------------------------------

    def of_one_type(
        self, node: exp.Expr, operands: Sequence[Operand]
    ) -> tuple[SqlType, list[ex.Expression]]:
        """The values of a CASE and the like in one type, and that type."""
        settled = [o for o in operands if not o.is_open] or [o for o in operands if o.type]
        if not settled:
            self.refuse(node, f"{node.sql('duckdb')} has no type; write CAST(NULL AS …)")
        self._check_exponents(settled)

        def both(left: Operand, right: Operand) -> Operand:
            common = common_type(left.type, right.type)
            if common is None:
                self._refuse_two_types(node, "meet", left, right)
            if digits_lost(left.type, right.type, common):
                names = f"{type_name(left.type)} and {type_name(right.type)}"
                self.refuse(node, f"{names} together need more than {MOST_DIGITS} digits; cast")
            return Operand(node, left.expression, common)

        type_ = reduce(both, settled).type
        assert type_ is not None
        return type_, [self.as_(operand, type_) for operand in operands]

    def _check_exponents(self, operands: Sequence[Operand]) -> None:
        """Refuses a number with an exponent unless it stands beside a DOUBLE, which it then is."""
        if self.dialect is not None or any(
            o.type == DOUBLE and not o.has_exponent for o in operands
        ):
            return
        for operand in operands:
            if operand.has_exponent:
                text = operand.node.sql("duckdb")
                self.refuse(
                    operand.node,
                    f"{text} is a DOUBLE in DuckDB and none in PostgreSQL;"
                    f" write CAST({text} AS DOUBLE), or {SAY_WHICH}",
                )

    def as_(self, operand: Operand, type_: SqlType) -> ex.Expression:
        """The operand as a value of the type, with a cast if it has another one."""
        type_ = kept(type_)
        if operand.is_open:
            return self._decoded(operand.node, operand, type_)
        assert operand.type is not None
        expression, source = operand.expression, kept(operand.type)
        while source != type_:
            target = by_way_of(source, type_)
            try:
                check_call("cast", [source], target)
            except Unfit as error:
                self.refuse(operand.node, str(error))
            expression, source = ex.Call("cast", (expression,), target), target
        return _constant(expression, type_) if operand.is_constant else expression

    # -- nodes ----------------------------------------------------------------------------------

    def _check_extent(self, node: exp.Expr, what: ex.Condition | ex.Expression) -> None:
        """Refuses a node that is too large to send to a source or to evaluate."""
        if (reason := too_large(what)) is not None:
            self.refuse(node, f"this {reason}; write it in steps, as queries in WITH")

    def arguments(self, node: exp.Expr, *places: str) -> list[exp.Expr]:
        """The values at these places of a node; refuses a node that has more."""
        for place, there in node.args.items():
            if there and place not in places and place not in _NOTES:
                self.refuse(node, f"{node.sql('duckdb')}: {place} is not supported")
        found = (node.args.get(place) for place in places)
        parts: Iterator[exp.Expr] = chain.from_iterable(
            each if isinstance(each, list) else [each] for each in found if each
        )
        return list(parts)


def _constant(expression: ex.Expression, type_: ColumnType) -> ex.Expression:
    """The value of an expression as one constant; the expression itself if it has no value."""
    try:
        return ex.Literal(value_of(expression, {}), type_)
    except NoValue:
        return expression


#: Every type in a view starts here or later. If a type has no digits, sqlglot reads DuckDB's from a
#: text of its own, in which they start earlier.
_EARLIEST = len("SELECT x::DECIMAL")

#: sqlglot's spelling of types that have another name here.
_TYPE_NAMES = {"TIMESTAMP": "TIMESTAMP", "TEXT": "VARCHAR"}
