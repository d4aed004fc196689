"""Partial changes on their way from a change of one atom to the change of the view.

A partial holds the rows of all atoms gathered so far, under qualified names, each with its signed
count. `seed` begins one, `extended` takes in one more atom, `total` adds up what is left.
"""

from collections.abc import Collection, Iterable
from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.algebra.expressions import Condition, conjunction
from protocols.views.plan import Plan, Step

D = TypeVar("D", bound=Delta)


def seed(way: Plan, change: D, also: tuple[str, ...] = ()) -> D:
    """The change of the origin as the first partial: selected, with qualified columns.

    `also` names columns that are not of the relation and stay what they are.
    """
    if way.origin.condition is not None:
        change = change.where(way.origin.condition)
    partial = change.select([*way.origin.renaming, *((name, name) for name in also)])
    return partial if way.residual is None else partial.where(way.residual)


def extended(
    partial: D, rows: D, step: Step, where: Condition | None = None, without: Collection[str] = ()
) -> D:
    """The partial joined with the rows of the step's atom, as far as conditions allow.

    `where` and `without` say what else pairs have to satisfy, and which columns serve only that.
    It is tested first: of pairs that never were a condition may have no value.
    """
    tests = tuple(test for test in (where, step.residual) if test is not None)
    return partial.join(rows, step.join_on, conjunction(tests), without)


def total(parts: Iterable[D]) -> D | None:
    """The sum, consolidated; None when nothing remains."""
    parts = list(parts)
    if not parts:
        return None
    first, *others = parts
    for part in others:
        first = first.plus(part)
    change = first.consolidated()
    return None if change.is_empty() else change
