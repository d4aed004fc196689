"""Conditions that are not true when columns are NULL: *null-rejecting* (Larson and Zhou, 2.1).

An outer join pads rows without a partner. A condition above it that rejects NULL drops the padded
rows again, which makes the padding pointless. The test is conservative: it says yes only if the
condition is true for no row at all in which the columns are NULL.
"""

from collections.abc import Collection
from typing import Literal, TypeAlias

from protocols.algebra import expressions as ex
from protocols.algebra.functions import FUNCTIONS

#: The truth values that a condition can have; None is SQL's unknown.
_Truths: TypeAlias = frozenset[bool | None]
_ANY: _Truths = frozenset({True, False, None})
_UNKNOWN: _Truths = frozenset({None})


def rejects_null(condition: ex.Condition, columns: Collection[str]) -> bool:
    """Whether the condition is true for no row in which all these columns are NULL.

    `s.x = 1` rejects NULL in s.x, `s.x = 1 OR s.y = 2` in s.x and s.y together,
    `s.x IS NULL` and `COALESCE(s.x, 0) = 0` in nothing.
    """
    return True not in _truths(condition, frozenset(columns))


def never_null_where(condition: ex.Condition, columns: Collection[str]) -> frozenset[str]:
    """The columns that are not NULL in any row for which the condition is true."""
    return frozenset(column for column in columns if rejects_null(condition, (column,)))


def is_null(value: ex.Expression, columns: Collection[str]) -> bool:
    """Whether the value is NULL in every row in which all these columns are NULL."""
    match value:
        case ex.Column(name):
            return name in columns
        case ex.Literal(constant, _):
            return constant is None
        case ex.Call(function, arguments, _):
            given = [is_null(argument, columns) for argument in arguments]
            return any(given) if FUNCTIONS[function].null_in_null_out else all(given)
        case ex.Case(branches, default, _):
            nulls = frozenset(columns)
            chosen = [then for test, then in branches if True in _truths(test, nulls)]
            return all(is_null(then, nulls) for then in (*chosen, default))
        case ex.Truth(condition):
            return _truths(condition, frozenset(columns)) == _UNKNOWN


def _truths(condition: ex.Condition, nulls: frozenset[str]) -> _Truths:
    """The truth values that the condition can have while these columns are NULL."""
    match condition:
        case ex.Comparison(left, _, right):
            return _UNKNOWN if is_null(left, nulls) or is_null(right, nulls) else _ANY
        case ex.In(operand, values):
            return _UNKNOWN if is_null(operand, nulls) or {*values} == {None} else _ANY
        case ex.IsNull(operand):
            return frozenset({True}) if is_null(operand, nulls) else frozenset({True, False})
        case ex.IsTrue(operand):
            return _UNKNOWN if is_null(operand, nulls) else _ANY
        case ex.Not(inner):
            return frozenset(None if t is None else not t for t in _truths(inner, nulls))
        case ex.And(parts):
            return _combined(parts, nulls, decisive=False)
        case ex.Or(parts):
            return _combined(parts, nulls, decisive=True)


def _combined(
    parts: tuple[ex.Condition, ...], nulls: frozenset[str], decisive: Literal[True, False]
) -> _Truths:
    """The truth values of AND (false decides) and of OR (true decides)."""
    reached: _Truths = frozenset({not decisive})
    for part in parts:
        reached = frozenset(
            decisive if decisive in (a, b) else None if None in (a, b) else not decisive
            for a in reached
            for b in _truths(part, nulls)
        )
    return reached
