"""Waiting for what comes about by itself, as long as that takes on a machine that is busy."""

import os
import time
from collections.abc import Callable

_PATIENCE_SECONDS = 240.0
#: Of two looks: a tenth of what has been waited so far, within these bounds.
_PAUSES = 0.01, 0.1


def patience() -> float:
    """Seconds: the more there are who want the same cores, the longer everything takes."""
    return _PATIENCE_SECONDS * crowding()


def crowding() -> float:
    """How many want each core at the moment; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def eventually(condition: Callable[[], object], what: str = "what was waited for") -> None:
    """Returns when it is so; nobody asks how long it took."""
    began, (shortest, longest) = time.monotonic(), _PAUSES
    while not condition():
        waited = time.monotonic() - began
        if waited > patience():
            raise TimeoutError(f"not within {waited:.0f} s: {what}")
        time.sleep(min(longest, max(shortest, waited / 10)))
