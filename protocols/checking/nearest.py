"""The version vectors nearest to a wrong state: fewest copies of rows too many or missing.

A state that is the view at no vector is easier to understand beside the view that it nearly is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocols.checking.changes import Ints, StepChanges

#: A comparison of a state with every vector lays out no more numbers than this.
_CELLS = 4_000_000


@dataclass(frozen=True)
class Nearest:
    """The places with the smallest distance, and that distance."""

    off: int
    places: tuple[int, ...]


def nearest_step(held: Mapping[int, int], expected: StepChanges, last: int) -> Nearest:
    """The steps of a chain, up to the last, whose view comes closest to a state's rows."""
    away = dict(held)
    off = sum(map(abs, away.values()))
    order = np.argsort(expected.steps, kind="stable")
    moves = zip(
        expected.steps[order].tolist(),
        expected.rows[order].tolist(),
        expected.counts[order].tolist(),
        strict=True,
    )
    # Distances change only with the view: begin before everything, keep the best places.
    best: dict[int, int] = {}
    before = 0
    for step, row, count in moves:
        if step > last:
            break
        if step != before:
            best[before] = off
            before = step
        was = away.get(row, 0)
        away[row] = was - count
        off += abs(was - count) - abs(was)
    best[before] = off
    smallest = min(best.values())
    return Nearest(smallest, tuple(step for step, each in best.items() if each == smallest))


def nearest_vectors(
    held: Mapping[int, int],
    tagged: tuple[Ints, tuple[Any, ...], Ints],
    shape: tuple[int, ...],
    legal: npt.NDArray[np.bool_],
) -> Nearest | None:
    """The nearest of a whole grid of vectors, as flat numbers; None if the grid is too large.

    `tagged` has rows, their places in the grid and their counts; the view at a vector is the sum of
    all entries at or below it.
    """
    rows, place, counts = tagged
    names = np.unique(np.concatenate([rows, np.fromiter(held, np.int64, len(held))]))
    if len(names) * legal.size > _CELLS:
        return None
    away = np.zeros((len(names), *shape), dtype=np.int64)
    np.add.at(away, (np.searchsorted(names, rows), *place), counts)
    for axis in range(1, away.ndim):
        np.add.accumulate(away, axis=axis, out=away)
    wanted = np.array([held.get(name, 0) for name in names.tolist()], dtype=np.int64)
    away -= wanted.reshape(-1, *([1] * len(shape)))
    off = np.where(legal, np.abs(away).sum(axis=0), np.iinfo(np.int64).max)
    smallest = int(off.min())
    return Nearest(smallest, tuple(np.flatnonzero(off.ravel() == smallest).tolist()))
