"""The figures of the last minutes, a sample a second, for the charts of the overview."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from streaming.figures.status import JobStatus

_KEPT = 300
#: A rate is that of so many samples.
_OVER = 5


@dataclass(frozen=True)
class Sample:
    """Some figures at a moment."""

    at: float
    updates: int
    queries: int
    freshness_p50: float | None
    freshness_p99: float | None


class Samples:
    """Takes a sample when it is asked and the last one is a second old."""

    def __init__(self, status: Callable[[], JobStatus | None]) -> None:
        self._status = status
        self._samples: deque[Sample] = deque(maxlen=_KEPT)
        self._taking = threading.Lock()

    def take(self) -> JobStatus | None:
        """The status now; it becomes a sample if one is due."""
        status = self._status()
        now = time.monotonic()
        with self._taking:
            if status is not None and (not self._samples or now - self._samples[-1].at > 0.9):
                p50, p99 = status.freshness_p50_ms, status.freshness_p99_ms
                self._samples.append(Sample(now, status.updates, status.queries, p50, p99))
        return status

    def updates_per_s(self) -> list[float]:
        return self._rates([each.updates for each in list(self._samples)])

    def questions_per_s(self) -> list[float]:
        return self._rates([each.queries for each in list(self._samples)])

    def freshness_ms(self) -> list[float | None]:
        """The median of each moment."""
        return [each.freshness_p50 for each in list(self._samples)]

    def _rates(self, counts: list[int]) -> list[float]:
        times = [each.at for each in list(self._samples)][: len(counts)]
        rates = []
        for place in range(1, len(counts)):
            before = max(0, place - _OVER)
            spent = times[place] - times[before]
            rates.append(max(0.0, counts[place] - counts[before]) / spent if spent else 0.0)
        return rates
