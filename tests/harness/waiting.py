"""Waits for a condition, longer on a busy machine."""

import os
import time
from collections.abc import Callable

_PATIENCE_SECONDS = 240.0
#: The pause between two checks: a tenth of the time waited so far, within these bounds.
_PAUSES = 0.01, 0.1


def patience() -> float:
    """Seconds to wait: the more processes compete for the cores, the longer."""
    return _PATIENCE_SECONDS * crowding()


def crowding() -> float:
    """The number of processes that want each core at the moment; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def eventually(condition: Callable[[], object], what: str = "the condition") -> None:
    """Waits until the condition holds, and does not measure how long that takes."""
    began, (shortest, longest) = time.monotonic(), _PAUSES
    while not condition():
        waited = time.monotonic() - began
        if waited > patience():
            raise TimeoutError(f"not within {waited:.0f} s: {what}")
        time.sleep(min(longest, max(shortest, waited / 10)))
