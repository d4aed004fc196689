"""Conditions as text that a person reads, and results as JSON that a program reads."""

import dataclasses
from typing import Any

from protocols.algebra import expressions as ex
from protocols.algebra.types import ColumnType
from protocols.analysis.coalesce import coalesced
from protocols.views.catalog import Relation
from protocols.views.normal.links import exact

#: Operators that stand between their operands.
_INFIX = frozenset({"+", "-", "*", "/", "%", "||"})


def condition_text(condition: ex.Condition) -> str:
    """The condition in SQL, with columns as `alias.column`."""
    match condition:
        case ex.Comparison(left, op, right):
            return f"{value_text(left)} {op} {value_text(right)}"
        case ex.In(operand, values, type_):
            return f"{value_text(operand)} IN ({_values_text(values, type_)})"
        case ex.IsNull(operand):
            return f"{value_text(operand)} IS NULL"
        case ex.IsTrue(operand):
            return value_text(operand)
        case ex.Not(ex.IsNull(operand)):
            return f"{value_text(operand)} IS NOT NULL"
        case ex.Not(ex.In(operand, values, type_)):
            return f"{value_text(operand)} NOT IN ({_values_text(values, type_)})"
        case ex.Not(inner):
            return f"NOT ({condition_text(inner)})"
        case ex.And(parts):
            return " AND ".join(_in_brackets(part) for part in parts)
        case ex.Or(parts):
            return " OR ".join(_in_brackets(part) for part in parts)


def conditions_text(conditions: tuple[ex.Condition, ...]) -> str:
    """All of them, joined by AND; TRUE when there are none."""
    return " AND ".join(_in_brackets(each) for each in conditions) or "TRUE"


def value_text(value: ex.Expression) -> str:
    """The value in SQL."""
    match value:
        case ex.Column(name):
            return name
        case ex.Literal(None, _):
            return "NULL"
        case ex.Literal(constant, type_):
            encoded = type_.encode(constant)
            if type_.family in ("BIGINT", "DECIMAL", "BOOLEAN"):
                return str(encoded).upper()
            return _quoted(str(encoded))
        case ex.Call(function, (left, right), _) if function in _INFIX:
            return f"({value_text(left)} {function} {value_text(right)})"
        case ex.Call("cast", (operand,), type_):
            return f"CAST({value_text(operand)} AS {type_.name})"
        case ex.Call("negate", (operand,), _):
            return f"(- {value_text(operand)})"
        case ex.Call(function, arguments, _):
            return f"{function}({', '.join(map(value_text, arguments))})"
        case ex.Case() if (parts := coalesced(value)) is not None:
            return f"COALESCE({', '.join(map(value_text, parts))})"
        case ex.Case(_, _, type_) if (part := exact(value)) is not None:
            return f"EXACT({value_text(part)} AS {type_.name})"
        case ex.Case(branches, default, _):
            whens = " ".join(f"WHEN {condition_text(c)} THEN {value_text(v)}" for c, v in branches)
            return f"CASE {whens} ELSE {value_text(default)} END"
        case ex.Truth(condition):
            return f"({condition_text(condition)})"


def as_json(result: Any) -> Any:
    """A result of the analysis as nested dictionaries, lists, texts and numbers."""
    match result:
        case ex.Comparison() | ex.In() | ex.IsNull() | ex.IsTrue() | ex.Not() | ex.And() | ex.Or():
            return condition_text(result)
        case Relation():
            return str(result)
        case dict():
            return {str(name): as_json(each) for name, each in result.items()}
        case tuple() | list():
            return [as_json(each) for each in result]
        case set() | frozenset():
            return [as_json(each) for each in sorted(result)]
    if dataclasses.is_dataclass(result):
        fields = (field.name for field in dataclasses.fields(result))
        return {name: as_json(getattr(result, name)) for name in fields}
    return result


def listed(words: tuple[str, ...] | list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def _values_text(values: tuple[Any, ...], type_: ColumnType) -> str:
    return ", ".join(value_text(ex.Literal(each, type_)) for each in values)


def _in_brackets(condition: ex.Condition) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, ex.And | ex.Or) else text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
