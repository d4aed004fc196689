"""What a running job shows: a line that renews itself on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Mapping

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streaming.figures.measuring import Measures

_EVERY_SECONDS = 2.0


class LiveView:
    """Shows the measures of one job; `look` is called often and draws when it is time."""

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._console = Console(file=sys.stderr)
        #: Set when the job reads the topics, if this is a terminal.
        self._live: Live | None = None
        self._drawn = 0.0
        #: The sum of the positions, and when and how fast it was last seen to change.
        self._positions: int | None = None
        self._changed = 0.0
        self._rate = 0.0
        #: As it was last seen: that a view has caught up is said also when nothing follows.
        self._behind = ""

    def __enter__(self) -> "LiveView":
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def look(self) -> None:
        """Draws anew if enough time has passed and, on plain lines, if anything happened."""
        now, positions = time.monotonic(), sum(self._measures.positions.values())
        if not self._measures.streaming:
            return
        if self._positions is None:
            self._begin(now, positions)
        if now - self._drawn < (0.5 if self._live is not None else _EVERY_SECONDS):
            return
        self._drawn = now
        news = positions - (self._positions or 0)
        if news:
            self._rate = news / (now - self._changed)
            self._changed, self._positions = now, positions
        if self._live is not None:
            self._live.update(_table(self._measures, self._rate), refresh=True)
        elif news or (self._measures.how_far_behind() == "caught up" != self._behind):
            line = _line(self._measures, self._rate)
            self._console.print(line, highlight=False, soft_wrap=True)
        self._behind = self._measures.how_far_behind()

    def _begin(self, now: float, positions: int) -> None:
        self._changed, self._positions = now, positions
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()


def _facts(measures: Measures, rate: float) -> dict[str, str]:
    updates = max(measures.updates, 1)
    held = ", ".join(held.missing for held in list(measures.held_back.values()))
    p50, p99 = measures.freshness.percentiles(50, 99)
    large = measures.batches_on_executors
    return {
        **_positions(measures.positions),
        "updates/s": f"{rate:,.0f}",
        "freshness p50": _milliseconds(p50),
        "p99": _milliseconds(p99),
        "behind": measures.how_far_behind(),
        "queries/update": f"{measures.queries / updates:.2f}",
        "bytes/update": f"{measures.bytes / updates:,.0f}",
        "answers corrected": f"{measures.corrected:,}",
        "view rows": f"{measures.view_rows:,}",
        **({"held back for": held} if held else {}),
        **({"batches on executors": f"{large:,} of {measures.batches:,}"} if large else {}),
    }


def _positions(positions: Mapping[str, int]) -> dict[str, str]:
    if len(positions) == 1:
        return {"position": f"{next(iter(positions.values())):,}"}
    return {"positions": ", ".join(f"{name} {at:,}" for name, at in positions.items())}


def _line(measures: Measures, rate: float) -> str:
    return "  ".join(f"{name} {value}" for name, value in _facts(measures, rate).items())


def _table(measures: Measures, rate: float) -> Table:
    facts = _facts(measures, rate)
    table = Table(*facts, box=None, header_style="dim")
    table.add_row(*facts.values())
    return table


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"
