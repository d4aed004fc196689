"""Live runs over PostgreSQL databases with Debezium: real servers, connectors, topics, tables.

The truth is each database's own log, decoded by the test.
"""

import random
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from tests.cases.stories import KEYED, MIXED, Story
from tests.harness.postgres import PostgresWorld
from tests.harness.records import cut
from tests.harness.world import start


@pytest.mark.parametrize("story", [MIXED, KEYED], ids=["mixed", "keyed"])
def test_a_view_over_databases_is_right_at_every_position(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path, story: Story
) -> None:
    dice = random.Random(7)
    with PostgresWorld(tmp_path, broker.bootstrap, topic, story).on(server) as world:
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
