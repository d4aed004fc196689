"""The questions to each source: how many, how large, how long until the answer, the last error."""

import threading
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

#: The upper ends, in seconds, of all intervals but the last, which has none.
LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class AnswerFigures:
    """The answers of one source since the start of the job."""

    answers: int = 0
    bytes: int = 0
    #: Seconds from the questions to their answers, added up.
    seconds: float = 0.0
    #: How many answers took how long, by interval of `LATENCY_BOUNDS`.
    latencies: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS) + 1)
    errors: int = 0
    #: The last error, and its time in seconds since the epoch.
    last_error: str | None = None
    failed_at: float | None = None

    def answered(self, seconds: float, size: int) -> "AnswerFigures":
        """The figures after one more answer."""
        place = bisect_left(LATENCY_BOUNDS, seconds)
        latencies = [count + (n == place) for n, count in enumerate(self.latencies)]
        return replace(
            self,
            answers=self.answers + 1,
            bytes=self.bytes + size,
            seconds=self.seconds + seconds,
            latencies=tuple(latencies),
        )

    def failed(self, words: str, at: float) -> "AnswerFigures":
        """The figures after one more error."""
        return replace(self, errors=self.errors + 1, last_error=words, failed_at=at)


class AnswersBySource:
    """The figures of all sources; the threads that ask note them side by side."""

    def __init__(self) -> None:
        self._noting = threading.Lock()
        #: Replaced as a whole, so a reader needs no lock.
        self.figures: Mapping[str, AnswerFigures] = {}

    def answered(self, source: str, seconds: float, size: int) -> None:
        """Notes an answer."""
        with self._noting:
            before = self.figures.get(source, AnswerFigures())
            self.figures = {**self.figures, source: before.answered(seconds, size)}

    def failed(self, source: str, words: str) -> None:
        """Notes an error."""
        with self._noting:
            before = self.figures.get(source, AnswerFigures())
            self.figures = {**self.figures, source: before.failed(words, time.time())}
