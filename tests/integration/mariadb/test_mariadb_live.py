"""Live runs over MariaDB databases with Debezium: real servers, connectors, topics, tables.

The truth is each database's own log, decoded by the test.
"""

import random
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from infra.localmariadb import LocalMariaDB
from infra.localpostgres import LocalPostgres
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld, while_they_write
from tests.harness.records import cut
from tests.harness.world import start

_EACH = 40


def test_a_view_over_databases_is_right_at_every_position(
    broker: LocalBroker, server: LocalMariaDB, topic: str, tmp_path: Path
) -> None:
    dice = random.Random(7)
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.commit_at_random(dice, 12)
        world.number_from_here()
        with world.job(protocol="batched-sweep") as job:
            start(job)
            world.commit_at_random(dice, 30)
            with world.databases["a"].cursor() as cursor:
                # It has a number in the log, and a BEGIN without an END.
                cursor.execute("CREATE TABLE another (id INT PRIMARY KEY)")
            world.commit_at_random(dice, 5)
            world.wait_until_published()
            for batch in cut(world.records_after(job), dice, 3):
                job.take(batch)
            assert world.assert_complete(job.tables) > 20
        world.commit_at_random(dice, 10)
        world.go_on(protocol="batched-sweep")


@pytest.mark.parametrize("protocol", ["batched-sweep", "nested-sweep"])
def test_a_view_is_right_while_its_databases_are_written(
    broker: LocalBroker, server: LocalMariaDB, topic: str, tmp_path: Path, protocol: str
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.number_from_here()
        with world.job(protocol=protocol) as job, while_they_write(world, job, _EACH):
            assert world.assert_right(job.tables) > _EACH
        assert world.verdict(protocol).verdict == "valid"


def test_a_view_over_databases_of_two_kinds_is_right_while_they_are_written(
    broker: LocalBroker, server: LocalMariaDB, topic: str, tmp_path: Path
) -> None:
    with (
        LocalPostgres() as postgres,
        DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server, postgres) as world,
    ):
        world.publish()
        world.number_from_here()
        with world.job(protocol="sweep") as job, while_they_write(world, job, _EACH):
            assert world.assert_right(job.tables) > _EACH


def test_control_the_uncompensated_protocol_is_wrong(
    broker: LocalBroker, server: LocalMariaDB, topic: str, tmp_path: Path
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.number_from_here()
        with (
            world.job(protocol="naive") as job,
            while_they_write(world, job, _EACH),
            pytest.raises(AssertionError),
        ):
            world.assert_right(job.tables)
        assert world.verdict("naive").verdict == "invalid"
