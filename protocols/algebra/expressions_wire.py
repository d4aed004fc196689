"""The wire form of conditions and values: JSON, which is checked when it is read."""

from typing import Any

from protocols.algebra import expressions as ex
from protocols.algebra.functions import FUNCTIONS
from protocols.algebra.types import column_type


def to_json(condition: ex.Condition) -> list[Any]:
    """The wire form of a condition: nested lists with the operator first."""
    match condition:
        case ex.Comparison(left, op, right):
            return [op, value_to_json(left), value_to_json(right)]
        case ex.In(operand, values, type_):
            listed = {"values": list(map(type_.encode, values)), "type": type_.name}
            return ["in", value_to_json(operand), listed]
        case ex.IsNull(operand):
            return ["is null", value_to_json(operand)]
        case ex.IsTrue(operand):
            return ["is true", value_to_json(operand)]
        case ex.Not(inner):
            return ["not", to_json(inner)]
        case ex.And(parts):
            return ["and", *map(to_json, parts)]
        case ex.Or(parts):
            return ["or", *map(to_json, parts)]


def value_to_json(expression: ex.Expression) -> dict[str, Any]:
    """The wire form of a value: an object whose keys name its kind."""
    match expression:
        case ex.Column(name):
            return {"column": name}
        case ex.Literal(constant, type_):
            return {"value": type_.encode(constant), "type": type_.name}
        case ex.Call(function, arguments, type_):
            forms = [value_to_json(argument) for argument in arguments]
            return {"call": function, "arguments": forms, "type": type_.name}
        case ex.Case(branches, default, type_):
            pairs = [[to_json(when), value_to_json(then)] for when, then in branches]
            return {"case": pairs, "else": value_to_json(default), "type": type_.name}
        case ex.Truth(condition):
            return {"truth": to_json(condition)}


def from_json(form: Any) -> ex.Condition:
    """Reads the wire form of a condition; raises ValueError for anything else."""
    match form:
        case [str(op), left, right] if op in ex.COMPARISONS:
            return ex.Comparison(value_from_json(left), op, value_from_json(right))
        case ["in", operand, {"values": [_, *_] as values, "type": str(name)}]:
            type_ = column_type(name)
            return ex.In(value_from_json(operand), tuple(map(type_.decode, values)), type_)
        case ["is null", operand]:
            return ex.IsNull(value_from_json(operand))
        case ["is true", operand]:
            return ex.IsTrue(value_from_json(operand))
        case ["not", inner]:
            return ex.Not(from_json(inner))
        case ["and", *parts] if parts:
            return ex.And(tuple(map(from_json, parts)))
        case ["or", *parts] if parts:
            return ex.Or(tuple(map(from_json, parts)))
    raise ValueError(f"not a condition: {form!r}")


def value_from_json(form: Any) -> ex.Expression:
    """Reads the wire form of a value; raises ValueError for anything else."""
    match form:
        case {"column": str(name)}:
            return ex.Column(name)
        case {"value": constant, "type": str(name)}:
            type_ = column_type(name)
            return ex.Literal(type_.decode(constant), type_)
        case {"call": str(function), "arguments": [*arguments], "type": str(name)}:
            if function in FUNCTIONS:
                given = tuple(map(value_from_json, arguments))
                return ex.Call(function, given, column_type(name))
        case {"case": [*pairs], "else": default, "type": str(name)} if pairs:
            branches = tuple(map(_branch_from_json, pairs))
            return ex.Case(branches, value_from_json(default), column_type(name))
        case {"truth": condition}:
            return ex.Truth(from_json(condition))
    raise ValueError(f"neither a column nor a value: {form!r}")


def _branch_from_json(form: Any) -> tuple[ex.Condition, ex.Expression]:
    match form:
        case [condition, then]:
            return from_json(condition), value_from_json(then)
    raise ValueError(f"not a branch: {form!r}")
