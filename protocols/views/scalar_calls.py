"""Maps operators and functions in the SQL text to entries of the catalogue.

Most are read as they stand. Some have a grammar of their own (EXTRACT, TRIM, intervals), and some
arguments have to be constants, because the databases differ on other values.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import exp

from protocols.algebra import expressions as ex
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.numbertypes import INTEGER, is_number
from protocols.algebra.types import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, decimal_type
from protocols.views.dialects import SAY_WHICH
from protocols.views.operands import Number, Operand, kept

if TYPE_CHECKING:
    from protocols.views.scalars import ScalarReader

Reader: TypeAlias = Callable[["ScalarReader", Any], Operand]
#: The largest number of letters that DuckDB's text functions take.
_MOST_LETTERS = 2**32 - 1
#: The units of an interval that always have the same length, in microseconds.
_MICROSECONDS = {
    "WEEK": 7 * 86_400_000_000,
    "DAY": 86_400_000_000,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
}
_MONTHS = {"YEAR": 12, "MONTH": 1}


def _plain(name: str, *places: str) -> Reader:
    """Reads a call whose arguments stand at these places of the node."""

    def read(scalars: "ScalarReader", node: exp.Expr) -> Operand:
        return scalars.call(node, name, *map(scalars.operand, scalars.arguments(node, *places)))

    return read


# --------------------------------------------------------------------------------- dates and sums


def _sum(scalars: "ScalarReader", node: exp.Add | exp.Sub) -> Operand:
    sign = 1 if isinstance(node, exp.Add) else -1
    if isinstance(node.expression, exp.Interval):
        return _shifted(scalars, node, scalars.operand(node.left), node.expression, sign)
    if isinstance(node.left, exp.Interval) and sign == 1:
        return _shifted(scalars, node, scalars.operand(node.right), node.left, sign)
    left, right = scalars.operand(node.left), scalars.operand(node.right)
    if left.type == right.type == DATE and sign == -1:
        return _counted(scalars, scalars.call(node, "days between", left, right))
    if right.type == DATE and sign == 1:
        left, right = right, left
    if left.type == DATE:
        return _days_later(scalars, node, left, right, sign)
    if TIMESTAMP in (left.type, right.type):
        scalars.refuse(
            node,
            f"{node.sql('duckdb')} is an interval, and no column has that type; keep"
            " both values, and compute it when you read the view",
        )
    return scalars.call(node, "+" if sign == 1 else "-", left, right)


def _counted(scalars: "ScalarReader", count: Operand) -> Operand:
    """A number of days or letters, which is an INTEGER in PostgreSQL."""
    return replace(count, type=INTEGER) if scalars.dialect == "postgres" else count


def _number_of(name: str, *places: str) -> Reader:
    read = _plain(name, *places)
    return lambda scalars, node: _counted(scalars, read(scalars, node))


def _days_later(
    scalars: "ScalarReader", node: exp.Expr, day: Operand, days: Operand, sign: int
) -> Operand:
    if days.type != INTEGER:
        what = days.node.sql("duckdb")
        scalars.refuse(
            node, f"a number of days has to be an INTEGER; write CAST({what} AS INTEGER)"
        )
    count = days if sign == 1 else scalars.call(days.node, "negate", days)
    return scalars.call(node, "add days", day, replace(count, type=BIGINT))


def _shifted(
    scalars: "ScalarReader", node: exp.Expr, start: Operand, interval: exp.Interval, sign: int
) -> Operand:
    """A DATE or TIMESTAMP plus an interval of one unit, which is a constant."""
    unit = str(interval.args["unit"] or "").upper().removesuffix("S")
    try:
        if not isinstance(interval.this, exp.Literal):
            raise ValueError
        count = sign * int(interval.this.this)
    except ValueError:
        scalars.refuse(interval, "only an INTERVAL of a whole number of one unit is supported")
    if unit not in _MONTHS and unit not in _MICROSECONDS:
        units = ", ".join([*_MONTHS, *_MICROSECONDS])
        scalars.refuse(interval, f"the unit {unit or '…'} is not one of {units}")
    if start.type not in (DATE, TIMESTAMP):
        scalars.refuse(node, "an INTERVAL is added to a DATE or a TIMESTAMP")
    name, each = (
        ("add months", _MONTHS[unit])
        if unit in _MONTHS
        else ("add microseconds", _MICROSECONDS[unit])
    )
    moment = Operand(node, scalars.as_(start, TIMESTAMP), TIMESTAMP)
    return scalars.call(node, name, moment, _number(node, count * each))


def _number(node: exp.Expr, value: int) -> Operand:
    return Operand(node, ex.Literal(value, BIGINT), BIGINT)


def _extract(scalars: "ScalarReader", node: exp.Extract) -> Operand:
    part = str(node.this).lower()
    if part not in _PARTS:
        parts = ", ".join(_PARTS).upper()
        scalars.refuse(node, f"EXTRACT({part.upper()} …): the databases agree about {parts}")
    found = scalars.call(node, part, scalars.operand(node.expression))
    if scalars.dialect == "postgres":
        return Operand(node, scalars.as_(found, _PART), _PART)
    return found


_PART = decimal_type(19, 0)
_PARTS = ("year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "hour", "minute")


def _date_trunc(scalars: "ScalarReader", node: exp.TimestampTrunc | exp.DateTrunc) -> Operand:
    unit = f"trunc {str(node.args['unit'].name).lower()}"
    if unit not in FUNCTIONS:
        scalars.refuse(node, f"DATE_TRUNC does not know the unit {node.args['unit'].name}")
    return scalars.call(node, unit, scalars.operand(node.this))


# ------------------------------------------------------------------------------------------ texts


def _concatenation(scalars: "ScalarReader", node: exp.DPipe) -> Operand:
    return scalars.call(node, "||", scalars.operand(node.left), scalars.operand(node.right))


def _concat(scalars: "ScalarReader", node: exp.Concat) -> Operand:
    """Reads CONCAT, which skips NULL: each argument becomes a text that is empty then."""

    def text(part: exp.Expr) -> Operand:
        value = scalars.as_(scalars.operand(part), VARCHAR)
        there = ex.Not(ex.IsNull(value))
        return Operand(part, ex.Case(((there, value),), ex.Literal("", VARCHAR), VARCHAR), VARCHAR)

    parts = map(text, scalars.arguments(node, "expressions"))
    return reduce(lambda left, right: scalars.call(node, "||", left, right), parts)


def _trim(scalars: "ScalarReader", node: exp.Trim) -> Operand:
    """Reads TRIM(x), TRIM(LEADING 'ab' FROM x), LTRIM(x, 'ab')."""
    position = str(node.args.get("position") or "").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "trim")
    arguments = scalars.arguments(node, "this", "expression", "position")
    if position:
        arguments.pop()
    return scalars.call(node, name, *map(scalars.operand, arguments))


def _substring(scalars: "ScalarReader", node: exp.Substring) -> Operand:
    text, *numbers = map(scalars.operand, scalars.arguments(node, "this", "start", "length"))
    for number in numbers:
        _check_constant(scalars, number, "SUBSTRING", lowest=0)
    return scalars.call(node, "substring", text, *numbers)


def _end(name: str) -> Reader:
    def read(scalars: "ScalarReader", node: exp.Left | exp.Right) -> Operand:
        text, count = map(scalars.operand, scalars.arguments(node, "this", "expression"))
        _check_constant(scalars, count, name.upper(), lowest=-_MOST_LETTERS)
        return scalars.call(node, name, text, count)

    return read


def _check_constant(scalars: "ScalarReader", number: Operand, name: str, lowest: int) -> None:
    """Checks for a constant number of letters in the range in which the databases agree."""
    digits = number.constant if isinstance(number.constant, Number) else ""
    whole = int(digits) if digits.lstrip("-").isdigit() else None
    if whole is None or not lowest <= whole <= _MOST_LETTERS:
        least = "" if lowest < 0 else " and not negative"
        scalars.refuse(number.node, f"a number of letters in {name} has to be a constant{least}")


def _like(scalars: "ScalarReader", node: exp.Like, escape: exp.Expr | None = None) -> Operand:
    text, pattern = scalars.operand(node.this), scalars.operand(node.expression)
    signs = [] if escape is None else [scalars.operand(escape)]
    letters, *escapes = (_letters(scalars, constant) for constant in (pattern, *signs))
    if not signs and "\\" in letters:
        scalars.refuse(
            pattern.node,
            r"\ in a pattern escapes in PostgreSQL, in DuckDB not; say LIKE … ESCAPE '!'",
        )
    for sign, letter in zip(signs, escapes, strict=True):
        if len(letter) != 1:
            scalars.refuse(sign.node, "ESCAPE takes one letter")
        if _ends_in(letters, letter):
            scalars.refuse(pattern.node, "the pattern ends with its escape letter")
    found = scalars.call(node, "like", text, pattern, *signs)
    if node.args.get("negate"):
        return Operand(node, ex.Truth(ex.Not(ex.IsTrue(found.expression))), BOOLEAN)
    return found


def _letters(scalars: "ScalarReader", constant: Operand) -> str:
    if not isinstance(constant.constant, str):
        scalars.refuse(constant.node, "LIKE takes a constant here")
    return constant.constant


def _ends_in(pattern: str, escape: str) -> bool:
    return (len(pattern) - len(pattern.rstrip(escape))) % 2 == 1


def _escape(scalars: "ScalarReader", node: exp.Escape) -> Operand:
    if not isinstance(node.this, exp.Like):
        scalars.refuse(node, f"{node.sql('duckdb')} is not supported")
    return _like(scalars, node.this, node.expression)


# ------------------------------------------------------------------------------------------ rest


def _division(scalars: "ScalarReader", node: exp.Div) -> Operand:
    """Reads a quotient: of exact numbers, it depends on the dialect."""
    left, right = map(scalars.operand, scalars.arguments(node, "this", "expression"))
    types = [side.type for side in (left, right) if side.type is not None]
    if not types or not all(is_number(type_) and type_ != DOUBLE for type_ in types):
        return scalars.call(node, "/", left, right)
    if scalars.dialect == "duckdb":
        doubles = (Operand(o.node, scalars.as_(o, DOUBLE), DOUBLE) for o in (left, right))
        return scalars.call(node, "/", *doubles)
    if scalars.dialect is None:
        names = " / ".join(side.type.name if side.type else "NULL" for side in (left, right))
        scalars.refuse(
            node,
            f"{names} is a DOUBLE in DuckDB, but truncated or rounded in PostgreSQL; cast one side"
            f" to DOUBLE, or {SAY_WHICH}",
        )
    exact = "exact " if any(type_.family == "DECIMAL" for type_ in types) else ""
    return scalars.call(node, f"{exact}quotient", left, right)


def _round(scalars: "ScalarReader", node: exp.Round) -> Operand:
    """Reads ROUND: of a DECIMAL, a cast to fewer digits after the point."""
    arguments = list(map(scalars.operand, scalars.arguments(node, "this", "decimals")))
    number, digits = arguments[0], arguments[1].constant if len(arguments) > 1 else Number("0")
    if not isinstance(digits, Number) or not digits.isdigit():
        scalars.refuse(node, "the digits of ROUND have to be a constant and not negative")
    if number.type is None or number.type.family != "DECIMAL":
        return _round_other(scalars, node, number, int(digits), len(arguments) > 1)
    precision, scale = number.type.precision_and_scale
    type_ = decimal_type(precision, min(int(digits), scale))
    return Operand(node, scalars.as_(number, type_), type_)


def _round_other(
    scalars: "ScalarReader", node: exp.Round, number: Operand, digits: int, are_given: bool
) -> Operand:
    if number.type in (INTEGER, BIGINT):
        scalars.refuse(node, "ROUND of a whole number is the number itself; leave ROUND out")
    if scalars.dialect is None:
        scalars.refuse(
            node,
            "a DOUBLE is rounded half up by DuckDB and half to even by PostgreSQL; write"
            f" CAST(x * 100 AS BIGINT) for hundredths, or {SAY_WHICH}",
        )
    if scalars.dialect == "duckdb":
        if digits > _MOST_ROUNDED:
            scalars.refuse(node, f"ROUND of a DOUBLE takes up to {_MOST_ROUNDED} digits")
        return scalars.call(node, "round", number, _number(node, digits))
    if are_given:
        scalars.refuse(
            node, "PostgreSQL rounds a DOUBLE to no digits only; write CAST(x * 100 AS BIGINT)"
        )
    return scalars.call(node, "round half to even", number)


#: Powers of ten up to here are DOUBLEs.
_MOST_ROUNDED = 22


def _extreme(name: str) -> Reader:
    def read(scalars: "ScalarReader", node: exp.Expr) -> Operand:
        operands = list(map(scalars.operand, scalars.arguments(node, "this", "expressions")))
        type_, values = scalars.of_one_type(node, operands)
        return Operand(node, ex.Call(name, tuple(values), kept(type_)), type_)

    return read


#: The readers of calls, by the class of their nodes.
CALLS: dict[type[exp.Expr], Reader] = {
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Mul: _plain("*", "this", "expression"),
    exp.Div: _division,
    exp.Mod: _plain("%", "this", "expression"),
    exp.Neg: _plain("negate", "this"),
    exp.Abs: _plain("abs", "this"),
    exp.Floor: _plain("floor", "this"),
    exp.Ceil: _plain("ceil", "this"),
    exp.Round: _round,
    exp.Greatest: _extreme("greatest"),
    exp.Least: _extreme("least"),
    exp.DPipe: _concatenation,
    exp.Concat: _concat,
    exp.Upper: _plain("upper", "this"),
    exp.Lower: _plain("lower", "this"),
    exp.Length: _number_of("length", "this"),
    exp.Substring: _substring,
    exp.Left: _end("left"),
    exp.Right: _end("right"),
    exp.Trim: _trim,
    exp.Replace: _plain("replace", "this", "expression", "replacement"),
    exp.StartsWith: _plain("starts_with", "this", "expression"),
    exp.StrPosition: _number_of("strpos", "this", "substr"),
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Extract: _extract,
    exp.TimestampTrunc: _date_trunc,
    exp.DateTrunc: _date_trunc,
}
