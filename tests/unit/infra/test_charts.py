"""The charts, read back from their SVG: Vega-Lite labels each mark with its values."""

import importlib.util
import math
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from infra.charts import Chart, Measured, drawn, medians, refuse_without_altair
from infra.errors import InfraError

_SERIES = {"a": [(0.0, 1.0), (0.5, 4.0), (4.0, 64.0)], "b": [(0.0, 2.0), (0.5, 0.0), (4.0, 8.0)]}
_ROWS = [
    Measured("slow", 10_000, [9_000, 10_000, 20_000], "others"),
    Measured("ours", 1_000_000, [900_000, 1_000_000, 1_100_000], "ours"),
    Measured("wrong", 100_000, [100_000], "others", "(WRONG)"),
]


def marks(svg: str, role: str) -> list[tuple[dict[str, str], float, float]]:
    """The values of each mark, and where it stands in its chart."""
    found = []
    for element in ET.fromstring(svg).iter():
        if element.get("aria-roledescription") == role:
            pairs = [pair.split(": ") for pair in (element.get("aria-label") or "").split("; ")]
            place = (element.get("transform") or "(0,0)").partition("(")[2].rstrip(")").split(",")
            values = {key.rpartition(" ")[2]: value for key, value in pairs}
            found.append((values, float(place[0]), float(place[1])))
    return found


def chart(title: str) -> Chart:
    return Chart(title, "across", "up", _SERIES)


def test_each_chart_has_a_line_for_each_series_and_no_value_that_a_logarithm_has_not() -> None:
    svg = drawn([chart("first"), chart("second")])
    assert len(marks(svg, "line mark")) == 4
    points = [(v["series"], float(v["across"]), float(v["up"])) for v, *_ in marks(svg, "point")]
    assert sorted(points[:5]) == sorted(
        (name, x, y) for name, series in _SERIES.items() for x, y in series if y
    )
    assert points[5:] == points[:5]
    assert all(f">{words}<" in svg for words in ("first", "second", "across", "up", "a", "b"))


def test_values_are_at_distances_of_their_logarithms_and_steps_at_equal_ones() -> None:
    found = {(v["series"], v["across"]): (x, y) for v, x, y in marks(drawn([chart("")]), "point")}
    first, second, third = (found["a", across] for across in ("0", "0.5", "4"))
    assert second[0] - first[0] == pytest.approx(third[0] - second[0])
    assert 2 * (first[1] - second[1]) == pytest.approx(second[1] - third[1])


def test_rows_of_medians_are_sorted_and_a_hundredfold_is_twice_as_far_as_a_tenfold() -> None:
    found = marks(medians("speed", _ROWS), "circle")
    assert [(v["name"], int(v["value"])) for v, *_ in found] == [
        ("ours", 1_000_000),
        ("wrong", 100_000),
        ("slow", 10_000),
    ]
    ours, wrong, slow = ((x, y) for _, x, y in found)
    assert ours[0] - wrong[0] == pytest.approx(wrong[0] - slow[0])
    assert ours[1] < wrong[1] < slow[1]


def test_a_row_shows_its_median_its_runs_and_what_is_wrong() -> None:
    svg = medians("speed <1>", _ROWS)
    assert ">100,000 (WRONG)<" in svg
    assert ">speed &lt;1&gt;<" in svg
    rules = {values["name"]: (values, x) for values, x, _ in marks(svg, "rule mark")}
    values, begin = rules["slow"]
    assert (values["least"], values["greatest"]) == ("9,000", "20000")
    [dot] = [x for values, x, _ in marks(svg, "circle") if values["name"] == "slow"]
    tenfold = marks(svg, "circle")[0][1] - marks(svg, "circle")[1][1]
    assert dot - begin == pytest.approx(tenfold * math.log10(10 / 9))


def test_another_process_draws_the_same_picture() -> None:
    program = (
        f"from infra.charts import Measured, medians\nprint(medians('speed', {_ROWS!r}), end='')"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert other.stdout.decode() == medians("speed", _ROWS)


def test_without_altair_the_message_is_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_without_altair()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(InfraError, match=r"pip install 'viewsweep\[charts\]'"):
        refuse_without_altair()
