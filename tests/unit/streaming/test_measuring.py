"""The figures of a job, on a clock that the test sets."""

import datetime

import polars as pl
import pytest

from streaming.figures.measuring import Freshness

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def ago(self, *milliseconds: float) -> pl.Series:
        """Commit times in the form of `progress`."""
        now = datetime.datetime.fromtimestamp(self.now, datetime.UTC).replace(tzinfo=None)
        times = [now - datetime.timedelta(milliseconds=ms) for ms in milliseconds]
        return pl.Series(times, dtype=pl.Datetime("us"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_freshness_is_that_of_the_last_ten_seconds(clock: Clock) -> None:
    freshness = Freshness(clock)
    freshness.installed(clock.ago(*[8000.0] * 1000))
    clock.now += 1
    assert freshness.percentiles(50, 99) == [8000.0, 8000.0]
    clock.now += 8
    freshness.installed(clock.ago(100.0, 120.0))
    assert freshness.percentiles(50, 99) == [8000.0, 8000.0]
    clock.now += 1
    assert freshness.percentiles(50, 99) == [120.0, 120.0], "the burst is older than ten seconds"
    clock.now += 10
    assert freshness.percentiles(50, 99) == [None, None], "nothing was installed lately"


@pytest.mark.parametrize("updates", [1, 2, 99, 100, 499, 500, 501, 10_000])
def test_percentiles_are_those_of_all_updates(clock: Clock, updates: int) -> None:
    freshness = Freshness(clock)
    freshness.installed(clock.ago(*(float(n) for n in range(updates))))
    for percent, found in zip((0, 50, 99), freshness.percentiles(0, 50, 99), strict=True):
        assert found == pytest.approx(min(updates - 1, updates * percent // 100), abs=updates / 500)


def test_a_large_commit_weighs_as_much_as_its_updates(clock: Clock) -> None:
    freshness = Freshness(clock)
    freshness.installed(clock.ago(*[5000.0] * 100_000))
    for _ in range(1000):
        freshness.installed(clock.ago(10.0))
    assert freshness.percentiles(0, 1, 99) == [10.0, 5000.0, 5000.0]


def test_an_empty_commit_says_nothing(clock: Clock) -> None:
    freshness = Freshness(clock)
    freshness.installed(clock.ago())
    assert freshness.percentiles(50) == [None]
