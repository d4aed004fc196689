"""Commits in parallel to batches: their order, how many wait, and none after an error."""

import threading
from collections.abc import Callable, Iterator

import pytest

from streaming.job.commits import Commits
from tests.harness.waiting import eventually

PATIENCE = 30.0


@pytest.fixture
def commits() -> Iterator[Commits]:
    commits = Commits("commits")
    yield commits
    commits.close()


class Gate:
    """A commit that signals its beginning and ends when it is released."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.open.wait(PATIENCE)


class _DiskError(Exception):
    """The error of a commit."""


def is_waited_for(condition: threading.Condition) -> bool:
    return bool(vars(condition)["_waiters"])


def _fail() -> None:
    raise _DiskError("the disk is full")


def test_commits_are_made_in_their_order_by_one_thread_beside_ours(commits: Commits) -> None:
    made: list[tuple[int, int]] = []

    def commit(number: int) -> Callable[[], None]:
        return lambda: made.append((number, threading.get_ident()))

    for number in range(50):
        commits.hand_over(commit(number))
    commits.settle()
    assert [number for number, _ in made] == list(range(50))
    (thread,) = {thread for _, thread in made}
    assert thread != threading.get_ident()


def test_the_batch_goes_on_while_its_commit_is_at_work(commits: Commits) -> None:
    gate = Gate()
    commits.hand_over(gate)
    assert gate.begun.wait(PATIENCE)
    assert not commits.idle
    gate.open.set()
    commits.settle()
    assert commits.idle


def test_behind_the_one_at_work_at_most_one_waits(commits: Commits) -> None:
    gate, third_is_in = Gate(), threading.Event()
    commits.hand_over(gate)
    assert gate.begun.wait(PATIENCE)
    commits.hand_over(lambda: None)

    def third() -> None:
        commits.hand_over(lambda: None)
        third_is_in.set()

    waiting = threading.Thread(target=third, daemon=True)
    waiting.start()
    eventually(lambda: third_is_in.is_set() or is_waited_for(commits._queue.not_full))
    assert not third_is_in.is_set(), "there is no room for a third one"
    gate.open.set()
    assert third_is_in.wait(PATIENCE)
    waiting.join()


def test_settling_waits_for_what_was_handed_over(commits: Commits) -> None:
    gate, settled = Gate(), threading.Event()
    commits.hand_over(gate)

    def settle() -> None:
        commits.settle()
        settled.set()

    threading.Thread(target=settle, daemon=True).start()
    eventually(lambda: settled.is_set() or is_waited_for(commits._queue.all_tasks_done))
    assert not settled.is_set()
    gate.open.set()
    assert settled.wait(PATIENCE)


def test_after_an_error_nothing_is_committed_and_the_job_hears_of_it(commits: Commits) -> None:
    gate, made = Gate(), list[str]()

    def fail() -> None:
        gate()
        _fail()

    commits.hand_over(fail)
    assert gate.begun.wait(PATIENCE)
    commits.hand_over(lambda: made.append("behind the error"))
    gate.open.set()
    with pytest.raises(_DiskError, match="the disk is full"):
        commits.settle()
    with pytest.raises(_DiskError):
        commits.hand_over(lambda: made.append("later"))
    with pytest.raises(_DiskError):
        commits.settle()
    commits.close()
    assert made == []


def test_whoever_waits_for_room_hears_of_the_error(commits: Commits) -> None:
    """The error occurs while the job waits to enqueue its next commit."""
    gate, heard = Gate(), threading.Event()

    def fail() -> None:
        gate()
        _fail()

    def job() -> None:
        with pytest.raises(_DiskError):
            commits.hand_over(lambda: None)
        heard.set()

    commits.hand_over(fail)
    assert gate.begun.wait(PATIENCE)
    commits.hand_over(lambda: None)
    waiting = threading.Thread(target=job, daemon=True)
    waiting.start()
    gate.open.set()
    assert heard.wait(PATIENCE)


def test_closing_lets_what_was_handed_over_end_and_may_be_repeated() -> None:
    commits, made = Commits("commits"), list[int]()
    for number in range(3):
        commits.hand_over(lambda number=number: made.append(number))  # type: ignore[misc]
    commits.close()
    assert made == [0, 1, 2]
    commits.close()


def test_closing_after_an_error_does_not_hang() -> None:
    commits = Commits("commits")
    commits.hand_over(_fail)
    commits.close()
    with pytest.raises(_DiskError):
        commits.settle()
