"""Small charts as SVG, without scripts; their colours come from the style sheet."""

from collections.abc import Sequence

from markupsafe import Markup

_WIDTH, _HEIGHT = 600.0, 120.0


def line_chart(
    values: Sequence[float | None], title: str, highest: str, lowest: str = "0"
) -> Markup:
    """Values in order of time, from zero up; a gap where one is not known.

    `highest` and `lowest` are the words beside the ends of the scale.
    """
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    step = _WIDTH / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((place * step, _HEIGHT - value / most * (_HEIGHT - 6)))
    drawn = Markup().join(_run(run) for run in runs if run)
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 {w:.0f} {h:.0f}" preserveAspectRatio="none"'
        ' role="img" aria-label="{title}"><line class="base" x1="0" x2="{w:.0f}" y1="{h:.0f}"'
        ' y2="{h:.0f}"/>{drawn}</svg><figcaption><span>{highest}</span><span>{lowest}</span>'
        "</figcaption></figure>"
    ).format(w=_WIDTH, h=_HEIGHT, title=title, drawn=drawn, highest=highest, lowest=lowest)


def _run(points: Sequence[tuple[float, float]]) -> Markup:
    if len(points) == 1:
        points = [(points[0][0] - 1, points[0][1]), (points[0][0] + 1, points[0][1])]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    first, last = points[0][0], points[-1][0]
    area = f"{first:.1f},{_HEIGHT:.0f} {path} {last:.1f},{_HEIGHT:.0f}"
    return Markup('<polygon class="area" points="{}"/><polyline class="line" points="{}"/>').format(
        area, path
    )


def histogram(counts: Sequence[int], labels: Sequence[str], title: str) -> Markup:
    """A bar for each count, with its label below and the number above."""
    most, width, room = max(counts, default=0) or 1, 44.0, 18.0
    height = _HEIGHT + 2 * room
    bars = []
    for place, (count, label) in enumerate(zip(counts, labels, strict=True)):
        left, middle = place * width + 3, place * width + width / 2
        tall = count / most * _HEIGHT
        top = room + _HEIGHT - tall
        bar = (
            '<rect class="bar" x="{0:.0f}" y="{1:.1f}" width="{2:.0f}" height="{3:.1f}"/>'
            '<text x="{4:.0f}" y="{5:.1f}">{6:,}</text>'
        )
        if count:
            bars.append(Markup(bar).format(left, top, width - 6, tall, middle, top - 4, count))
        text = Markup('<text class="label" x="{:.0f}" y="{:.0f}">{}</text>')
        bars.append(text.format(middle, height - 4, label))
    return Markup(
        '<svg class="histogram" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>'
    ).format(width * len(counts), height, title, Markup().join(bars))
