"""Connectors that are killed in the middle of transactions: each change counts once."""

import random
import time
from pathlib import Path

import psycopg

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.world import start

_ROWS = 4000
_KILLS = 3


def _large(connection: psycopg.Connection, first: int) -> None:
    """A transaction of many rows, which takes the connector a while."""
    connection.execute(
        "INSERT INTO r SELECT i, i %% 5, 'p' FROM generate_series(%s::int, %s::int) i",
        (first, first + _ROWS - 1),
    )


def test_transactions_that_are_published_again_count_once(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path
) -> None:
    dice = random.Random(3)
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.commit_at_random(dice, 10)
        world.number_from_here()
        with world.job(protocol="batched-sweep") as job:
            start(job)
        database = world.databases["a"]
        repeated = 0
        for number in range(_KILLS):
            with database.connected() as connection:
                _large(connection, 1000 + number * _ROWS)
            time.sleep(dice.uniform(0.05, 0.4))
            world.connect.kill()
            world.connect.start()
            world.wait_until_published()
            world.commit_at_random(dice, 3)
        world.go_on(protocol="batched-sweep")
        records = len(world.topic_of("a"))
        repeated = records - _KILLS * _ROWS
        assert repeated > 100, "vacuous: nothing was published again"
