"""The reports of a job about its sources and broker, on a clock that the test sets."""

import pytest

from protocols.errors import Unreachable
from streaming.figures.measuring import Behind
from streaming.job.watching import Backlog, Installed, Presence


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def silent() -> None:
    raise Unreachable("nothing there")


def answers() -> None:
    """A probe that succeeds."""


def test_silence_is_said_once_and_its_end_too(clock: Clock) -> None:
    said: list[str] = []
    presence = Presence("source crm", "its updates wait", said.append, clock)
    for ask in (answers, silent, silent, silent):
        presence.attempt(ask)
        clock.now += 20
    [line] = said
    assert line.startswith("source crm does not answer since ")
    assert line.endswith("; its updates wait")
    presence.attempt(answers)
    presence.attempt(answers)
    assert said[1:] == ["source crm answers again after 60 s"]


def test_an_attempt_that_waits_for_long_is_enough(clock: Clock) -> None:
    def late() -> None:
        clock.now += 5
        raise Unreachable("no answer in 5 s")

    said: list[str] = []
    assert not Presence("source crm", "its updates wait", said.append, clock).attempt(late)
    assert len(said) == 1


def test_a_moment_is_no_silence(clock: Clock) -> None:
    said: list[str] = []
    presence = Presence("source crm", "its updates wait", said.append, clock)
    for ask in (answers, silent, answers, silent, answers):
        presence.attempt(ask)
    assert said == []


def test_behind_are_the_records_that_wait_and_since_when_the_first_was_seen(clock: Clock) -> None:
    backlog = Backlog(clock)
    backlog.seen("a", 10)
    assert backlog.behind({"a": Installed(10), "b": Installed(0)}) == {"a": Behind(0, 0.0)}
    clock.now += 5
    backlog.seen("a", 30)
    clock.now += 2
    backlog.seen("a", 40)
    clock.now += 1
    assert backlog.behind({"a": Installed(10)}) == {"a": Behind(30, 3.0)}
    assert backlog.behind({"a": Installed(35)}) == {"a": Behind(5, 1.0)}
    assert backlog.behind({"a": Installed(41)}) == {"a": Behind(0, 0.0)}


def test_what_was_committed_before_the_job_began_is_behind_since_its_commit(clock: Clock) -> None:
    backlog = Backlog(clock)
    backlog.seen("a", 30)
    assert backlog.behind({"a": Installed(10, (12, 400.0))}) == {"a": Behind(20, 600.0)}
    assert backlog.behind({"a": Installed(12, (12, 400.0))}) == {"a": Behind(18, 0.0)}
