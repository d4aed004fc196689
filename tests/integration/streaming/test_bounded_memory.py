"""A job needs no more memory for a large batch than for one sweep, and stays complete.

Everything is real except Spark; each view is compared at every position with DuckDB.
"""

import random
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest

from protocols.exchange.delivery import Delivery
from protocols.exchange.holdback import GlobalPart
from streaming.intake.spilling import spill
from tests.cases.stories import KEYED
from tests.harness.world import OneView, World, start

pytestmark = pytest.mark.world(story=KEYED, transactions=30)


def take_noting_sweeps(world: World, job: OneView) -> list[int]:
    """Takes everything in the topics as one batch; the number of transactions of each sweep."""
    sizes: list[int] = []
    enqueue_each = Delivery.enqueue_each

    def noting(delivery: Delivery[Any], sources: Any, which: Any, version: np.ndarray) -> None:
        sizes.append(len(version))
        enqueue_each(delivery, sources, which, version)

    with mock.patch.object(Delivery, "enqueue_each", noting):
        job.take(world.records_after(job))
    return sizes


@pytest.mark.parametrize("protocol", ["batched-sweep", "sweep"])
def test_a_batch_is_swept_in_pieces_and_every_state_is_right(world: World, protocol: str) -> None:
    with world.job(protocol=protocol, records_per_sweep=9) as job:
        start(job)
        world.commit_at_random(random.Random(2), 60)
        world.wait_until_published()
        sizes = take_noting_sweeps(world, job)
        assert len(sizes) > 5
        assert job.measures.batches >= len(sizes), "each is committed before the next begins"
        assert world.assert_complete(job.tables) > 50
        assert job.standing.vector == world.versions


def test_in_turn_the_answers_bring_what_is_behind_the_piece_and_all_is_right(world: World) -> None:
    with world.job(protocol="c-strobe", records_per_sweep=9) as job:
        start(job)
        world.commit_at_random(random.Random(3), 60)
        world.wait_until_published()
        assert take_noting_sweeps(world, job)[0] < 10
        assert world.assert_complete(job.tables) > 50


def test_a_sweep_holds_as_many_records_as_it_may(world: World) -> None:
    with world.job(protocol="batched-sweep", records_per_sweep=10) as job:
        start(job)
        source = world.sources["b"]
        for number in range(25):
            source.commit(("s", (100 + number, 1, 1), 1))
        world.wait_until_published()
        assert take_noting_sweeps(world, job) == [10, 10, 5]
        world.assert_complete(job.tables)


def test_a_transaction_that_is_larger_than_a_sweep_stays_whole(world: World) -> None:
    with world.job(protocol="batched-sweep", records_per_sweep=4) as job:
        start(job)
        source = world.sources["b"]
        source.commit(("s", (100, 1, 1), 1))
        source.commit(*(("s", (200 + number, 1, 1), 1) for number in range(11)))
        source.commit(("s", (300, 1, 1), 1))
        world.wait_until_published()
        assert take_noting_sweeps(world, job) == [1, 1, 1]
        assert world.assert_complete(job.tables) == 3


def test_parts_of_a_global_transaction_may_lie_in_two_sweeps(world: World) -> None:
    part = GlobalPart("g", frozenset("ab"))
    with world.job(protocol="batched-sweep", records_per_sweep=2) as job:
        start(job)
        world.sources["a"].commit(("r", (50, 1, "p"), 1), part=part)
        for number in range(6):
            world.sources["c"].commit(("u", (50 + number, "k"), 1))
        world.sources["b"].commit(("s", (50, 1, 50), 1), part=part)
        world.wait_until_published()
        assert len(take_noting_sweeps(world, job)) >= 4
        assert world.assert_right(job.tables) == 7
        assert job.standing.vector == world.versions


def test_what_the_mailbox_has_no_memory_for_lies_in_files_and_every_state_is_right(
    world: World,
) -> None:
    """A mailbox without any memory: everything received is spilled."""
    put: list[int] = []

    def noting(rows: pl.DataFrame) -> pl.DataFrame:
        put.append(rows.height)
        return spill(rows)

    with (
        mock.patch("streaming.intake.reading._MEGABYTE", 0),
        mock.patch("streaming.intake.reading.spill", noting),
        world.job(protocol="batched-sweep", mailbox_megabytes=1, records_per_sweep=20) as job,
    ):
        start(job)
        world.commit_at_random(random.Random(4), 60)
        world.wait_until_published()
        take_noting_sweeps(world, job)
        assert sum(put) > 50
        assert job.measures.corrected > 0, "nothing concurrent happened"
        assert world.assert_complete(job.tables) > 50
