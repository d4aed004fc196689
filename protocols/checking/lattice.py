"""The exact search over all version vectors, for traces that are small enough.

The vectors between the first state and the top form a grid, one axis per source that the view
reads. Every distinct row gets a random 128-bit number; a state's fingerprint is the sum of its
counts times these numbers, so equal states have equal fingerprints and different ones almost never.
Fingerprints are linear, so those of V[x] for all x at once are the prefix sums, along every axis,
of the fingerprints of the rows tagged with exactly x.

- weak: each state's fingerprint occurs in the grid.
- strong: `reached` is the set of vectors at which state i can stand; for the next state it is the
  set of vectors that have the right fingerprint and lie above one of them. The upper closure of a
  set is a running OR along each axis.
- complete: a breadth-first walk over (state, vector) in steps of one transaction, each of which
  either keeps the value or moves on to the next state; states are compared without repetitions.

Illegal vectors (half of a global transaction) are never reached.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from protocols.checking.changes import Ints, StepChanges
from protocols.checking.history import VersionHistory
from protocols.checking.nearest import Nearest, nearest_vectors
from protocols.checking.order import DeliveryOrder

Grid = npt.NDArray[np.bool_]
Point = tuple[int, ...]
_SEED = 20_260_101


@dataclass(frozen=True)
class Budget:
    """Limits of a search: vectors in the grid, evaluations of SQL, cells, steps of the walk."""

    vectors: int = 2_000_000
    evaluations: int = 20_000
    cells: int = 4_000_000_000
    steps: int = 300_000


class BudgetError(Exception):
    """The search exceeds its budget; the message says what would decide the question."""


@dataclass(frozen=True)
class Found:
    """The result of a search: the level holds with a vector per state, or fails at a state."""

    holds: bool
    failed_at: int = 0
    vectors: tuple[Point, ...] = ()


class Lattice:
    """The grid of vectors over the sources that a view reads, to match with states."""

    def __init__(
        self,
        history: VersionHistory,
        order: DeliveryOrder,
        shown: StepChanges,
        states: int,
        top: Any,
        budget: Budget,
    ) -> None:
        self.budget = budget
        read = {atom.relation.source for atom in history.text.atoms}
        # The sources that are axes, by number; the first and last version on each.
        self.axes = [s for s, source in enumerate(order.sources) if source in read]
        self.low = [int(order.prefixes[0, s]) for s in self.axes]
        self.high = [int(top[s]) for s in self.axes]
        self.shape = tuple(h - low + 1 for low, h in zip(self.low, self.high, strict=True))
        self.size = 1
        for length in self.shape:
            self.size *= length
        limit = budget.vectors if history.text.is_spj else budget.evaluations
        if self.size > limit:
            raise BudgetError(
                f"the check would have to search {self.size:,} version vectors, the limit is"
                f" {limit:,}; check a shorter trace, or one whose states give their vectors"
            )
        # Global transactions as (axis, coordinate) of their parts.
        self.globals = _globals_on(order, self.axes, self.low)
        self.legal = self._legal()
        #: Result rows with their places on the grid and counts; None if the view has no such rows.
        self._tagged: tuple[Ints, tuple[Ints, ...], Ints] | None = None
        self._first, self._second = self._fingerprints(history, shown, states)
        self._order = np.argsort(self._first, axis=None, kind="stable")
        self._sorted = self._first.ravel()[self._order]

    def matches(self, state: int) -> Ints:
        """The legal vectors, as flat numbers, at which the view equals the state."""
        first, second = self.states[0][state], self.states[1][state]
        start = np.searchsorted(self._sorted, first, side="left")
        stop = np.searchsorted(self._sorted, first, side="right")
        found = self._order[start:stop]
        kept = (self._second.ravel()[found] == second) & self.legal.ravel()[found]
        return np.asarray(found[kept], dtype=np.int64)

    def nearest(self, held: Mapping[int, int]) -> Nearest | None:
        """The legal vectors, as flat numbers, at which the view is most like these rows."""
        if self._tagged is None:
            return None
        return nearest_vectors(held, self._tagged, self.shape, self.legal)

    def vector(self, flat: int) -> Point:
        """The versions, per axis, of a flat number."""
        point = np.unravel_index(flat, self.shape)
        return tuple(int(p) + low for p, low in zip(point, self.low, strict=True))

    def weak(self, states: int) -> Found:
        failed = (i for i in range(states) if not len(self.matches(i)))
        first = next(failed, None)
        return Found(True) if first is None else Found(False, first)

    def strong(self, states: int) -> Found:
        """Whether a chain of vectors explains the states.

        It starts at the first state's vector and ends at the top.
        """
        kept = self._distinct(states)
        if len(kept) * len(self.shape) * self.size > self.budget.cells:
            raise BudgetError(f"{len(kept)} states over {self.size:,} vectors is too much work")
        chosen: list[Ints] = []
        above = np.zeros(self.shape, dtype=np.bool_)
        above.flat[0] = True
        for state in kept:
            for axis in range(above.ndim if state else 0):
                np.logical_or.accumulate(above, axis=axis, out=above)
            here = self.matches(state)
            here = here[above.ravel()[here]]
            if not len(here):
                return Found(False, state)
            chosen.append(here)
            above = np.zeros(self.shape, dtype=np.bool_)
            above.flat[here] = True
        # Everything lies below the top, so the last state, or its repetition, may stand there.
        if self.size - 1 not in self.matches(states - 1):
            return Found(False, states - 1)
        return Found(True, vectors=self._chain(chosen, kept, states))

    def _chain(self, chosen: list[Ints], kept: list[int], states: int) -> tuple[Point, ...]:
        """Picks a vector per state, from the top downwards."""
        at = int(chosen[-1][-1])
        downwards = [at]
        for here in reversed(chosen[:-1]):
            points = np.stack(np.unravel_index(here, self.shape))
            limit = np.array(np.unravel_index(at, self.shape))[:, None]
            at = int(here[np.flatnonzero((points <= limit).all(axis=0))[-1]])
            downwards.append(at)
        by_kept = dict(zip(kept, reversed(downwards), strict=True))
        vectors: list[Point] = []
        for state in range(states):
            vectors.append(self.vector(by_kept[state]) if state in by_kept else vectors[-1])
        return tuple(vectors)

    def complete(self, states: int) -> Found:
        """Is there one schedule whose values are the states, none left out?"""
        kept = self._distinct(states)
        match = [set(self.matches(state).tolist()) for state in kept]
        if 0 not in match[0]:
            return Found(False, 0)
        came: dict[tuple[int, int], tuple[int, int] | None] = {(0, 0): None}
        todo = deque([(0, 0)])
        furthest = 0
        while todo:
            if len(came) > self.budget.steps:
                raise BudgetError(f"the walk took more than {self.budget.steps:,} steps")
            i, flat = todo.popleft()
            if i == len(kept) - 1 and flat == self.size - 1:
                return Found(True, vectors=self._path(came, (i, flat)))
            for onward in self._steps(flat):
                for j in (i, i + 1):
                    if j < len(kept) and onward in match[j] and (j, onward) not in came:
                        came[j, onward] = (i, flat)
                        todo.append((j, onward))
                        furthest = max(furthest, j)
        return Found(False, kept[min(furthest + 1, len(kept) - 1)])

    def _path(
        self, came: dict[tuple[int, int], tuple[int, int] | None], at: tuple[int, int]
    ) -> tuple[Point, ...]:
        path = []
        here: tuple[int, int] | None = at
        while here is not None:
            path.append(self.vector(here[1]))
            here = came[here]
        return tuple(reversed(path))

    def _steps(self, flat: int) -> list[int]:
        """The legal vectors one transaction further; a global transaction goes as a whole."""
        point = tuple(int(p) for p in np.unravel_index(flat, self.shape))
        onward = (self._advanced(point, axis) for axis in range(len(point)))
        return [int(np.ravel_multi_index(p, self.shape)) for p in onward if p is not None]

    def _advanced(self, point: Point, axis: int) -> Point | None:
        grown = list(point)
        grown[axis] += 1
        settled = False
        while not settled:
            settled = True
            for parts in self.globals:
                if any(grown[a] >= c for a, c in parts) and any(grown[a] < c for a, c in parts):
                    settled = False
                    for a, c in parts:
                        grown[a] = max(grown[a], c)
        inside = all(c < length for c, length in zip(grown, self.shape, strict=True))
        return tuple(grown) if inside else None

    def _distinct(self, states: int) -> list[int]:
        """The states that differ from the one before."""
        first, second = self.states
        same = (first[1:states] == first[: states - 1]) & (second[1:states] == second[: states - 1])
        return [0, *(np.flatnonzero(~same) + 1).tolist()]

    def _legal(self) -> Grid:
        legal = np.ones(self.shape, dtype=np.bool_)
        coordinates = np.indices(self.shape, sparse=True)
        for parts in self.globals:
            axis, coordinate = parts[0]
            has_first = coordinates[axis] >= coordinate
            for axis, coordinate in parts[1:]:
                legal &= (coordinates[axis] >= coordinate) == has_first
        return legal

    def _fingerprints(
        self, history: VersionHistory, shown: StepChanges, states: int
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Computes those of all vectors (returned) and of all states (kept in `states`)."""
        if history.text.is_spj:
            rows, versions, counts = history.tagged()
            tags = [versions[axis] for axis in self.axes]
        else:
            points = np.stack(np.unravel_index(np.arange(self.size), self.shape), axis=1)
            vectors = np.zeros((self.size, len(history.order.sources)), dtype=np.int64)
            vectors[:, self.axes] = points + np.array(self.low)
            whole = history.at(vectors)
            rows, counts = whole.rows, whole.counts
            tags = [vectors[whole.steps, axis] for axis in self.axes]
        kept = np.ones(len(rows), dtype=np.bool_)
        for tag, high in zip(tags, self.high, strict=True):
            kept &= tag <= high
        place = tuple(
            np.maximum(tag[kept] - low, 0) for tag, low in zip(tags, self.low, strict=True)
        )
        if history.text.is_spj:
            self._tagged = rows[kept], place, counts[kept]
        known = max([*rows.tolist(), *shown.rows.tolist()], default=0) + 1
        grids = []
        self.states: list[npt.NDArray[np.uint64]] = []
        for seed in (_SEED, _SEED + 1):
            random = np.random.default_rng(seed).integers(0, 2**64, known, dtype=np.uint64)
            grid = np.zeros(self.shape, dtype=np.uint64)
            np.add.at(grid, place, random[rows[kept]] * counts[kept].astype(np.uint64))
            if history.text.is_spj:
                for axis in range(grid.ndim):
                    np.add.accumulate(grid, axis=axis, out=grid)
            grids.append(grid)
            states_ = np.zeros(states, dtype=np.uint64)
            np.add.at(states_, shown.steps, random[shown.rows] * shown.counts.astype(np.uint64))
            self.states.append(np.add.accumulate(states_))
        return grids[0], grids[1]


def _globals_on(
    order: DeliveryOrder, axes: Sequence[int], low: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """The global transactions with two parts on the grid, as (axis, coordinate)."""
    on_axis: Callable[[int], int] = list(axes).index
    found = []
    for parts in order.globals.values():
        placed = [(on_axis(s), v - low[on_axis(s)]) for s, v in parts if s in axes]
        # Parts in the first state are at or below 0, undelivered ones beyond the grid.
        if len(placed) > 1 and any(c > 0 for _, c in placed):
            found.append([(a, max(c, 0)) for a, c in placed])
    return found
