"""The line that a running job shows: it renews itself on a terminal; elsewhere lines follow."""

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streaming.figures.status import JobStatus

_EVERY_SECONDS = 2.0
_OFTEN_SECONDS = 0.5


class LiveView:
    """Shows the status of one job; `look` is called often and draws when it is time."""

    def __init__(self, status: Callable[[], JobStatus]) -> None:
        self._status = status
        self._console = Console(file=sys.stderr)
        #: Set when the job reads the topics, if this is a terminal.
        self._live: Live | None = None
        self._drawn = 0.0
        #: The status that was last shown.
        self._shown: JobStatus | None = None

    def __enter__(self) -> "LiveView":
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def look(self) -> None:
        """Draws if enough time has passed and, on plain lines, if anything has changed."""
        now = time.monotonic()
        if now - self._drawn < (_OFTEN_SECONDS if self._live is not None else _EVERY_SECONDS):
            return
        status = self._status()
        if status.phase != "keeping":
            return
        self._drawn = now
        if self._console.is_terminal:
            self._renew(status)
        elif self._shown is not None and _is_news(self._shown, status):
            line = "  ".join(f"{name} {value}" for name, value in facts(status).items())
            self._console.print(line, highlight=False, soft_wrap=True)
        self._shown = status

    def _renew(self, status: JobStatus) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        shown = facts(status)
        table = Table(*shown, box=None, header_style="dim")
        table.add_row(*shown.values())
        self._live.update(table, refresh=True)


def _is_news(before: JobStatus, now: JobStatus) -> bool:
    """Whether a view went on, or all have just caught up, or a wait is new."""
    caught_up = now.behind == "caught up" != before.behind
    waits = {wait.words for wait in now.waits} - {wait.words for wait in before.waits}
    return [v.position for v in now.views] != [v.position for v in before.views] or bool(
        caught_up or waits
    )


def facts(status: JobStatus) -> dict[str, str]:
    """The text of each figure on the line, by its name."""
    updates = max(status.updates, 1)
    held = ", ".join(held.missing for held in status.held_back)
    failed = ", ".join(view.name for view in status.views if view.failed is not None)
    silent = ", ".join(source.name for source in status.sources if source.reachable is False)
    wrong = ", ".join(view.name for view in status.views if view.audit and not view.audit.holds)
    large = status.batches_on_executors
    return {
        **_positions(status),
        "updates/s": f"{status.updates_per_s_lately:,.0f}",
        "freshness p50": _milliseconds(status.freshness_p50_ms),
        "p99": _milliseconds(status.freshness_p99_ms),
        "behind": status.behind,
        "queries/update": f"{status.queries / updates:.2f}",
        "bytes/update": f"{status.bytes / updates:,.0f}",
        "answers corrected": f"{status.corrected_answers:,}",
        "view rows": f"{status.view_rows:,}",
        **({"waits for": "; ".join(map(str, status.waits))} if status.waits else {}),
        **({"failed": failed} if failed else {}),
        **({"an audit found wrong rows in": wrong} if wrong else {}),
        **({"no answer from": silent} if silent else {}),
        **({"held back for": held} if held else {}),
        **({"batches on executors": f"{large:,} of {status.batches:,}"} if large else {}),
    }


def _positions(status: JobStatus) -> dict[str, str]:
    if len(status.views) == 1:
        return {"position": f"{status.position:,}"}
    return {"positions": ", ".join(f"{view.name} {view.position:,}" for view in status.views)}


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
