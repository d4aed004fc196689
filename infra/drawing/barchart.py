"""A bar chart as SVG; a line in each bar goes from the least run to the greatest."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 760, 22, 210, 110, 44


@dataclass(frozen=True)
class Bar:
    """One bar with its name."""

    name: str
    value: float
    #: The measured values, of which `value` is the median.
    runs: Sequence[float]
    #: Shown beside the bar, after the value.
    remark: str = ""
    colour: str = "#8fa3b0"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """All bars below each other, on one linear scale."""
    most = max((max(row.value, *row.runs) for row in rows), default=0.0) or 1.0
    height = _TOP + _ROW * len(rows) + 12
    lines = [_row(row, _TOP + _ROW * number, most) for number, row in enumerate(rows)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="12" y="22" font-size="13" font-weight="bold">{escape(title)}</text>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def _row(row: Bar, top: int, most: float) -> str:
    def at(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / most

    middle, low, high = top + _ROW // 2 - 2, min(row.runs), max(row.runs)
    label = f"{row.value:,.0f} {row.remark}".strip()
    return (
        f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(row.name)}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{at(row.value) - _LEFT:.1f}" height="{_ROW - 6}"'
        f' fill="{row.colour}"/>'
        f'<line x1="{at(low):.1f}" y1="{middle}" x2="{at(high):.1f}" y2="{middle}"'
        ' stroke="#333"/>'
        f'<text x="{at(max(high, row.value)) + 6:.1f}" y="{middle + 4}">{escape(label)}</text>'
    )
