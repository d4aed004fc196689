"""The progress of a running job as events, for a log that programs read."""

import time
from collections.abc import Callable

from protocols.telling import Told
from streaming.figures.status import JobStatus

_EVERY_SECONDS = 2.0


class EventLines:
    """Tells of each view that has gone on; `look` is called often and tells when it is time."""

    def __init__(self, status: Callable[[], JobStatus], tell: Callable[[str], None]) -> None:
        self._status = status
        self._tell = tell
        self._told = 0.0
        #: View → the position that was told last.
        self._positions: dict[str, int] = {}

    def __enter__(self) -> "EventLines":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def look(self) -> None:
        """Tells the positions that are new, if enough time has passed."""
        now = time.monotonic()
        if now - self._told < _EVERY_SECONDS:
            return
        status = self._status()
        if status.phase != "keeping":
            return
        self._told = now
        for view in status.views:
            if self._positions.get(view.name) == view.position:
                continue
            self._positions[view.name] = view.position
            self._tell(
                Told(
                    f"view {view.name}: position {view.position:,} is visible",
                    view=view.name,
                    position=view.position,
                    vector=dict(view.vector),
                    backlog=view.backlog,
                    rows=view.rows,
                    updates_per_s=round(status.updates_per_s_lately, 1),
                    freshness_p50_ms=status.freshness_p50_ms,
                    freshness_p99_ms=status.freshness_p99_ms,
                )
            )
