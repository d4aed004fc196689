"""Charts as SVG, drawn by Vega-Lite through altair."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from infra.errors import InfraError

if TYPE_CHECKING:
    from altair.vegalite.v6.api import TopLevelMixin


@dataclass(frozen=True)
class Chart:
    """A line chart: several series over one axis, values on a logarithmic scale."""

    title: str
    across: str
    up: str
    #: Name → its points, x ascending.
    series: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Measured:
    """A row of a chart of medians: a dot, and a line from the least run to the greatest."""

    name: str
    value: float
    #: The measured values, of which `value` is the median.
    runs: Sequence[float]
    #: The rows of one kind have one colour.
    kind: str
    #: Shown beside the dot, after the value.
    remark: str = ""


def refuse_without_altair() -> None:
    """InfraError if no chart can be drawn: only these charts need altair."""
    if not all(map(importlib.util.find_spec, ("altair", "vl_convert"))):
        raise InfraError(
            "charts need altair and vl-convert-python, and at least one of them is not installed:"
            " pip install 'viewsweep[charts]'"
        )


def drawn(charts: Sequence[Chart]) -> str:
    """The charts, two beside each other, as one SVG document."""
    import altair as alt

    all_of_them = alt.concat(*map(_lines, charts), columns=2).configure_legend(symbolType="stroke")
    return _svg(all_of_them.resolve_scale(color="independent", strokeDash="independent"))


def medians(title: str, measured: Sequence[Measured]) -> str:
    """All rows, at least one, below each other, the greatest first, on one logarithmic scale."""
    import altair as alt

    rows = [
        {
            "name": each.name,
            "value": each.value,
            "least": min(each.runs),
            "greatest": max(each.runs),
            "kind": each.kind,
            "label": f"{each.value:,.0f} {each.remark}".strip(),
        }
        for each in sorted(measured, key=lambda each: -each.value)
    ]
    values = [value for each in measured for value in (each.value, *each.runs)]
    scale = alt.Scale(type="log", domain=[min(values) / 1.5, max(values) * 1.5], nice=False)
    across = alt.X("least:Q", title=None, scale=scale, axis=alt.Axis(format=",", tickCount=5))
    base = alt.Chart(alt.InlineData(values=rows), title=alt.Title(title, anchor="start")).encode(
        alt.Y("name:N", sort=None, title=None),
        alt.Color("kind:N", sort=None, title=None, legend=alt.Legend(orient="bottom")),
    )
    spread = base.mark_rule(strokeWidth=2).encode(across, alt.X2("greatest:Q"))
    dots = base.mark_circle(size=35, opacity=1).encode(alt.X("value:Q"))
    labels = base.mark_text(align="left", dx=10).encode(
        alt.X("greatest:Q"), alt.Text("label:N"), color=alt.value("#333")
    )
    return _svg(alt.layer(spread, dots, labels).properties(width=480, height=alt.Step(22)))


def _lines(chart: Chart) -> Any:
    import altair as alt

    rows = [
        {"series": name, "x": x, "y": y}
        for name, points in chart.series.items()
        for x, y in points
        if y > 0
    ]
    few = len(chart.series) <= 10
    return (
        alt.Chart(alt.InlineData(values=rows), title=chart.title, width=340, height=290)
        .mark_line(point=alt.OverlayMarkDef(size=15))
        .encode(
            # At equal distances, whatever the steps.
            alt.X("x:O", title=chart.across, axis=alt.Axis(labelAngle=0, format=",")),
            alt.Y("y:Q", title=chart.up, axis=alt.Axis(format=",~g")).scale(type="log", base=2),
            alt.Color("series:N", sort=None, title=None).scale(
                scheme="category10" if few else "tableau20"
            ),
            alt.StrokeDash("series:N", sort=None),
        )
    )


def _svg(chart: "TopLevelMixin") -> str:
    into = StringIO()
    chart.save(into, format="svg")
    return into.getvalue() + "\n"
