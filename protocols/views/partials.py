"""Partial changes: on their way from a change of one atom to the change of the view.

A partial holds the rows of all atoms gathered so far, under qualified names, each with its signed
count. `seed` begins one, `extended` adds one atom, `total` adds up the result.
"""

from collections.abc import Collection, Iterable
from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.algebra.expressions import Condition, conjunction
from protocols.views.plan import Plan, PlanStep

D = TypeVar("D", bound=Delta)


def seed(way: Plan, change: D, also: tuple[str, ...] = ()) -> D:
    """Makes the first partial of the origin's change: selected, with qualified columns.

    `also` names columns that are not of the relation; they stay as they are.
    """
    if way.origin.condition is not None:
        change = change.where(way.origin.condition)
    partial = change.select([*way.origin.renaming, *((name, name) for name in also)])
    return partial if way.residual is None else partial.where(way.residual)


def extended(
    partial: D,
    rows: D,
    step: PlanStep,
    where: Condition | None = None,
    without: Collection[str] = (),
) -> D:
    """The partial joined with the rows of the step's atom, under the conditions that can be tested.

    `where` is a further condition on pairs, and `without` names the columns that only it needs. It
    is tested first: a condition may have no value on pairs that never existed.
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
