"""Live runs over PostgreSQL databases with Debezium: real servers, connectors, topics, tables.

The truth is each database's own log, decoded by the test.
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from tests.cases.stories import KEYED, MIXED, Story
from tests.harness.databases import DatabaseWorld, while_they_write
from tests.harness.records import cut
from tests.harness.world import start

_SUMS = replace(
    MIXED,
    sql="SELECT u.z, COUNT(*) AS n, SUM(r.id) AS total FROM b.s s JOIN c.u u ON s.y = u.y"
    " LEFT JOIN a.r r ON r.x = s.x GROUP BY u.z",
)
_EACH = 40


@pytest.mark.parametrize("story", [MIXED, KEYED], ids=["mixed", "keyed"])
def test_a_view_over_databases_is_right_at_every_position(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path, story: Story
) -> None:
    dice = random.Random(7)
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, story).on(server) as world:
        world.publish()
        world.commit_at_random(dice, 12)
        world.number_from_here()
        with world.job(protocol="batched-sweep") as job:
            start(job)
            world.commit_at_random(dice, 30)
            world.wait_until_published()
            for batch in cut(world.records_after(job), dice, 3):
                job.take(batch)
            assert world.assert_complete(job.tables) > 20
        world.commit_at_random(dice, 10)
        world.go_on(protocol="batched-sweep")


@pytest.mark.parametrize(
    ("protocol", "story"),
    [
        ("batched-sweep", KEYED),
        ("sweep", MIXED),
        ("pipelined-sweep", KEYED),
        ("nested-sweep", KEYED),
        ("batched-sweep", _SUMS),
    ],
    ids=["batched", "sweep", "pipelined", "nested", "groups of an outer join"],
)
def test_a_view_is_right_while_its_databases_are_written(
    broker: LocalBroker,
    server: LocalPostgres,
    topic: str,
    tmp_path: Path,
    protocol: str,
    story: Story,
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, story).on(server) as world:
        world.publish()
        world.number_from_here()
        with world.job(protocol=protocol) as job, while_they_write(world, job, _EACH):
            assert world.assert_right(job.tables) > _EACH


def test_control_the_uncompensated_protocol_is_wrong(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, MIXED).on(server) as world:
        world.publish()
        world.number_from_here()
        with (
            world.job(protocol="naive") as job,
            while_they_write(world, job, _EACH),
            pytest.raises(AssertionError),
        ):
            world.assert_right(job.tables)
