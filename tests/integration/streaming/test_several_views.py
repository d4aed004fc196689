"""Several views in one job: each complete by itself, and together they read and ask once.

Everything is real except Spark. Each view is compared at every position with DuckDB evaluating its
own SQL. The control merges equal questions by the intersection of their keys.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from protocols.algebra.frame import Frame
from protocols.exchange import sharing
from protocols.exchange.questions import Query, Question
from sources.envelope import decode, feed
from sources.wire.client import SourceClient
from tests.cases.stories import KEYED
from tests.harness.records import records
from tests.harness.severalviews import ALL, LEFT, LIKE_ALL, RIGHT, Kept, Views
from tests.harness.world import World, start

pytestmark = pytest.mark.world(story=KEYED, transactions=40)

#: The same except for the condition of one relation.
HALF_LIKE_ALL = LIKE_ALL + " AND u.y < 3"


def commit(world: World, seed: int, transactions: int = 30) -> None:
    world.commit_at_random(random.Random(seed), transactions)
    world.wait_until_published()


class Counted:
    """Counts questions sent and records decoded while it is active."""

    def __init__(self) -> None:
        self.questions: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self._patches = [
            mock.patch.object(SourceClient, "ask", self._asking()),
            mock.patch.object(feed, "decode", self._decoding()),
        ]

    def _asking(self) -> Any:
        ask = SourceClient.ask

        def counting(client: SourceClient, question: Question[Frame]) -> Any:
            self.questions[question.source] += 1
            return ask(client, question)

        return counting

    def _decoding(self) -> Any:
        def counting(values: Any, relations: Sequence[Any]) -> Any:
            self.records[relations[0].source] += len(values)
            return decode(values, relations)

        return counting

    def __enter__(self) -> "Counted":
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()


THREE = (Kept("left", LEFT), Kept("right", RIGHT), Kept("all", ALL))


@pytest.mark.parametrize("seed", range(2))
def test_views_over_overlapping_sources_are_each_complete(world: World, seed: int) -> None:
    views = Views(world, *THREE)
    with views.job() as job:
        start(job)
        commit(world, 10 + seed)
        views.take_all(job, batches=4, seed=seed)
        found = views.assert_complete(job)
        assert found["all"] > found["left"] > 10
        assert job.measures.corrected > 0, "nothing concurrent happened"


def test_a_view_that_is_made_later_stands_elsewhere_and_nobody_misses_anything(
    world: World,
) -> None:
    """`left` is far behind, `all` a little, `right` is new; then they continue together, twice."""
    views = Views(world, *THREE)
    with views.job("left") as job:
        start(job)
        commit(world, 20)
    with views.job("all") as job:
        start(job)
        commit(world, 21)
        views.take_all(job)
        views.assert_complete(job)
    commit(world, 22, 60)
    with views.job() as job:
        start(job)
        assert len({view.standing.vector["b"] for view in job.views}) == 3
        commit(world, 23)
        views.take_all(job, batches=3)
        views.assert_complete(job)
    commit(world, 24)
    with views.job() as job:
        start(job)
        views.take_all(job)
        found = views.assert_complete(job)
        assert found["left"] > found["right"] > 10


def test_a_view_kept_by_a_fifo_protocol_beside_one_that_compares_versions(world: World) -> None:
    """Strobe is strong, so the states that it shows must be right, and the last one is shown."""
    views = Views(world, Kept("strobe", ALL, "strobe"), Kept("all", LIKE_ALL))
    with views.job() as job:
        start(job)
        for seed in (30, 31):
            commit(world, seed)
            # Without waiting: they may or may not be published when a question is answered.
            world.commit_at_random(random.Random(seed), 6)
            views.take_all(job, batches=3, seed=seed)
    commit(world, 32)
    with views.job() as job:
        start(job)
        views.take_all(job)
        strobe, _ = job.views
        assert world.assert_right(strobe.tables) > 60
        assert strobe.standing.vector == world.versions
        assert views.assert_complete(job, "all")["all"] > 60


def test_records_are_decoded_once_however_many_views_there_are(world: World) -> None:
    views = Views(world, *THREE)
    with views.job() as job:
        start(job)
    commit(world, 40)
    with views.job() as job, Counted() as counted:
        start(job)
        there = records(world.bootstrap, job.offsets).group_by("topic").len().rows_by_key("topic")
        views.take_all(job, batches=2)
        views.assert_complete(job)
    published = {name: there[source.topic][0][0] for name, source in world.sources.items()}
    assert dict(counted.records) == published


def _questions(world: World, names: Sequence[str], views: Views, seed: int) -> Counter[str]:
    """The questions of these views for one batch whose commits are all published."""
    with views.job(*names) as job:
        start(job)
        commit(world, seed)
        with Counted() as counted:
            views.take_all(job)
        views.assert_complete(job)
        return counted.questions


def test_questions_that_coincide_are_asked_once(world: World) -> None:
    alike = Views(world, Kept("all", ALL), Kept("like", LIKE_ALL))
    alone = _questions(world, ["all"], alike, 50)
    assert sum(alone.values()) == 3, "n + I - 1 of a chain of three"
    _questions(world, ["like"], alike, 51)
    assert _questions(world, ["all", "like"], alike, 52) == alone


def test_questions_that_coincide_in_part_are_fewer_than_those_of_the_views_alone(
    world: World,
) -> None:
    views = Views(world, Kept("all", ALL), Kept("half", HALF_LIKE_ALL))
    alone = Counter[str]()
    for seed, name in enumerate(["all", "half"], 60):
        alone += _questions(world, [name], views, seed)
    together = _questions(world, ["all", "half"], views, 63)
    assert alone == {"a": 2, "b": 2, "c": 2}
    assert together == {"a": 1, "b": 1, "c": 2}, "only the question to c has another condition"


def _intersected(one: Query[Frame], other: Query[Frame]) -> Query[Frame]:
    united = _UNITED(one, other)
    if one.keys is None or other.keys is None:
        return united
    theirs = {keys.columns: keys for keys in other.keys}
    keys = tuple(each.matching(theirs[each.columns]) for each in one.keys)
    return replace(united, keys=keys)


_UNITED = sharing._united


def test_control_a_merge_that_asks_too_little_is_caught(world: World) -> None:
    views = Views(world, Kept("all", ALL), Kept("half", HALF_LIKE_ALL))
    with views.job() as job:
        start(job)
        commit(world, 70, 60)
        # Few updates at once, or both views would ask for all rows.
        with mock.patch.object(sharing, "_united", _intersected):
            views.take_all(job, batches=6)
        with pytest.raises(AssertionError, match="position"):
            views.assert_complete(job)
