"""A small line chart as SVG: several series over one axis each, values on a logarithmic scale."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 150, 36, 48
_COLOURS = (
    "#1b6ca8", "#c8553d", "#2a9d58", "#8e5aa8", "#b08a1e", "#4a4a4a", "#d16ba5", "#3fb0ac",
)  # fmt: skip
_DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True)
class Chart:
    """What is drawn."""

    title: str
    across: str
    up: str
    #: Name → its points, x ascending.
    series: Mapping[str, Sequence[tuple[float, float]]]


def drawn(charts: Sequence[Chart]) -> str:
    """The charts beside each other, as one SVG document."""
    parts = [
        f'<g transform="translate({number * _WIDTH},0)">{_chart(chart)}</g>'
        for number, chart in enumerate(charts)
    ]
    width = _WIDTH * len(charts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{_HEIGHT}" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _chart(chart: Chart) -> str:
    xs = sorted({x for points in chart.series.values() for x, _ in points})
    ys = [y for points in chart.series.values() for _, y in points if y > 0]
    low, high = math.floor(math.log2(min(ys))), math.ceil(math.log2(max(ys)))
    high = max(high, low + 1)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def across(x: float) -> float:
        # Equally far apart, whatever the steps between them are.
        return _LEFT + (right - _LEFT) * (xs.index(x) / max(1, len(xs) - 1))

    def up(y: float) -> float:
        return bottom - (bottom - _TOP) * ((math.log2(max(y, 2**low)) - low) / (high - low))

    lines = [
        f'<text x="{_LEFT}" y="20" font-size="13" font-weight="bold">{escape(chart.title)}</text>'
    ]
    for power in range(low, high + 1):
        y = up(2.0**power)
        lines.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        label = f"{2.0**power:g}"
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for x in xs:
        lines.append(
            f'<text x="{across(x):.1f}" y="{bottom + 16}" text-anchor="middle">{x:g}</text>'
        )
    middle = (_LEFT + right) / 2
    lines.append(
        f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(chart.across)}</text>'
    )
    lines.append(
        f'<text transform="translate(14,{(bottom + _TOP) / 2}) rotate(-90)"'
        f' text-anchor="middle">{escape(chart.up)}</text>'
    )
    for number, (name, points) in enumerate(chart.series.items()):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points if y > 0)
        style = f'stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-width="1.8" fill="none"'
        dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
        lines.append(f'<polyline points="{path}" {style} stroke-dasharray="{dash}"/>')
        y = _TOP + 16 * number
        lines.append(
            f'<line x1="{right + 10}" y1="{y}" x2="{right + 30}" y2="{y}" {style}'
            f' stroke-dasharray="{dash}"/><text x="{right + 35}" y="{y + 4}">{escape(name)}</text>'
        )
    return "\n".join(lines)
