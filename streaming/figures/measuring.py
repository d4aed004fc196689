"""The figures that the threads of a job note: counters, times, freshness, waits.

The views' tables are written by threads side by side, so the figures of commits have a lock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streaming.figures.answers import AnswersBySource
from streaming.figures.audited import Audited
from streaming.figures.heldback import HeldBack

Phase: TypeAlias = Literal["checking", "first state", "starting Spark", "keeping", "ending"]
PHASES: tuple[Phase, ...] = get_args(Phase)

#: The freshness is that of the updates which were installed in so many seconds.
FRESH_SECONDS = 10.0
#: Of each commit so many updates stand for all of them.
_SAMPLE = 500
#: Of so many batches on executors the summary tells each by itself.
_BATCHES = 20


@dataclass(frozen=True)
class Behind:
    """How far the views are behind one source's topic."""

    records: int
    #: Since when the first of them waits.
    seconds: float

    def __str__(self) -> str:
        return f"{self.records:,} records, {self.seconds:,.0f} s"


class Freshness:
    """Milliseconds from commits at sources to the commit in Delta, of the last few seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since the epoch, as the sources' own clocks count them."""
        self._clock = clock
        #: Per commit in Delta its time, some delays, and how many updates each of these stands for.
        self._commits: deque[tuple[float, NDArray[np.float64], float]] = deque()
        self._noting = threading.Lock()

    def installed(self, committed_at: pl.Series) -> None:
        """Updates that were committed at their sources at these times are readable now."""
        now = self._clock()
        with self._noting:
            self._drop_older(now)
        if len(committed_at):
            some = committed_at.gather_every(-(-len(committed_at) // _SAMPLE))
            delays = now * 1000 - some.dt.epoch("us").to_numpy() / 1000
            self._commits.append((now, delays, len(committed_at) / len(some)))

    def percentiles(self, *percents: int) -> list[float | None]:
        """None of each if nothing was installed lately."""
        now = self._clock()
        recent = [each for each in list(self._commits) if each[0] > now - FRESH_SECONDS]
        if not recent:
            return [None for _ in percents]
        delays = np.concatenate([delays for _, delays, _ in recent])
        stand_for = np.repeat([weight for *_, weight in recent], [len(d) for _, d, _ in recent])
        order = np.argsort(delays)
        upto = np.cumsum(stand_for[order])
        places = np.searchsorted(upto, upto[-1] * np.array(percents) / 100, side="right")
        return [float(delays[order[min(place, len(order) - 1)]]) for place in places]

    def updates_per_s(self) -> float:
        """How many were installed in each of the last seconds, on average."""
        since = self._clock() - FRESH_SECONDS
        recent = [each for each in list(self._commits) if each[0] > since]
        return sum(len(delays) * weight for _, delays, weight in recent) / FRESH_SECONDS

    def _drop_older(self, now: float) -> None:
        while self._commits and self._commits[0][0] <= now - FRESH_SECONDS:
            self._commits.popleft()


@dataclass
class Measures:
    """The notes of one job's threads since its start; `status.py` makes one value of them."""

    started: float = field(default_factory=time.monotonic)
    #: How far the job is in its life.
    phase: Phase = "checking"
    #: What is waited for at this moment, and since when.
    waits: dict[str, float] = field(default_factory=dict)
    #: Source → whether it answered when it was last asked.
    reachable: dict[str, bool] = field(default_factory=dict)
    updates: int = 0
    batches: int = 0
    queries: int = 0
    #: Answers that contained updates later than the position they were asked for.
    corrected: int = 0
    #: Questions not asked because a partial change was empty.
    skipped: int = 0
    bytes: int = 0
    #: Questions that a copy answered, so that no source was asked.
    answers_of_copies: int = 0
    #: Relation → the rows of its copy when it was complete.
    copies: dict[str, int] = field(default_factory=dict)
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
    #: View → the parts of global transactions that wait there for others.
    held_back: dict[str, HeldBack] = field(default_factory=dict)
    #: Source → how far the views are behind; empty until that is known.
    behind: dict[str, Behind] = field(default_factory=dict)
    #: View → its last audit, or the last one that found something.
    audits: dict[str, Audited] = field(default_factory=dict)
    freshness: Freshness = field(default_factory=Freshness)
    answers: AnswersBySource = field(default_factory=AnswersBySource)
    _noting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spend(name, time.perf_counter() - start)

    def spend(self, name: str, seconds: float) -> None:
        """Adds seconds to a step."""
        with self._noting:
            self.steps[name] = self.steps.get(name, 0.0) + seconds

    @contextmanager
    def waiting_for(self, words: str) -> Iterator[None]:
        """Notes that the block inside waits for something."""
        self.note_wait(words, True)
        try:
            yield
        finally:
            self.note_wait(words, False)

    def note_wait(self, words: str, waits: bool) -> None:
        """Whether it is waited for something now."""
        if waits:
            self.waits.setdefault(words, time.monotonic())
        else:
            self.waits.pop(words, None)

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
