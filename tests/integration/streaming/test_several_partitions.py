"""Sources that publish in several partitions: the order of commits is restored in any case.

Every state is compared with DuckDB's result over the relations at its vector. The control takes
what has come from each partition as complete.
"""

import random

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from protocols.errors import SourceViolation
from sources.envelope.feed import Feed
from sources.partitions import Partition
from tests.harness.records import cut
from tests.harness.topics import admin
from tests.harness.waiting import eventually, patience
from tests.harness.world import World, start

pytestmark = pytest.mark.world(partitions=3)


def commit(world: World, seed: int, transactions: int = 60) -> None:
    world.commit_at_random(random.Random(seed), transactions)
    world.wait_until_published()


@pytest.mark.parametrize("protocol", ["batched-sweep", "sweep"])
def test_a_view_is_complete_however_the_batches_cut_the_partitions(
    world: World, protocol: str
) -> None:
    with world.job(protocol=protocol) as job:
        start(job)
        for seed in range(3):
            commit(world, seed)
            records = world.records_after(job)
            assert records["partition"].n_unique() == 3
            for batch in cut(records, random.Random(seed), 5):
                job.take(batch)
        assert job.standing.vector == world.versions
        world.assert_complete(job.tables)


def test_a_restart_goes_on_after_the_token_of_the_standing(world: World) -> None:
    for seed in range(4):
        with world.job() as job:
            start(job)
            commit(world, seed, 30)
            first, *_ = cut(world.records_after(job), random.Random(seed), 2)
            job.take(first)
            before = job.standing
        with world.job() as job:
            start(job)
            assert job.standing.tokens == before.tokens
            job.take(world.records_after(job))
            assert job.standing.vector == world.versions
            world.assert_complete(job.tables)


def test_a_publisher_that_begins_again_repeats_nothing_in_the_view(world: World) -> None:
    with world.job() as job:
        start(job)
        for seed in range(3):
            for source in world.sources.values():
                source.stop_publisher()
            world.commit_at_random(random.Random(seed), 20)
            for source in world.sources.values():
                # What was acknowledged after the watermark is sent again.
                source.database.mark_published(max(0, source.database.published - 5))
                source.publish()
            world.wait_until_published()
            job.take(world.records_after(job))
        assert job.standing.vector == world.versions
        world.assert_complete(job.tables)


def test_a_partition_that_was_added_is_read_after_a_restart(world: World) -> None:
    b = world.sources["b"]
    with world.job() as job:
        start(job)
        commit(world, 1)
        job.take(world.records_after(job))
        b.stop_publisher()
        new = NewPartitions(b.topic, 4)
        admin(world.bootstrap).create_partitions([new])[b.topic].result(patience())
        added = {Partition(b.topic, 3): 0}
        with pytest.raises(
            SourceViolation, match="partition 3 was added while the job was running"
        ):
            job.running.by_source({**job.offsets, **added})
    b.partitions = 4
    b.publish()
    commit(world, 2)
    world.go_on()
    topics = admin(world.bootstrap).list_topics(b.topic, timeout=patience()).topics
    eventually(lambda: len(topics[b.topic].partitions) == 4)


def test_control_a_feed_that_does_not_wait_for_other_partitions_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feed, "_may_come", lambda *_: False)
    with world.job() as job:
        start(job)
        commit(world, 1)
        with pytest.raises(SourceViolation, match="is missing"):
            job.take(world.records_after(job))
