"""What a running job shows: a line that renews itself on a terminal, plain lines elsewhere."""

import sys
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streaming.measuring import Measures

_EVERY_SECONDS = 2.0


class LiveView:
    """Shows the measures of one job; `look` is called often and draws when it is time."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._console = Console(file=sys.stderr)
        self._live: Live | None = None
        self._drawn = 0.0
        #: When the position was last seen to change, and the position and the rate then.
        self._changed = time.monotonic()
        self._position = measures.position
        self._rate = 0.0

    def __enter__(self) -> "LiveView":
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def look(self) -> None:
        """Draws anew if enough time has passed and, on plain lines, if anything happened."""
        now = time.monotonic()
        if now - self._drawn < (0.5 if self._live is not None else _EVERY_SECONDS):
            return
        news = self._measures.position - self._position
        if news:
            self._rate = news / (now - self._changed)
            self._changed, self._position = now, self._measures.position
        if self._live is not None:
            self._live.update(_table(self._measures, self._rate), refresh=True)
        elif news:
            line = _line(self._measures, self._rate)
            self._console.print(line, highlight=False, soft_wrap=True)
        self._drawn = now


def _facts(measures: Measures, rate: float) -> dict[str, str]:
    updates = max(measures.updates, 1)
    large = measures.batches_on_executors
    return {
        "position": f"{measures.position:,}",
        "updates/s": f"{rate:,.0f}",
        "freshness p50": _milliseconds(measures.fresh(50)),
        "p99": _milliseconds(measures.fresh(99)),
        "queries/update": f"{measures.queries / updates:.2f}",
        "bytes/update": f"{measures.bytes / updates:,.0f}",
        "answers corrected": f"{measures.corrected:,}",
        "view rows": f"{measures.view_rows:,}",
        **({"batches on executors": f"{large:,} of {measures.batches:,}"} if large else {}),
    }


def _line(measures: Measures, rate: float) -> str:
    return "  ".join(f"{name} {value}" for name, value in _facts(measures, rate).items())


def _table(measures: Measures, rate: float) -> Table:
    facts = _facts(measures, rate)
    table = Table(*facts, box=None, header_style="dim")
    table.add_row(*facts.values())
    return table


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
