"""`/healthz`, `/readyz` and the reasons that they give."""

import dataclasses
from typing import Any

import pytest

from page.health import troubles, unready
from protocols.auditing.audit import Difference
from streaming.figures.status import JobStatus, Wait
from tests.harness.pages import Response, a_status, served, site_of


def ready(status: JobStatus | None) -> Response:
    with served(site_of(status)) as page:
        assert page.get("/healthz").code == 200
        return page.get("/readyz")


def well(**changes: Any) -> JobStatus:
    """A job with nothing to complain about, but for these changes."""
    status = a_status()
    sources = tuple(dataclasses.replace(each, reachable=True) for each in status.sources)
    return dataclasses.replace(status, **{"sources": sources, "waits": (), **changes})


def test_a_job_that_keeps_all_views_is_ready() -> None:
    assert ready(well()).code == 200
    assert troubles(well()) == []


def test_a_job_that_still_starts_is_not_ready() -> None:
    found = ready(well(phase="first state"))
    assert (found.code, found.text) == (
        503,
        "the job is not keeping its views yet: first state\n",
    )


def test_every_trouble_has_its_words() -> None:
    [view] = a_status().views
    failed = dataclasses.replace(view, failed="a gap in the topic")
    sources = a_status().sources
    found = ready(well(views=(failed,), sources=sources))
    assert found.code == 503
    assert found.text.splitlines() == [
        "view v failed: a gap in the topic",
        "source b does not answer, and its updates wait: source b does not answer",
    ]


def test_an_audit_that_found_something_is_a_trouble_but_the_job_is_ready() -> None:
    [view] = a_status().views
    assert view.audit is not None
    row = Difference("current", ("<b>", 1), 2, 1)
    found = dataclasses.replace(view.audit, wrong=1, differences=(row,))
    status = well(views=(dataclasses.replace(view, audit=found),))
    assert unready(status) == []
    [trouble] = troubles(status)
    assert trouble.view == "v"
    assert "current has ('<b>', 1) 2 times, not 1" in trouble.words
    with served(site_of(status)) as page:
        shown = page.get("/").text
        assert "2 times, not 1" in shown
        assert "<b>" not in shown
        assert 'viewsweep_view_audit_holds{view="v"} 0.0' in page.get("/metrics").text


def test_a_long_wait_is_a_trouble_but_the_job_is_ready() -> None:
    assert unready(well(waits=(Wait("executors", 11.0),))) == []
    [trouble] = troubles(well(waits=(Wait("executors", 11.0),)))
    assert trouble.words == "waiting for executors, 11 s"
    assert troubles(well(waits=(Wait("executors", 9.0),))) == []


@pytest.mark.parametrize("path", ["/status.json", "/readyz"])
def test_without_a_job_there_is_no_status(path: str) -> None:
    with served(site_of(None)) as page:
        assert page.get(path).code == 503
