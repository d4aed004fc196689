"""`viewsweep run --log json`: one event a line, with what it is about."""

import datetime
import time

import orjson
import pytest

from cli import events
from cli.events import LogForm
from protocols.telling import Told, fields_of
from streaming import eventlines
from streaming.eventlines import EventLines
from streaming.figures.status import JobStatus
from tests.harness.command import Command
from tests.harness.pages import a_status
from tests.harness.world import World


@pytest.fixture(autouse=True)
def _text_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_form", LogForm.TEXT)


def test_every_line_is_an_event_and_says_what_it_is_about(command: Command, world: World) -> None:
    ended = command.run("--log", "json")
    assert ended.code == 0
    told = [orjson.loads(line) for line in ended.lines]
    for event in told:
        assert {"time", "level", "event"} <= event.keys()
        moment = datetime.datetime.fromisoformat(event["time"])
        assert abs(moment.timestamp() - time.time()) < 600
    [last] = [e for e in told if "stopped at position" in e["event"]]
    assert (last["view"], last["position"]) == ("v", 0)
    assert any("first state" in e["event"] and e["view"] == "v" for e in told)
    world.sources["a"].stop_server()
    ended = command.run("--log", "json", patience_seconds=0.3)
    told = [orjson.loads(line) for line in ended.lines]
    assert any(e.get("source") == "a" and "trying again" in e["event"] for e in told)
    assert [e["level"] for e in told][-1] == "error"
    assert "Tried for 0 s" in told[-1]["event"]


def test_the_same_command_writes_text_by_default(command: Command) -> None:
    lines = command.run().lines
    assert any(line.startswith("view v: stopped at position") for line in lines)


def test_a_message_is_its_words() -> None:
    told = Told("view v: kept", view="v", position=3)
    assert told == "view v: kept"
    assert fields_of(told) == {"view": "v", "position": 3}
    assert fields_of("plain") == {}


def test_each_view_that_goes_on_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlines, "_EVERY_SECONDS", -1.0)
    said: list[str] = []
    status: list[JobStatus] = [a_status()]
    with EventLines(lambda: status[0], said.append) as lines:
        lines.look()
        lines.look()
    [event] = said
    assert fields_of(event)["position"] == 12
    assert fields_of(event)["vector"] == {"a": 7, "b": 5}
