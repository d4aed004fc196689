"""A job is right at every position, however records are cut into batches, after any crash.

Everything is real except Spark: broker, query servers, publishers, Delta. After each test the view
is compared at every position with DuckDB evaluating its SQL.
"""

import random

import polars as pl
import pytest

from sources.kafka import Kafka
from sources.topics import ends_of
from tests.harness.records import cut
from tests.harness.topics import take_back
from tests.harness.world import OneView, World, start

pytestmark = pytest.mark.world(transactions=60)


def commit(world: World, seed: int, transactions: int = 45) -> None:
    world.commit_at_random(random.Random(seed), transactions)
    world.wait_until_published()


def test_an_empty_batch_changes_nothing(world: World) -> None:
    with world.job() as job:
        start(job)
        assert job.take(world.records_after(job)) == 0
        assert world.assert_complete(job.tables) == 0


@pytest.mark.parametrize("seed", range(3))
def test_any_batching_is_complete(world: World, seed: int) -> None:
    dice = random.Random(seed)
    with world.job() as job:
        start(job)
        commit(world, seed)
        batches = cut(world.records_after(job), dice, 1 + 6 * seed)
        delivered = [job.take(batch) for batch in batches]
        assert sum(delivered) == world.assert_complete(job.tables) > 30
        assert job.measures.corrected > 0, "nothing concurrent happened"


def test_batches_of_one_record_are_completed_from_the_lookahead(world: World) -> None:
    with world.job() as job:
        start(job)
        commit(world, 5, 20)
        records = world.records_after(job)
        delivered = [job.take(records[n : n + 1]) for n in range(records.height)]
        assert 0 in delivered, "no transaction was cut"
        assert set(delivered) == {0, 1}
        assert world.assert_complete(job.tables) == sum(delivered)


def test_what_a_transaction_of_kafka_took_back_is_not_read_and_waited_for(world: World) -> None:
    """Spark counts its offsets, so batches and the topics themselves may end with them."""
    with world.job() as job:
        start(job)
        commit(world, 7)
        for source in world.sources.values():
            take_back(world.bootstrap, source.topic, [b"nonsense", b"more of it"])
        tops = ends_of(Kafka(world.bootstrap), {n: [s.topic] for n, s in world.sources.items()})
        ends = {source: {p: high for p, (_, high) in each.items()} for source, each in tops.items()}
        job.running.process(ends)
        job.running.settle()
        assert world.assert_complete(job.tables) > 30
        assert job.standing.vector == world.versions
        job.running.tend()
    commit(world, 8)
    world.go_on()


def test_control_the_uncompensated_protocol_is_caught(world: World) -> None:
    with world.job(protocol="naive") as job:
        start(job)
        commit(world, 2)
        job.take(world.records_after(job))
        with pytest.raises(AssertionError, match="position"):
            world.assert_complete(job.tables)


def test_a_batch_delivered_twice_is_installed_once(world: World) -> None:
    with world.job() as job:
        start(job)
        commit(world, 6)
        batches = cut(world.records_after(job), random.Random(6), 4)
        for batch in batches:
            job.take(batch)
            assert job.take(batch) == 0
        assert world.assert_complete(job.tables) > 30


def test_progress_says_at_the_end_of_each_batch_what_was_asked_for_it(world: World) -> None:
    with world.job(protocol="batched-sweep") as job:
        start(job)
        before = job.measures.queries
        commit(world, 14)
        ends = [
            job.standing.position
            for batch in cut(world.records_after(job), random.Random(14), 4)
            if job.take(batch)
        ]
        progress = job.tables.progress()
        asked = progress.filter(pl.col("questions").list.len() > 0)
        assert set(asked["position"]) <= set(ends)
        assert asked.height > 1
        assert progress["questions"].list.len().sum() == job.measures.queries - before


def test_after_a_restart_what_is_older_than_the_standing_is_not_installed_again(
    world: World,
) -> None:
    with world.job() as job:
        start(job)
        commit(world, 7)
        records = world.records_after(job)
        first, second, third = cut(records, random.Random(7), 3)
        job.take(first)
        job.take(second)
    with world.job() as job:
        start(job)
        before = job.standing
        assert job.take(first) == 0
        assert job.standing == before
        assert job.take(pl.concat([first, second])) == 0
        job.take(records)
        assert job.take(third) == 0
        assert world.assert_complete(job.tables) > 30


def test_a_checkpoint_that_is_ahead_is_filled_up_from_the_lookahead(world: World) -> None:
    with world.job() as job:
        start(job)
        commit(world, 8)
        ends = world.records_after(job).group_by("topic").last()
        assert job.take(ends) > ends.height
        assert job.standing.vector == world.versions
        assert world.assert_complete(job.tables) > 30


def test_a_new_job_after_each_batch_while_the_sources_go_on(world: World) -> None:
    dice = random.Random(9)
    with world.job() as job:
        start(job)
    corrected = 0
    for seed in range(4):
        commit(world, 90 + seed, 12)
        with world.job() as job:
            start(job)
            batch, _ = cut(world.records_after(job), dice, 2)
            # Without waiting: they may or may not be published when a question is answered.
            world.commit_at_random(dice, 6)
            job.take(batch)
            corrected += job.measures.corrected
    world.go_on()
    assert corrected > 0, "nothing concurrent happened"


def test_a_job_that_dies_before_it_records_progress_loses_no_position(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.job() as job:
        start(job)
        commit(world, 10)
        batches = cut(world.records_after(job), random.Random(10), 3)
        job.take(batches[0])
        monkeypatch.setattr(job.tables, "record", _die)
        with pytest.raises(_DeathError):
            job.take(batches[1])
    world.go_on()


def test_a_job_that_dies_before_it_commits_repeats_the_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.job() as job:
        start(job)
        commit(world, 11)
        records = world.records_after(job)
        monkeypatch.setattr(job.tables, "install", _die)
        with pytest.raises(_DeathError):
            job.take(records)
        assert job.tables.standing().position == 0
    world.go_on()


class _DeathError(Exception):
    """Simulates the death of the process."""


def _die(*_: object) -> None:
    raise _DeathError


# ----------------------------------------------------------------------------------- first state


def test_the_first_state_is_one_vector_though_the_sources_commit_between_its_pages(
    world: World,
) -> None:
    dice, pages = random.Random(12), []

    def commit_between(report: str) -> None:
        if "first state" in report:
            pages.append(report)
            world.commit_at_random(dice, 6)

    with world.job(report=commit_between, page_rows=2) as job:
        start(job)
        assert len(pages) >= 4
        assert job.standing.position == 0
        assert job.measures.corrected > 0, "nothing concurrent happened"
        world.wait_until_published()
        job.take(world.records_after(job))
        assert world.assert_complete(job.tables) > 20


def test_a_first_state_that_is_interrupted_goes_on_behind_its_last_page(world: World) -> None:
    dice = random.Random(13)
    seen: list[list[str]] = []
    for _ in range(20):
        pages: list[str] = []
        seen.append(pages)

        def die_after_two_pages(report: str, pages: list[str] = pages) -> None:
            pages.append(report)
            world.commit_at_random(dice, 5)
            if len(pages) == 3:
                raise _DeathError

        with world.job(report=die_after_two_pages, page_rows=2) as job:
            if _survives(job):
                break
    assert job.tables.exists
    assert len(seen) >= 3
    assert all("going on with the first state" in pages[0] for pages in seen[1:])
    world.wait_until_published()
    world.go_on()


def _survives(job: OneView) -> bool:
    try:
        start(job)
    except _DeathError:
        return False
    return True
