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
        #: When the last line was drawn, and the position then.
        self._drawn = time.monotonic()
        self._position = measures.position

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
        elapsed = now - self._drawn
        if elapsed < (0.5 if self._live is not None else _EVERY_SECONDS):
            return
        rate = (self._measures.position - self._position) / elapsed
        if self._live is not None:
            self._live.update(_table(self._measures, rate), refresh=True)
        elif rate:
            self._console.print(_line(self._measures, rate), highlight=False, soft_wrap=True)
        self._drawn, self._position = now, self._measures.position


def _facts(measures: Measures, rate: float) -> dict[str, str]:
    updates = max(measures.updates, 1)
    return {
        "position": f"{measures.position:,}",
        "updates/s": f"{rate:,.0f}",
        "freshness p50": _milliseconds(measures.fresh(50)),
        "p99": _milliseconds(measures.fresh(99)),
        "queries/update": f"{measures.queries / updates:.2f}",
        "bytes/update": f"{measures.bytes / updates:,.0f}",
        "answers corrected": f"{measures.corrected:,}",
        "view rows": f"{measures.view_rows:,}",
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
