"""A stretch of a keyed relation in key order, as a condition on its rows."""

from typing import Any, TypeAlias

from protocols.algebra.expressions import And, Column, Comparison, Condition, Literal, Or
from protocols.views.catalog import Relation

#: The values of a key, in the order of its columns.
Key: TypeAlias = tuple[Any, ...]


def key_range(relation: Relation, after: Key | None, upto: Key | None) -> Condition | None:
    """`after < key <= upto` in the order of the key's columns; an open end is None."""
    parts = []
    if after is not None:
        parts.append(_beyond(relation, ">", after))
    if upto is not None:
        parts.append(Or((_beyond(relation, "<", upto), _equal(relation, upto))))
    return And(tuple(parts)) if parts else None


def _beyond(relation: Relation, op: str, key: Key) -> Condition:
    """Compares lexicographically: equal in the first columns, beyond in the next one."""
    cases = []
    for index in range(len(key)):
        tests = [_test(relation, i, "=", key) for i in range(index)]
        cases.append(And((*tests, _test(relation, index, op, key))))
    return Or(tuple(cases))


def _equal(relation: Relation, key: Key) -> Condition:
    return And(tuple(_test(relation, i, "=", key) for i in range(len(key))))


def _test(relation: Relation, index: int, op: str, key: Key) -> Condition:
    column = relation.key[index]
    return Comparison(Column(column), op, Literal(key[index], relation.type_of(column)))
