"""The columns that are equal in every row of a view, and those that are constant there.

The paper speaks of join conditions as they are written. Which of several equivalent ways somebody
has written them in must not decide what is stored, so here `a.x = b.y AND b.y = c.z` also means
`a.x = c.z`, and `a.x = 5 AND a.x = b.y` also means `b.y = 5`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from protocols.algebra.expressions import Column, Comparison, Condition, Literal

#: A column `alias.column`, or a constant.
_Term: TypeAlias = str | Literal


@dataclass(frozen=True)
class Equalities:
    """Classes of equal columns; each class may contain a constant."""

    classes: tuple[frozenset[_Term], ...]

    def equal_to(self, column: str) -> frozenset[str]:
        """The columns that equal this one, itself included."""
        return frozenset(term for term in self._class_of(column) if isinstance(term, str))

    def is_constant(self, column: str) -> bool:
        """Whether the column has one value in all rows of the view."""
        return any(isinstance(term, Literal) for term in self._class_of(column))

    def are_equal(self, one: str, other: str) -> bool:
        return other in self._class_of(one)

    def constants_of(self, columns: Iterable[str]) -> Iterator[tuple[str, Literal]]:
        """Those of these columns that are constant, each with its value."""
        for column in columns:
            values = (term for term in self._class_of(column) if isinstance(term, Literal))
            yield from ((column, value) for value in values)

    def _class_of(self, column: str) -> frozenset[_Term]:
        return next((each for each in self.classes if column in each), frozenset({column}))


def equalities(conditions: Iterable[Condition]) -> Equalities:
    """Collects the equalities that these conditions imply together."""
    classes: list[frozenset[_Term]] = []
    for one, other in _pairs(conditions):
        met = [each for each in classes if one in each or other in each]
        classes = [each for each in classes if each not in met]
        classes.append(frozenset({one, other}).union(*met))
    return Equalities(tuple(classes))


def _pairs(conditions: Iterable[Condition]) -> Iterator[tuple[_Term, _Term]]:
    for condition in conditions:
        match condition:
            case Comparison(Column(one), "=", Column(other)):
                yield one, other
            case Comparison(Column(one), "=", Literal() as constant) | Comparison(
                Literal() as constant, "=", Column(one)
            ) if constant.value is not None:
                yield one, constant
