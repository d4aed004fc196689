"""What a running job knows about itself: where the time goes, and how fresh the view is."""

import datetime
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl

#: How many of the latest updates the freshness percentiles speak of.
_RECENT = 5000
#: Of so many batches on executors the summary tells each by itself.
_BATCHES = 20


@dataclass
class Measures:
    """Counters of one job since its start; written by the job, read by the live view."""

    started: float = field(default_factory=time.monotonic)
    position: int = 0
    updates: int = 0
    batches: int = 0
    queries: int = 0
    #: Answers that contained updates later than the position they were asked for.
    corrected: int = 0
    #: Questions not asked because a partial change was empty.
    skipped: int = 0
    bytes: int = 0
    view_rows: int = 0
    #: Batches that were cut into slices, and what each executor did of them.
    batches_on_executors: int = 0
    executors: dict[str, dict[str, float]] = field(default_factory=dict)
    #: The latest of these batches: seconds of each, and of each slice (`ready`: until its mailbox
    #: held the batch).
    executor_batches: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_BATCHES))
    #: How long first states took.
    first_state_seconds: float = 0.0
    #: Seconds by step of a micro-batch, in the order in which the steps were first taken.
    steps: dict[str, float] = field(default_factory=dict)
    #: Milliseconds from the commit at the source to the commit in Delta, of the latest updates.
    freshness: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.perf_counter() - start

    @contextmanager
    def first_state(self) -> Iterator[None]:
        """The work inside is no micro-batch's: its steps are not counted as such."""
        others, start = dict(self.steps), time.perf_counter()
        try:
            yield
        finally:
            self.first_state_seconds += time.perf_counter() - start
            self.steps = others

    def swept_elsewhere(self, executor: str, queries: int, size: int, seconds: float) -> None:
        """An executor has swept a slice."""
        self.queries += queries
        self.bytes += size
        nothing = {"slices": 0, "queries": 0, "bytes": 0, "seconds": 0.0}
        before = self.executors.get(executor, nothing)
        work = {"slices": 1, "queries": queries, "bytes": size, "seconds": seconds}
        self.executors[executor] = {name: before[name] + more for name, more in work.items()}

    def installed(self, committed_at: pl.Series) -> None:
        """Updates that were committed at their sources at these times are readable now."""
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        delays = (now - committed_at.tail(_RECENT)).dt.total_milliseconds(fractional=True)
        self.freshness.extend(delays.to_list())

    def fresh(self, percent: int) -> float | None:
        """A percentile of the freshness in milliseconds."""
        if not self.freshness:
            return None
        ordered = sorted(self.freshness)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]

    def to_json(self) -> dict[str, object]:
        """The machine-readable summary at the end of a run."""
        seconds = time.monotonic() - self.started
        return {
            "seconds": round(seconds, 3),
            "position": self.position,
            "updates": self.updates,
            "updates_per_s": round(self.updates / seconds, 1) if seconds else None,
            "batches": self.batches,
            "batches_on_executors": self.batches_on_executors,
            "executors": self.executors,
            "executor_batches": list(self.executor_batches),
            "queries": self.queries,
            "corrected_answers": self.corrected,
            "skipped_queries": self.skipped,
            "bytes": self.bytes,
            "view_rows": self.view_rows,
            "freshness_p50_ms": self.fresh(50),
            "freshness_p99_ms": self.fresh(99),
            "first_state_seconds": round(self.first_state_seconds, 3),
            "step_seconds": {name: round(spent, 3) for name, spent in self.steps.items()},
        }
