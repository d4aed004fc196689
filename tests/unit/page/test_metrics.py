"""`/metrics`: everything that a status has is exported, documented, and used as documented."""

import dataclasses
import json
import re
from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from streaming.figures.answers import AnswerFigures
from streaming.figures.heldback import HeldBack
from streaming.figures.status import JobStatus
from tests.harness.pages import Served, a_status, served, site_of
from tests.harness.places import ROOT

MONITORING = ROOT / "examples" / "monitoring"


@pytest.fixture(scope="module")
def page() -> Iterator[Served]:
    with served(site_of(a_status())) as page:
        yield page


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def exported(status: JobStatus | None) -> dict[str, Metric]:
    with served(site_of(status)) as page:
        return families(page.get("/metrics").text)


def value(found: dict[str, Metric], sample: str, **labels: str) -> float:
    """The value of the one sample with this name and these labels."""
    [value] = [
        each.value
        for family in found.values()
        for each in family.samples
        if each.name == sample and each.labels == labels
    ]
    return value


def test_the_figures_of_a_status_are_exported(page: Served) -> None:
    found = families(page.get("/metrics").text)
    assert value(found, "viewsweep_up") == 1
    assert value(found, "viewsweep_phase", phase="keeping") == 1
    assert value(found, "viewsweep_phase", phase="checking") == 0
    assert value(found, "viewsweep_updates_total") == 12
    assert value(found, "viewsweep_freshness_seconds", quantile="0.99") == 0.25
    assert value(found, "viewsweep_view_version", view="v", source="a") == 7
    assert value(found, "viewsweep_view_backlog_positions", view="v") == 2
    assert value(found, "viewsweep_source_up", source="b") == 0
    assert value(found, "viewsweep_source_lag_records", source="b") == 9
    assert value(found, "viewsweep_source_errors_total", source="b") == 1
    assert value(found, "viewsweep_longest_wait_seconds") >= 3


def test_the_histogram_of_answers_adds_up(page: Served) -> None:
    found = families(page.get("/metrics").text)
    bucket = "viewsweep_answer_seconds_bucket"
    assert value(found, bucket, source="b", le="0.0025") == 0
    assert value(found, bucket, source="b", le="0.005") == 1
    assert value(found, bucket, source="b", le="10.0") == 2
    assert value(found, bucket, source="b", le="+Inf") == 3
    assert value(found, "viewsweep_answer_seconds_count", source="b") == 3
    assert value(found, "viewsweep_answer_seconds_sum", source="b") == pytest.approx(99.203)


def test_an_answer_as_slow_as_a_bound_belongs_to_it() -> None:
    assert AnswerFigures().answered(0.001, 0).latencies[0] == 1


def test_both_forms_of_the_exposition_can_be_parsed(page: Served) -> None:
    form = page.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert form.headers["content-type"].startswith("application/openmetrics-text")
    plain = families(page.get("/metrics").text).keys()
    ours = {family.name for family in open_families(form.text)}  # type: ignore[no-untyped-call]
    assert {name for name in ours if name.startswith("viewsweep_")} == {
        name for name in plain if name.startswith("viewsweep_")
    }


def test_without_a_job_only_that_is_exported() -> None:
    found = exported(None)
    assert value(found, "viewsweep_up") == 0
    assert [name for name in found if name.startswith("viewsweep_")] == ["viewsweep_up"]


def samples(found: dict[str, Metric]) -> dict[str, set[str]]:
    """The name of each exported sample → its labels."""
    known: dict[str, set[str]] = {}
    for family in found.values():
        for sample in family.samples:
            known.setdefault(sample.name, set()).update(sample.labels)
    return known


def documented() -> dict[str, set[str]]:
    """The names and the labels in the table of docs/page.md."""
    text = (ROOT / "docs" / "page.md").read_text()
    rows = re.findall(r"^\| `(viewsweep_\w+)` \| (.*?) \| \S", text, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_every_metric_is_documented_with_its_labels() -> None:
    held = HeldBack("v", (), {})
    status = a_status()
    views = tuple(dataclasses.replace(view, held_back=held) for view in status.views)
    known = samples(exported(dataclasses.replace(status, views=views)))
    for part in ("_bucket", "_sum", "_count"):
        labels = known.pop(f"viewsweep_answer_seconds{part}")
        known.setdefault("viewsweep_answer_seconds", set()).update(labels)
    ours = {name: labels for name, labels in known.items() if name.startswith("viewsweep_")}
    assert ours == documented()


def asked() -> Iterator[str]:
    """Every query of the alert rules and of the dashboard."""
    rules = (MONITORING / "alerts.yml").read_text()
    found = re.findall(r"expr: (?:>-\s+)?(.+)", rules)
    assert len(found) == rules.count("- alert:")
    yield from found
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    yield from (target["expr"] for panel in panels for target in panel["targets"])


#: Labels that Prometheus adds itself.
_ADDED = {"instance", "job"}


def unknown_in(query: str, known: dict[str, set[str]]) -> list[str]:
    """The metrics of a query, and the labels by which it selects, that are not exported."""
    wrong = []
    used: set[str] = set()
    for name, selector in re.findall(r"\b((?:viewsweep|process)_\w+)(?:\{(.*?)\})?", query):
        labels = set(re.findall(r"(\w+)\s*=", selector))
        if name not in known or not labels <= known[name] | _ADDED:
            wrong.append(f"{name} {sorted(labels)}")
        used |= known.get(name, set())
    for by in re.findall(r"by \((.*?)\)", query):
        wrong += [label for label in by.split(", ") if label not in used | _ADDED]
    return wrong


def test_every_query_of_alerts_and_dashboard_is_about_something_exported(page: Served) -> None:
    known = samples(families(page.get("/metrics").text))
    queries = list(asked())
    assert len(queries) > 25
    assert {query: wrong for query in queries if (wrong := unknown_in(query, known))} == {}


@pytest.mark.parametrize(
    "query",
    [
        "viewsweep_view_lag_seconds > 60",
        'viewsweep_freshness_seconds{percentile="0.99"}',
        "sum by (view, le) (rate(viewsweep_answer_seconds_bucket[5m]))",
    ],
)
def test_a_query_about_nothing_is_found(query: str, page: Served) -> None:
    assert unknown_in(query, samples(families(page.get("/metrics").text)))


def test_every_legend_and_every_template_names_a_label_of_its_query(page: Served) -> None:
    known = samples(families(page.get("/metrics").text))
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for target in (t for panel in dashboard["panels"] for t in panel["targets"]):
        [name, *_] = re.findall(r"(?:viewsweep|process)_\w+", target["expr"])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known[name]
