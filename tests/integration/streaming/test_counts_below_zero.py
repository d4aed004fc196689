"""A source publishes the deletion of a row that it did not have, to a job with real parts."""

import time

import orjson
import polars as pl
import pytest
from confluent_kafka import Producer

from protocols.errors import SourceViolation
from sources.topics import CLIENT_LOG
from tests.harness.records import whole_topic
from tests.harness.waiting import patience
from tests.harness.world import OneView, World, start


@pytest.fixture
def world(world: World) -> World:
    """Sources whose view has a single row, its first state."""
    with world.job() as job:
        start(job)
    return world


def forge(world: World) -> None:
    """Makes versions 2 and 3 in b's topic delete the row that version 1 inserted once."""
    source = world.sources["b"]
    source.stop_publisher()
    source.commit_many([[("s", (5, 5), 1)], [("s", (5, 5), -1)]])
    [first] = whole_topic(world.bootstrap, source.topic)["value"]
    producer = Producer({"bootstrap.servers": world.bootstrap}, logger=CLIENT_LOG)
    for version in (2, 3):
        form = orjson.loads(first)
        form |= {"before": form["after"], "after": None, "op": "d"}
        form["source"]["version"], form["transaction"]["id"] = version, f"b:{version}"
        # With a digest the job would notice that the source did not commit it.
        del form["transaction"]["history"]
        producer.produce(source.topic, orjson.dumps(form), partition=0)
    assert producer.flush(patience()) == 0


def current(job: OneView) -> list[tuple[object, ...]]:
    return pl.read_delta(str(job.tables.directory / "current")).rows()


def go_on(job: OneView, world: World) -> None:
    """Lets the job take all records, and continue until `current` has followed or it ends."""
    job.take(world.records_after(job))
    until = time.monotonic() + patience()
    while job.tables.followed() != job.standing.position:
        assert time.monotonic() < until
        job.running.tend()
        job.running.settle()
        time.sleep(0.01)


def test_a_deletion_of_a_row_that_was_not_there_ends_the_job_and_no_reader_sees_it(
    world: World,
) -> None:
    forge(world)
    said = r"position 2 \(version 3 of source b\) .*\(id = 1, t = p, y = 1, z = k\) would become -1"
    with world.job() as job:
        start(job)
        before = current(job)
        with pytest.raises(SourceViolation, match=said):
            go_on(job, world)
        assert current(job) == before == [(1, "p", 1, "k", 1)]
    with world.job() as job:
        with pytest.raises(SourceViolation, match=said):
            start(job)
        assert current(job) == before
