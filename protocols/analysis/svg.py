"""A drawing as one SVG document, without scripts, fonts or other files.

Each box stands in the layer given by the longest path from the top. A line that passes a layer gets
a place of its own there, so that it does not run through a box. A label that is too long for its
box ends in "…"; viewers show all of it under the pointer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from protocols.analysis.drawing import Box, Drawing

_CHARACTER, _PADDING, _HEIGHT = 7.5, 14.0, 30.0
#: The widest label that fits into a box.
_ROOM = 56
_BETWEEN_BOXES, _BETWEEN_LAYERS, _MARGIN, _TITLE = 24.0, 44.0, 16.0, 30.0


@dataclass(frozen=True)
class _Place:
    """The place of a box, or of a line on its way: its middle, and its upper and lower edge."""

    x: float
    top: float
    bottom: float


def as_svg(drawing: Drawing) -> str:
    """The drawing as a document of its own."""
    layers, ways = _layers(drawing)
    places = _places(drawing, layers)
    right = [places[n].x + _width(box) / 2 for n, box in enumerate(drawing.boxes)]
    width = max([*right, _MARGIN + _CHARACTER * len(drawing.title)]) + _MARGIN
    height = max([_TITLE, *(place.bottom for place in places)]) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        ' font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_MARGIN:.0f}" y="28" font-weight="bold">{escape(drawing.title)}</text>',
        *(_line([places[number] for number in way]) for way in ways),
        *(_box(box, places[number]) for number, box in enumerate(drawing.boxes)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _layers(drawing: Drawing) -> tuple[list[list[int]], list[list[int]]]:
    """The layers from the top, and each line as the numbers that it passes.

    Numbers beyond the boxes are lines on their way through a layer.
    """
    depth = [0] * len(drawing.boxes)
    for _ in drawing.boxes:
        for above, below in drawing.lines:
            depth[below] = max(depth[below], depth[above] + 1)
    ways = []
    for above, below in drawing.lines:
        between = list(range(depth[above] + 1, depth[below]))
        ways.append([above, *range(len(depth), len(depth) + len(between)), below])
        depth += between
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for number, layer in enumerate(depth):
        layers[layer].append(number)
    _untangle(layers, [pair for way in ways for pair in pairwise(way)])
    return layers, ways


def _untangle(layers: list[list[int]], steps: Sequence[tuple[int, int]]) -> None:
    """Moves connected items near each other: each to the middle of the items above it."""
    for upper, lower in pairwise(layers):
        place = {number: index for index, number in enumerate(upper)}
        above = {n: [place[a] for a, b in steps if b == n] for n in lower}
        lower.sort(key=lambda n, above=above: sum(above[n]) / max(1, len(above[n])))  # type: ignore[misc]


def _places(drawing: Drawing, layers: Sequence[Sequence[int]]) -> list[_Place]:
    """Places each layer centred below the one before; returns places by number."""

    def width(number: int) -> float:
        return _width(drawing.boxes[number]) if number < len(drawing.boxes) else 0.0

    widths = [sum(map(width, row)) + _BETWEEN_BOXES * (len(row) - 1) for row in layers]
    places: dict[int, _Place] = {}
    for layer, row in enumerate(layers):
        top = _MARGIN + _TITLE + layer * (_HEIGHT + _BETWEEN_LAYERS)
        left = _MARGIN + (max(widths) - widths[layer]) / 2
        for number in row:
            places[number] = _Place(left + width(number) / 2, top, top + _HEIGHT)
            left += width(number) + _BETWEEN_BOXES
    return [places[number] for number in range(len(places))]


def _width(box: Box) -> float:
    return _CHARACTER * len(_shown(box)) + 2 * _PADDING


def _shown(box: Box) -> str:
    return box.label if len(box.label) <= _ROOM else box.label[: _ROOM - 1] + "…"


def _line(way: Sequence[_Place]) -> str:
    """Draws from the lower edge of the first to the upper edge of the last, straight in between."""
    first, *between, last = way
    points = [(first.x, first.bottom)]
    points += [point for p in between for point in ((p.x, p.top), (p.x, p.bottom))]
    points.append((last.x, last.top))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="#777"/>'


def _box(box: Box, place: _Place) -> str:
    dashes = ' stroke-dasharray="4 3"' if box.dashed else ""
    width = _width(box)
    whole = f"<title>{escape(box.label)}</title>" if _shown(box) != box.label else ""
    return (
        f'<g>{whole}<rect x="{place.x - width / 2:.1f}" y="{place.top:.1f}" width="{width:.1f}"'
        f' height="{_HEIGHT:.0f}" rx="5" fill="#eef4fb" stroke="#1b6ca8"{dashes}/>'
        f'<text x="{place.x:.1f}" y="{place.top + 20:.1f}" text-anchor="middle">'
        f"{escape(_shown(box))}</text></g>"
    )
