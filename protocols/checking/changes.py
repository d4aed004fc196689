"""Changes of a view from step to step, computed or shown: signed counts of its rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StepChanges:
    """Signed counts of rows (by their number) per step; each pair of row and step at most once."""

    rows: Ints
    steps: Ints
    counts: Ints

    def minus(self, other: "StepChanges") -> "StepChanges":
        """The difference to other changes, without zeros."""
        return summed(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.counts, -other.counts]),
        )

    def at(self, steps: Ints) -> "StepChanges":
        """The same changes, step i renamed to steps[i]."""
        return summed(self.rows, steps[self.steps], self.counts)

    def until(self, step: int) -> dict[int, int]:
        """The sum of all changes up to a step: count by row, without zeros."""
        chosen = self.steps <= step
        total = summed(self.rows[chosen], np.zeros_like(self.rows[chosen]), self.counts[chosen])
        return dict(zip(total.rows.tolist(), total.counts.tolist(), strict=True))

    def of(self, row: int) -> list[tuple[int, int]]:
        """A row's (step, count), in order of steps."""
        chosen = self.rows == row
        pairs = zip(self.steps[chosen].tolist(), self.counts[chosen].tolist(), strict=True)
        return sorted(pairs)


def summed(rows: Ints, steps: Ints, counts: Ints) -> StepChanges:
    """Adds up the counts per (row, step) and drops zeros."""
    if not len(rows):
        return StepChanges(rows, steps, counts)
    order = np.lexsort((rows, steps))
    rows, steps, counts = rows[order], steps[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(steps) != 0)]))
    totals = np.add.reduceat(counts, starts)
    kept = totals != 0
    return StepChanges(rows[starts][kept], steps[starts][kept], totals[kept])
