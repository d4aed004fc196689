"""The status of a job is one frozen value, and the live line renders it."""

import dataclasses
import datetime
import io
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from rich.console import Console

from streaming import liveview
from streaming.figures.heldback import HeldBack, Waiting
from streaming.figures.measuring import Behind, Measures
from streaming.figures.status import JobStatus, SourceStatus, ViewStatus, status_of
from streaming.liveview import LiveView, facts

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
HELD = HeldBack("v", (Waiting("g", NOON, {"a": 3}, ("b",)),), {"a": (3, 5)})


def view(name: str = "v", **known: Any) -> ViewStatus:
    usual = {"position": 7, "vector": {"a": 3}, "backlog": 2, "at_work": 1, "rows": 10}
    return ViewStatus(
        **{
            "name": name,
            "protocol": "sweep",
            "committed_at": None,
            "held_back": None,
            "failed": None,
            **usual,
            **known,
        }
    )


def source(name: str, behind: Behind | None = None, reachable: bool | None = True) -> SourceStatus:
    return SourceStatus(name, reachable, 12, behind)


def test_a_status_does_not_change_when_the_job_goes_on() -> None:
    measures = Measures(updates=3)
    measures.copies["a.r"] = 5
    status = status_of(measures, [source("a")], [view()])
    before = status.to_json()
    measures.updates, measures.copies["b.s"] = 4, 6
    measures.steps["sweep"] = 1.0
    measures.note_wait("executors", True)
    assert status.to_json() == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        status.updates = 4  # type: ignore[misc]


def test_everything_is_in_the_json_form() -> None:
    known = view(held_back=HELD)
    status = status_of(Measures(), [source("a", Behind(4, 1.5))], [known, view("w", position=2)])
    form = orjson.loads(orjson.dumps(status.to_json()))
    assert {field.name for field in dataclasses.fields(JobStatus)} <= form.keys()
    assert form["position"] == 2
    assert form["positions"] == {"v": 7, "w": 2}
    assert form["view_rows"] == 20
    assert form["views"]["v"]["vector"] == {"a": 3}
    assert form["views"]["v"]["backlog"] == 2
    assert form["behind"] == {"a": {"records": 4, "seconds": 1.5}}
    assert form["held_back"] == [form["views"]["v"]["held_back"]]


def test_how_far_the_views_are_behind_in_words() -> None:
    def words(*behind: Behind | None) -> str:
        sources = [source(name, each) for name, each in zip("abc", behind, strict=False)]
        return status_of(Measures(), sources, []).behind

    assert words(None, None) == "-"
    assert words(Behind(0, 0.0), Behind(1200, 4.2)) == "b 1,200 records, 4 s"
    assert words(Behind(0, 0.0), Behind(0, 0.0)) == "caught up"


def test_a_wait_is_told_once_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    measures = Measures()
    with measures.waiting_for("answers of a"):
        moment[0] += 0.5
        assert status_of(measures, [], []).waits == ()
        moment[0] += 2
        [wait] = status_of(measures, [], []).waits
        assert str(wait) == "answers of a, 2 s"
        measures.note_wait("answers of a", True)
        assert measures.waits == {"answers of a": 100.0}, "it has waited since then"
    assert not measures.waits


def _lines(
    monkeypatch: pytest.MonkeyPatch, statuses: list[JobStatus], terminal: bool = False
) -> list[str]:
    """The lines of a live view that looks at these statuses, one after the other."""
    monkeypatch.setattr(liveview, "_EVERY_SECONDS", -1.0)
    monkeypatch.setattr(liveview, "_OFTEN_SECONDS", -1.0)
    left = iter(statuses)
    given: Callable[[], JobStatus] = lambda: next(left)  # noqa: E731
    live = LiveView(given)
    shown = io.StringIO()
    live._console = Console(file=shown, width=300, force_terminal=terminal)
    with live:
        for _ in statuses:
            live.look()
    return shown.getvalue().splitlines()


def _keeping(**changes: Any) -> JobStatus:
    status = status_of(Measures(), [source("a", Behind(3, 1.0))], [view()])
    return dataclasses.replace(status, phase="keeping", **changes)


def test_plain_lines_come_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    caught_up = (source("a", Behind(0, 0.0)),)
    lines = _lines(
        monkeypatch,
        [
            dataclasses.replace(_keeping(), phase="first state"),
            _keeping(),
            _keeping(updates=5),
            _keeping(views=(view(position=8),)),
            _keeping(views=(view(position=8),), sources=caught_up),
            _keeping(views=(view(position=8),), sources=caught_up),
        ],
    )
    assert len(lines) == 2
    assert "position 8" in lines[0]
    assert "behind a 3 records, 1 s" in lines[0]
    assert "behind caught up" in lines[1]


def test_the_line_says_what_the_job_waits_for() -> None:
    measures = Measures()
    measures.note_wait("answers of a", True)
    measures.waits["answers of a"] -= 5
    status = status_of(measures, [source("a", reachable=False)], [view(held_back=HELD)])
    told = facts(status)
    assert told["waits for"].startswith("answers of a, 5 s")
    assert told["no answer from"] == "a"
    assert told["held back for"] == "b"
    assert "no answer from" not in facts(_keeping())


def test_the_line_names_the_views_that_have_failed() -> None:
    assert "failed" not in facts(_keeping())
    views = (view("v", failed="its table is gone"), view("w"), view("x", failed="a gap"))
    assert facts(_keeping(views=views))["failed"] == "v, x"
    form = _keeping(views=views).to_json()["views"]
    assert [form[name]["failed"] for name in "vwx"] == ["its table is gone", None, "a gap"]


def test_a_new_wait_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = Measures(phase="keeping")
    measures.waits["answers of a"] = measures.started - 5
    waiting = status_of(measures, [source("a")], [view()])
    assert len(_lines(monkeypatch, [_keeping(), waiting, waiting])) == 1
