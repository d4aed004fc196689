"""From a node of the SQL text to a value or a condition, whatever stands around it.

Here SQL's own conversions become casts that can be seen, and what is short for something longer is
written out: BETWEEN and IN as comparisons, COALESCE and NULLIF as CASE, IS TRUE with IS NULL.

A quoted constant, a number and NULL have no type yet: they take that of what they are compared or
combined with. Whoever uses `Scalars` says what a column is, how a refusal is raised, and what
nodes he understands himself (`special`), as aggregates and subqueries.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any, NoReturn

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.function import Unfit
from protocols.algebra.functions import FUNCTIONS, check_call
from protocols.algebra.functions_numbers import INTEGER, as_decimal, common_number, is_number
from protocols.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    column_type,
    decimal_type,
)
from protocols.errors import NoValue

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
#: Node → function of the catalogue, and where its arguments are.
_CALLS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Add: ("+", ("this", "expression")),
    exp.Sub: ("-", ("this", "expression")),
    exp.Mul: ("*", ("this", "expression")),
    exp.Div: ("/", ("this", "expression")),
    exp.Mod: ("%", ("this", "expression")),
    exp.Neg: ("negate", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.Floor: ("floor", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
}
_CONDITIONS = (
    *_COMPARISONS,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.In,
    exp.Between,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
)
#: What sqlglot notes about how a dialect evaluates a node; what it means here is DuckDB's way.
_NOTES = {"typed", "safe", "ignore_nulls"}
_CHANGING = {"RAND", "RANDOM", "NOW", "UUID", "TODAY", "CLOCK_TIMESTAMP", "GEN_RANDOM_UUID"}
_MOST_DIGITS = 38


class _Number(str):
    """The digits of a number in the SQL text."""


@dataclass(frozen=True)
class _Operand:
    """A value whose type may not be settled: then it is a constant, as it stands in the text."""

    node: exp.Expr
    expression: ex.Expression
    #: INTEGER and None, for NULL, occur only here.
    type: ColumnType | None
    #: The constant if there is one: a text, the digits of a number, a truth value, None.
    constant: Any = ...

    @property
    def is_constant(self) -> bool:
        return self.constant is not ...

    @property
    def is_open(self) -> bool:
        """Would it take any type? A text that is no number, for instance, still may be a date."""
        return self.is_constant and not isinstance(self.constant, _Number | bool)


@dataclass(frozen=True)
class Scalars:
    """How the scalars of one SELECT are read."""

    column: Callable[[exp.Column], tuple[str, ColumnType]]
    refuse: Callable[[exp.Expr, str], NoReturn]
    special: Callable[[exp.Expr], tuple[ex.Expression, ColumnType] | None]

    def typed(self, node: exp.Expr) -> tuple[ex.Expression, ColumnType]:
        """The value that a node means, and its type."""
        operand = self._operand(node)
        if operand.type is None:
            self.refuse(node, "NULL has no type here; write CAST(NULL AS …)")
        return operand.expression, _kept(operand.type)

    # -- conditions -----------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> ex.Condition:
        """The condition that a node means."""
        replaced = self.special(node)
        if replaced is not None:
            return self._as_condition(node, *replaced)
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And():
                return ex.And((self.condition(node.left), self.condition(node.right)))
            case exp.Or():
                return ex.Or((self.condition(node.left), self.condition(node.right)))
            case exp.Not():
                return ex.Not(self.condition(node.this))
            case exp.Is():
                return self._is(node)
            case exp.Between() if not node.args.get("symmetric"):
                return self._between(node)
            case exp.In() if node.expressions:
                return self._in(node)
            case exp.NullSafeEQ():
                return self._not_distinct(node)
            case exp.NullSafeNEQ():
                return ex.Not(self._not_distinct(node))
            case exp.Column():
                operand = self._operand(node)
                return self._comparison(node, operand, "=", self._operand(exp.true()))
            case exp.In() | exp.Exists() | exp.Between():
                self.refuse(node, f"the condition {node.sql('duckdb')} is not supported yet")
        if type(node) in _COMPARISONS:
            left, right = self._operand(node.this), self._operand(node.expression)
            return self._comparison(node, left, _COMPARISONS[type(node)], right)
        return self._as_condition(node, *self.typed(node))

    def _as_condition(
        self, node: exp.Expr, expression: ex.Expression, type_: ColumnType
    ) -> ex.Condition:
        if type_ != BOOLEAN:
            self.refuse(node, f"{node.sql('duckdb')} is a {type_.name} and no condition")
        return expression.condition if isinstance(expression, ex.Truth) else ex.IsTrue(expression)

    def _is(self, node: exp.Is) -> ex.Condition:
        match node.expression:
            case exp.Null():
                return ex.IsNull(self._operand(node.this).expression)
            case exp.Boolean():
                condition = self.condition(node.this)
                known = ex.Not(ex.IsNull(ex.Truth(condition)))
                return ex.And((condition if node.expression.this else ex.Not(condition), known))
        self.refuse(node, f"the condition {node.sql('duckdb')} is not supported")

    def _between(self, node: exp.Between) -> ex.Condition:
        middle, low, high = (self._operand(node.args[name]) for name in ("this", "low", "high"))
        self._check_pairwise(node, (middle, low, high))
        above = self._comparison(node, middle, ">=", low)
        return ex.And((above, self._comparison(node, middle, "<=", high)))

    def _in(self, node: exp.In) -> ex.Condition:
        wanted, choices = self._operand(node.this), list(map(self._operand, node.expressions))
        self._check_pairwise(node, (wanted, *choices))
        return ex.Or(tuple(self._comparison(node, wanted, "=", choice) for choice in choices))

    def _check_pairwise(self, node: exp.Expr, operands: Sequence[_Operand]) -> None:
        """With a DOUBLE among them, DuckDB compares all as DOUBLE and PostgreSQL pair by pair."""
        types = {o.type for o in operands if o.type is not None and not o.is_constant}
        if DOUBLE in types and len(types) > 1:
            names = " and ".join(sorted(type_.name for type_ in types))
            self.refuse(node, f"{names} meet here, which databases compare differently; cast them")

    def _not_distinct(self, node: exp.Binary) -> ex.Condition:
        left, right = self._operand(node.left), self._operand(node.right)
        comparison = self._comparison(node, left, "=", right)
        nulls = ex.IsNull(comparison.left), ex.IsNull(comparison.right)
        both = ex.And((ex.Not(nulls[0]), ex.Not(nulls[1]), comparison))
        return ex.Or((ex.And(nulls), both))

    def _comparison(
        self, node: exp.Expr, left: _Operand, op: str, right: _Operand
    ) -> ex.Comparison:
        """Both sides in one type; a constant beside a column has to be one of its type."""
        if left.is_constant and right.is_constant:
            self.refuse(node, f"one side of {node.sql('duckdb')} has to be a column")
        if right.is_constant and (right.is_open or isinstance(left.expression, ex.Column)):
            return ex.Comparison(left.expression, op, self._constant(right, left))
        if left.is_constant and (left.is_open or isinstance(right.expression, ex.Column)):
            return ex.Comparison(self._constant(left, right), op, right.expression)
        common = _common(left.type, right.type)
        if common is None:
            self._refuse_two_types(node, "are compared", left, right)
        return ex.Comparison(self._as(left, common), op, self._as(right, common))

    def _constant(self, constant: _Operand, other: _Operand) -> ex.Literal:
        """A constant as one of the type of the other side."""
        assert other.type is not None
        type_ = _kept(other.type)
        value = constant.constant
        try:
            if isinstance(value, _Number):
                value = _NUMBERS[type_.family](value)
            return ex.Literal(type_.decode(value), type_)
        except (ValueError, KeyError):
            which = "the column" if isinstance(other.expression, ex.Column) else "the other side"
            text = constant.node.sql("duckdb")
            self.refuse(constant.node, f"{text} is no {type_.name}, which {which} is")

    def _refuse_two_types(
        self, node: exp.Expr, what: str, left: _Operand, right: _Operand
    ) -> NoReturn:
        columns = all(isinstance(side.expression, ex.Column) for side in (left, right))
        names = " and ".join(_name(side.type) for side in (left, right))
        things = "columns" if columns else "values"
        self.refuse(node, f"{things} of two types {what}: {names}; cast one of them")

    # -- values ---------------------------------------------------------------------------------

    def _operand(self, node: exp.Expr) -> _Operand:
        replaced = self.special(node)
        if replaced is not None:
            return _Operand(node, *replaced)
        match node:
            case exp.Paren():
                return self._operand(node.this)
            case exp.Column():
                name, type_ = self.column(node)
                return _Operand(node, ex.Column(name), type_)
            case exp.Null():
                return _Operand(node, ex.Literal(None, BOOLEAN), None, None)
            case exp.Boolean():
                truth = bool(node.this)
                return _Operand(node, ex.Literal(truth, BOOLEAN), BOOLEAN, truth)
            case exp.Literal():
                return self._literal(node, str(node.this))
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                return self._literal(node, "-" + str(node.this.this))
            case exp.Cast():
                return self._cast(node)
            case exp.Case():
                return self._case(node)
            case exp.Coalesce():
                return self._coalesce(node)
            case exp.Nullif():
                return self._nullif(node)
        if isinstance(node, _CONDITIONS):
            return _Operand(node, ex.Truth(self.condition(node)), BOOLEAN)
        if type(node) in _CALLS:
            name, places = _CALLS[type(node)]
            return self._call(node, name, list(map(self._operand, self._arguments(node, *places))))
        self._refuse_unknown(node)

    def _literal(self, node: exp.Expr, text: str) -> _Operand:
        if isinstance(node, exp.Literal) and node.is_string:
            return _Operand(node, ex.Literal(text, VARCHAR), VARCHAR, text)
        type_ = _number_type(text)
        if type_ is None:
            self.refuse(node, f"the number {text} has more digits than a BIGINT or a DECIMAL")
        kept = _kept(type_)
        literal = ex.Literal(kept.decode(_NUMBERS[kept.family](text)), kept)
        return _Operand(node, literal, type_, _Number(text))

    def _cast(self, node: exp.Cast) -> _Operand:
        if isinstance(node, exp.TryCast):
            self.refuse(node, "PostgreSQL has no TRY_CAST")
        inner, to = self._arguments(node, "this", "to")
        try:
            name = to.sql("duckdb")
            target = INTEGER if name == "INT" else column_type(_TYPE_NAMES.get(name, name))
        except ValueError as error:
            self.refuse(node, str(error))
        operand = self._operand(inner)
        if operand.is_open:
            return _Operand(node, self._decoded(node, operand, _kept(target)), target)
        if target == INTEGER:
            whole = ex.Call("integer", (self._as(operand, BIGINT),), BIGINT)
            return _Operand(node, whole, INTEGER)
        return _Operand(node, self._as(operand, target), target)

    def _decoded(self, node: exp.Expr, operand: _Operand, type_: ColumnType) -> ex.Literal:
        """CAST of a quoted constant: DATE '2024-02-29'."""
        value = operand.constant
        try:
            if isinstance(value, str) and type_.family in _NUMBERS:
                value = _NUMBERS[type_.family](value)
            elif isinstance(value, str) and type_ == BOOLEAN:
                value = {"true": True, "false": False}[value.lower()]
            return ex.Literal(type_.decode(value), type_)
        except (ValueError, KeyError):
            self.refuse(node, f"{operand.node.sql('duckdb')} is no {type_.name}")

    def _case(self, node: exp.Case) -> _Operand:
        subject = node.this and self._operand(node.this)
        conditions, values = [], []
        for branch in node.args["ifs"]:
            conditions.append(
                self.condition(branch.this)
                if subject is None
                else self._comparison(branch.this, subject, "=", self._operand(branch.this))
            )
            values.append(self._operand(branch.args["true"]))
        values.append(self._operand(node.args.get("default") or exp.null()))
        type_, (*thens, default) = self._of_one_type(node, values)
        branches = tuple(zip(conditions, thens, strict=True))
        return _Operand(node, ex.Case(branches, default, _kept(type_)), type_)

    def _coalesce(self, node: exp.Coalesce) -> _Operand:
        """The first that is not NULL; the others are not evaluated."""
        operands = list(map(self._operand, self._arguments(node, "this", "expressions")))
        type_, (*values, last) = self._of_one_type(node, operands)
        branches = tuple((ex.Not(ex.IsNull(value)), value) for value in values)
        case = ex.Case(branches, last, _kept(type_)) if branches else last
        return _Operand(node, case, type_)

    def _nullif(self, node: exp.Nullif) -> _Operand:
        operand, other = map(self._operand, self._arguments(node, "this", "expression"))
        if operand.type is None:
            self.refuse(node, "NULLIF(NULL, …) has no type; write CAST(NULL AS …)")
        type_ = _kept(operand.type)
        equal = self._comparison(node, operand, "=", other)
        case = ex.Case(((equal, ex.Literal(None, type_)),), operand.expression, type_)
        return _Operand(node, case, operand.type)

    def _call(self, node: exp.Expr, name: str, operands: Sequence[_Operand]) -> _Operand:
        """A function of the catalogue; NULL takes the type of another argument."""
        known = next((o.type for o in operands if o.type is not None), None)
        if known is None:
            self.refuse(node, f"{node.sql('duckdb')} has no type; write CAST(NULL AS …)")
        try:
            signature = FUNCTIONS[name].signature([operand.type or known for operand in operands])
        except Unfit as error:
            self.refuse(node, str(error))
        pairs = zip(operands, signature.arguments, strict=True)
        arguments = tuple(self._as(operand, type_) for operand, type_ in pairs)
        call = ex.Call(name, arguments, _kept(signature.result))
        if signature.result == INTEGER:
            call = ex.Call("integer", (call,), BIGINT)
        return _Operand(node, call, signature.result)

    # -- types ----------------------------------------------------------------------------------

    def _of_one_type(
        self, node: exp.Expr, operands: Sequence[_Operand]
    ) -> tuple[ColumnType, list[ex.Expression]]:
        """What the values of a CASE and the like become, and their type."""
        settled = [o for o in operands if not o.is_open] or [o for o in operands if o.type]
        if not settled:
            self.refuse(node, f"{node.sql('duckdb')} has no type; write CAST(NULL AS …)")

        def both(left: _Operand, right: _Operand) -> _Operand:
            common = _common(left.type, right.type)
            if common is None:
                self._refuse_two_types(node, "meet", left, right)
            if _digits_lost(left.type, right.type, common):
                names = f"{_name(left.type)} and {_name(right.type)}"
                self.refuse(node, f"{names} together need more than {_MOST_DIGITS} digits; cast")
            return _Operand(node, left.expression, common)

        type_ = reduce(both, settled).type
        assert type_ is not None
        return type_, [self._as(operand, type_) for operand in operands]

    def _as(self, operand: _Operand, type_: ColumnType) -> ex.Expression:
        """The operand as a value of the type, with a cast where that is another one."""
        type_ = _kept(type_)
        if operand.is_open:
            return self._decoded(operand.node, operand, type_)
        assert operand.type is not None
        source = _kept(operand.type)
        if source == type_:
            return operand.expression
        try:
            check_call("cast", [source], type_)
        except Unfit as error:
            self.refuse(operand.node, str(error))
        cast = ex.Call("cast", (operand.expression,), type_)
        try:
            constant = isinstance(operand.expression, ex.Literal)
            return ex.Literal(ex.value(cast, {}), type_) if constant else cast
        except NoValue:
            return cast

    # -- nodes ----------------------------------------------------------------------------------

    def _arguments(self, node: exp.Expr, *places: str) -> list[exp.Expr]:
        """What stands at these places of a node, which has nothing at others."""
        for place, there in node.args.items():
            if there and place not in places and place not in _NOTES:
                self.refuse(node, f"{node.sql('duckdb')}: {place} is not supported")
        found = (node.args.get(place) for place in places)
        parts: Iterator[exp.Expr] = chain.from_iterable(
            each if isinstance(each, list) else [each] for each in found if each
        )
        return list(parts)

    def _refuse_unknown(self, node: exp.Expr) -> NoReturn:
        text = node.sql("duckdb")
        name = str(node.this if isinstance(node, exp.Anonymous) else node.key).upper()
        if name in _CHANGING or name.startswith("CURRENT"):
            self.refuse(node, f"{text} is another value each time it is asked for")
        if isinstance(node, exp.AggFunc):
            self.refuse(node, f"the aggregate {text} cannot stand here")
        if isinstance(node, exp.Query | exp.Subquery | exp.SubqueryPredicate):
            self.refuse(node, f"the subquery {text} cannot stand here")
        self.refuse(node, f"{text} is not supported")


#: How sqlglot writes types that have another name here.
_TYPE_NAMES = {"TIMESTAMP": "TIMESTAMP", "TEXT": "VARCHAR"}

#: How the digits become a value that the type decodes; no other type has numbers.
_NUMBERS: dict[str, Callable[[str], Any]] = {"BIGINT": int, "DOUBLE": float, "DECIMAL": str}


def _number_type(text: str) -> ColumnType | None:
    """The type that DuckDB gives a number in the text; None if it has too many digits for us."""
    if "e" in text.lower():
        return DOUBLE
    digits = text.lstrip("-")
    if "." in digits:
        scale = len(digits) - 1 - digits.index(".")
        return decimal_type(len(digits) - 1, scale) if len(digits) - 1 <= _MOST_DIGITS else None
    if -(2**31) <= int(text) < 2**31:
        return INTEGER
    return BIGINT if -(2**63) <= int(text) < 2**63 else None


def _kept(type_: ColumnType) -> ColumnType:
    """The type in which values are kept."""
    return BIGINT if type_ == INTEGER else type_


def _name(type_: ColumnType | None) -> str:
    return "NULL" if type_ is None else _kept(type_).name


def _common(left: ColumnType | None, right: ColumnType | None) -> ColumnType | None:
    """The type in which both can be compared; None if there is none."""
    if left == right or right is None:
        return left
    if left is None:
        return right
    if is_number(left) and is_number(right):
        return common_number(left, right)
    return TIMESTAMP if {left, right} == {DATE, TIMESTAMP} else None


def _digits_lost(left: ColumnType | None, right: ColumnType | None, common: ColumnType) -> bool:
    """Did 38 digits not suffice for what stands before the point?"""
    if common.family != "DECIMAL":
        return False
    precision, scale = common.precision_and_scale
    sides = (as_decimal(t).precision_and_scale for t in (left, right) if t is not None)
    return any(p - s > precision - scale for p, s in sides)
