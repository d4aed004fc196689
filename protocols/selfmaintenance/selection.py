"""The strictest set of local selection conditions on a relation (Algorithm 3.1).

Beside the conditions that the view states about it, those that follow from conditions on other
relations: with `a.x = b.y`, `a.x < 5` also means `b.y < 5`; with `a.x = b.y AND a.x = b.z`, also
`b.y = b.z`.
"""

from collections.abc import Iterator
from itertools import pairwise

from protocols.algebra.expressions import (
    Column,
    Comparison,
    Condition,
    Literal,
    columns_of,
    conjuncts,
    renamed,
)
from protocols.selfmaintenance.equalities import Equalities, equalities
from protocols.views.view import Atom, View


def local_conditions(atom: Atom, view: View) -> tuple[Condition, ...]:
    """All local conditions, over columns `alias.column`; the stated ones first."""
    stated = tuple(_stated(atom))
    equal = equalities(view.conditions)
    others = (each for other in view.atoms if other is not atom for each in _stated(other))
    carried = (found for each in others if (found := _carried(each, atom, equal)) is not None)
    inferred = (*carried, *_equal_columns(atom, equal))
    return (*stated, *(each for each in dict.fromkeys(inferred) if not _follows(each, stated)))


def _stated(atom: Atom) -> Iterator[Condition]:
    return (renamed(each, atom.qualified) for each in conjuncts(atom.condition))


def _carried(condition: Condition, atom: Atom, equal: Equalities) -> Condition | None:
    """The same condition over the equal columns of this relation, if it has them all."""
    own = _own_columns(atom)
    names = {c: [o for o in own if equal.are_equal(c, o)] for c in columns_of(condition)}
    if not names or not all(names.values()):
        return None
    return renamed(condition, lambda column: names[column][0])


def _equal_columns(atom: Atom, equal: Equalities) -> Iterator[Condition]:
    """The columns of this relation that are equal, or constant, by the view's conditions."""
    for column, constant in equal.constants_of(_own_columns(atom)):
        yield Comparison(Column(column), "=", constant)
    for same in equal.classes:
        for one, other in pairwise(column for column in _own_columns(atom) if column in same):
            if not equal.is_constant(one):
                yield Comparison(Column(one), "=", Column(other))


def _follows(inferred: Condition, stated: tuple[Condition, ...]) -> bool:
    """Whether the stated conditions say it already."""
    known = equalities(stated)
    match inferred:
        case Comparison(Column(one), "=", Column(other)):
            return known.are_equal(one, other)
        case Comparison(Column(one), "=", Literal()):
            return known.is_constant(one)
    return inferred in stated


def _own_columns(atom: Atom) -> list[str]:
    return [atom.qualified(column) for column in atom.relation.column_names]
