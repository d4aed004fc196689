"""Conditions, values and names as SQL that a person reads and DuckDB and PostgreSQL run."""

import re
from collections.abc import Callable, Sequence

from protocols.algebra import expressions as ex
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
#: Words that cannot name a column or a table without quotes.
_RESERVED = """
all and any array as asc both case cast check collate column constraint create default desc distinct
do else end except false fetch for foreign from grant group having in initially intersect into
lateral leading limit not null offset on only or order primary references returning select some
table then to trailing true union unique user using variadic when where window with
"""
#: The SQL of a column.
Naming = Callable[[str], str]


def quoted(name: str) -> str:
    """A name, in quotes if it needs them."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED.split():
        return name
    return '"' + name.replace('"', '""') + '"'


def relation_text(relation: Relation) -> str:
    return f"{quoted(relation.source)}.{quoted(relation.name)}"


def tuple_text(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def condition_text(condition: ex.Condition, named: Naming) -> str:
    """The SQL of a condition."""

    def inner(part: ex.Condition) -> str:
        text = condition_text(part, named)
        return f"({text})" if isinstance(part, ex.And | ex.Or | ex.Not) else text

    match condition:
        case ex.Comparison(left, op, right):
            return f"{_operand(left, named)} {op} {_operand(right, named)}"
        case ex.In(operand, values, type_):
            listed = ", ".join(constant_text(value, type_) for value in values)
            return f"{_operand(operand, named)} IN ({listed})"
        case ex.IsNull(operand):
            return f"{value_text(operand, named)} IS NULL"
        case ex.IsTrue(operand):
            return value_text(operand, named)
        case ex.Not(ex.IsNull(operand)):
            return f"{value_text(operand, named)} IS NOT NULL"
        case ex.Not(part):
            return f"NOT ({condition_text(part, named)})"
        case ex.And(parts):
            return " AND ".join(map(inner, parts))
        case ex.Or(parts):
            return " OR ".join(map(inner, parts))


def value_text(value: ex.Expression, named: Naming) -> str:
    """The SQL of a value; constants carry their type unless it is clear."""
    match value:
        case ex.Column(name):
            return named(name)
        case ex.Literal(constant, type_):
            text = constant_text(constant, type_)
            plain = type_.family in ("BIGINT", "BOOLEAN")
            return text if plain and constant is not None else f"CAST({text} AS {type_.name})"
        case ex.Call(function, arguments, type_):
            texts = [value_text(argument, named) for argument in arguments]
            spelled = FUNCTIONS[function].sql
            assert spelled is not None, "advice is about views without a dialect"
            return f"CAST({spelled(type_, texts)} AS {type_.name})"
        case ex.Case(branches, default, _):
            whens = " ".join(
                f"WHEN {condition_text(when, named)} THEN {value_text(then, named)}"
                for when, then in branches
            )
            return f"CASE {whens} ELSE {value_text(default, named)} END"
        case ex.Truth(condition):
            return f"({condition_text(condition, named)})"


def constant_text(constant: object, type_: ColumnType) -> str:
    """A constant in SQL, without its type."""
    if constant is None:
        return "NULL"
    encoded = str(type_.encode(constant))
    if type_.family in ("BIGINT", "DECIMAL", "BOOLEAN"):
        return encoded.upper()
    return "'" + encoded.replace("'", "''") + "'"


def _operand(value: ex.Expression, named: Naming) -> str:
    """A side of a comparison, where the other side gives a constant its type."""
    if isinstance(value, ex.Literal):
        return constant_text(value.value, value.type)
    return value_text(value, named)
