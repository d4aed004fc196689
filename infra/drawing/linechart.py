"""Small line charts as SVG: several series over one axis, values on a logarithmic scale."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 150, 36, 48
#: The right end of the lines, and the height of the x axis.
_END, _FOOT = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
_COLOURS = (
    "#1b6ca8", "#c8553d", "#2a9d58", "#8e5aa8", "#b08a1e", "#4a4a4a", "#d16ba5", "#3fb0ac",
)  # fmt: skip
_DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True)
class Chart:
    """The content of a chart."""

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
    axes = _Axes(xs, low, max(high, low + 1))
    title = (
        f'<text x="{_LEFT}" y="20" font-size="13" font-weight="bold">{escape(chart.title)}</text>'
    )
    lines = [title, *axes.steps(), *_names(chart)]
    for number, (name, points) in enumerate(chart.series.items()):
        lines += _series(axes, number, name, points)
    return "\n".join(lines)


@dataclass(frozen=True)
class _Axes:
    """The places of values: x at equal distances whatever the steps, y between powers of 2."""

    xs: Sequence[float]
    low: int
    high: int

    def across(self, x: float) -> float:
        return _LEFT + (_END - _LEFT) * (self.xs.index(x) / max(1, len(self.xs) - 1))

    def up(self, y: float) -> float:
        power = math.log2(max(y, 2**self.low))
        return _FOOT - (_FOOT - _TOP) * ((power - self.low) / (self.high - self.low))

    def steps(self) -> Iterator[str]:
        """The lines at powers of 2, and the numbers along both axes."""
        for power in range(self.low, self.high + 1):
            y = self.up(2.0**power)
            yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_END}" y2="{y:.1f}" stroke="#ddd"/>'
            label = f"{2.0**power:g}"
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        for x in self.xs:
            place = f'x="{self.across(x):.1f}" y="{_FOOT + 16}"'
            yield f'<text {place} text-anchor="middle">{x:g}</text>'


def _names(chart: Chart) -> Iterator[str]:
    """The names of the axes."""
    place = f'x="{(_LEFT + _END) / 2}" y="{_HEIGHT - 10}"'
    yield f'<text {place} text-anchor="middle">{escape(chart.across)}</text>'
    yield (
        f'<text transform="translate(14,{(_FOOT + _TOP) / 2}) rotate(-90)"'
        f' text-anchor="middle">{escape(chart.up)}</text>'
    )


def _series(
    axes: _Axes, number: int, name: str, points: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """One line, and its name beside the chart."""
    path = " ".join(f"{axes.across(x):.1f},{axes.up(y):.1f}" for x, y in points if y > 0)
    style = f'stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-width="1.8" fill="none"'
    dash = _DASHES[number // len(_COLOURS) % len(_DASHES)]
    yield f'<polyline points="{path}" {style} stroke-dasharray="{dash}"/>'
    y = _TOP + 16 * number
    yield (
        f'<line x1="{_END + 10}" y1="{y}" x2="{_END + 30}" y2="{y}" {style}'
        f' stroke-dasharray="{dash}"/><text x="{_END + 35}" y="{y + 4}">{escape(name)}</text>'
    )
