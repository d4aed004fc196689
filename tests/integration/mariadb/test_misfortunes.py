"""Misfortunes of connectors and tables: kills, lost offsets, XA, TRUNCATE, dropped columns."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from infra.localmariadb import LocalMariaDB
from protocols.errors import SourceViolation, ViewRefused
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.world import start

_ROWS = 4000
_KILLS = 3


@pytest.fixture
def world(
    broker: LocalBroker, server: LocalMariaDB, topic: str, tmp_path: Path
) -> Iterator[DatabaseWorld]:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        world.commit_at_random(random.Random(3), 10)
        world.number_from_here()
        with world.job(protocol="batched-sweep") as job:
            start(job)
        yield world


def execute(world: DatabaseWorld, *statements: str) -> None:
    with world.databases["a"].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_transactions_that_are_published_again_count_once(world: DatabaseWorld) -> None:
    dice = random.Random(3)
    for number in range(_KILLS):
        first = 1000 + number * _ROWS
        execute(
            world,
            f"INSERT INTO r SELECT seq, seq % 5, 'p' FROM seq_{first}_to_{first + _ROWS - 1}",
        )
        time.sleep(dice.uniform(0.05, 0.4))
        world.connect.kill()
        world.connect.start()
        world.wait_until_published()
        world.commit_at_random(dice, 3)
    world.go_on(protocol="batched-sweep")
    repeated = len(world.topic_of("a")) - _KILLS * _ROWS
    assert repeated > 100, "vacuous: nothing was published again"


def test_what_was_committed_while_a_connector_forgot_its_place_is_missed(
    world: DatabaseWorld,
) -> None:
    world.connect.stop()
    world.commit_at_random(random.Random(1), 4)
    world.connect.forget()
    world.connect.start()
    world.databases["a"].wait_until_published()
    world.commit_at_random(random.Random(2), 4)
    with pytest.raises(SourceViolation, match="transactions between them are missing"):
        world.go_on(protocol="batched-sweep")


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            (
                "XA START 'x'",
                "INSERT INTO r VALUES (77, 1, 'p')",
                "XA END 'x'",
                "XA PREPARE 'x'",
                "XA COMMIT 'x'",
            ),
            "prepared XA transaction",
        ),
        (("TRUNCATE TABLE r",), "r was truncated"),
        (
            ("ALTER TABLE r DROP COLUMN x", "INSERT INTO r VALUES (78, 'p')"),
            "r has no column 'x'",
        ),
    ],
    ids=["xa", "truncate", "column"],
)
def test_what_the_log_does_not_tell_is_refused(
    world: DatabaseWorld, statements: tuple[str, ...], said: str
) -> None:
    execute(world, *statements)
    world.databases["a"].wait_for_the_topic()
    with pytest.raises((SourceViolation, ViewRefused), match=said):
        world.go_on(protocol="batched-sweep")
