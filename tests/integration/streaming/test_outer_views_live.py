"""Views beyond inner joins through the job: real broker, query servers and Delta, no Spark.

The bank's balances (sums at two sources, FULL JOIN, COALESCE) and the retailer's catalogue (RIGHT
and FULL JOIN over three sources). The sources commit while the job asks. Two judges: the checker,
which reads the trace of the run, and DuckDB, which evaluates the view's SQL at every position
(harness/truth.py). The control is the protocol that believes every answer.
"""

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from infra.localbroker import LocalBroker
from protocols.exchange.holdback import GlobalPart
from protocols.views.tree import TreeView
from sources.simulated.workloads import WORKLOADS
from sources.simulated.workloads.dice import Dice
from tests.cases.stories import Row, Story
from tests.harness.records import cut
from tests.harness.world import OneView, World, start

#: Transactions before the first state, in the topics when the job begins, and while it asks.
BEFORE, WAITING, MEANWHILE = 30, 110, 60


def story_of(workload: str, view: str, scale: int) -> Story:
    """The relations of a workload's view, with rows as the workload generates them.

    The smaller the scale, the more rows match, and the sooner all groups are remembered.
    """
    made = WORKLOADS[workload]
    sql = made.view_named(view)
    tables = {source: of[0] for source, of in made.tables.items() if f" {source}." in sql}

    def row(source: str, dice: random.Random) -> tuple[str, Row]:
        table = tables[source]
        number = dice.randint(1, table.size(scale) + 2)
        [made] = table.fresh(Dice(dice.random()), scale, (number,))
        return table.relation.name, made

    forms = {s: {table.relation.name: table.relation.to_json()} for s, table in tables.items()}
    return Story(forms, sql, row, {s: (*row(s, random.Random(s)), 1) for s in tables})


STORIES = {
    "balance": story_of("bank", "balance", 40),
    "catalogue": story_of("retail", "catalogue", 6),
}


def commit_while_asking(world: World, job: OneView, dice: random.Random) -> None:
    """Makes the sources commit between questions and after the last one, up to a limit."""
    ask, left = job.checked.sources.ask, [MEANWHILE]

    def committing(questions: list[Any]) -> list[Any]:
        count = min(left[0], dice.randint(1, 12))
        left[0] -= count
        if count:
            world.commit_at_random(dice, count)
        return ask(questions)

    job.checked.sources.ask = committing  # type: ignore[method-assign]


def go_on(world: World, protocol: str, dice: random.Random) -> OneView:
    """Runs a job that begins with empty memories, takes some batches, and ends."""
    world.wait_until_published()
    with world.job(protocol=protocol, page_rows=7) as job:
        start(job)
        world.commit_at_random(dice, WAITING)
        world.wait_until_published()
        commit_while_asking(world, job, dice)
        for batch in cut(world.records_after(job), dice, 5):
            job.take(batch)
        while job.standing.vector != world.versions:
            world.wait_until_published()
            job.take(world.records_after(job))
    return job


def live(world: World, protocol: str, seed: int) -> list[OneView]:
    """A first state, two jobs one after the other, until nothing is left to do.

    The first job knows all groups from the first state; the second one must ask for them.
    """
    dice = random.Random(seed)
    world.publish()
    world.commit_at_random(dice, BEFORE)
    return [go_on(world, protocol, dice) for _ in range(2)]


@pytest.mark.parametrize(
    ("view", "protocol"),
    [("balance", "batched-sweep"), ("catalogue", "batched-sweep"), ("balance", "sweep")],
)
def test_every_state_is_right_over_a_restart(
    broker: LocalBroker, tmp_path: Path, topic: str, view: str, protocol: str
) -> None:
    with World(tmp_path, broker.bootstrap, topic, STORIES[view]) as world:
        jobs = live(world, protocol, 1)
        last = jobs[-1]
        assert isinstance(last.view, TreeView)
        assert world.assert_complete(last.tables) >= 2 * WAITING
        assert all(job.measures.queries for job in jobs), "a memory was not refilled"
        found = world.verdict(protocol)
        assert found.verdict == "valid", found.contradiction
        assert found.reached is not None
        assert found.reached.name == "complete-in-delivery-order"
        assert found.counts.compensated >= 5, "hardly anything was concurrent"


@pytest.mark.parametrize("view", STORIES)
def test_control_without_compensation_the_checker_writes_a_contradiction(
    broker: LocalBroker, tmp_path: Path, topic: str, view: str
) -> None:
    for seed in range(3):
        directory = tmp_path / str(seed)
        directory.mkdir()
        with World(directory, broker.bootstrap, f"{topic}-{seed}", STORIES[view]) as world:
            live(world, "naive", seed)
            found = world.verdict("naive")
        if found.verdict == "invalid":
            assert found.contradiction is not None
            assert found.contradiction.endswith("A contradiction.")
            return
    raise AssertionError("three runs without compensation, and nothing was wrong")


def test_the_first_state_is_right_while_the_sources_go_on(
    broker: LocalBroker, tmp_path: Path, topic: str
) -> None:
    """It is read in pages of three rows, between which rows come, change and go."""
    with World(tmp_path, broker.bootstrap, topic, STORIES["catalogue"]) as world:
        dice = random.Random(5)
        world.publish()
        world.commit_at_random(dice, BEFORE)
        world.wait_until_published()
        with world.job(protocol="batched-sweep", page_rows=3) as job:
            job.check()
            commit_while_asking(world, job, dice)
            job.prepare()
            assert job.measures.corrected > 3
            assert world.assert_complete(job.tables) == 0


def test_both_sides_of_a_full_join_change_in_one_global_transaction(
    broker: LocalBroker, tmp_path: Path, topic: str
) -> None:
    """An account that is new at both sources gets its balance at once, and disappears at once."""
    movement = (900, 99, "cash", Decimal("5.00"), datetime(2024, 5, 1, 12))
    payment = (900, 99, "bakery", Decimal("2.00"), date(2024, 5, 1))
    with World(tmp_path, broker.bootstrap, topic, STORIES["balance"]) as world:
        world.publish()
        with world.job(protocol="batched-sweep") as job:
            start(job)
            for count in (1, -1):
                part = GlobalPart(f"both {count}", frozenset(("ledger", "cards")))
                world.sources["ledger"].commit(("movements", movement, count), part=part)
                world.sources["cards"].commit(("payments", payment, count), part=part)
            world.wait_until_published()
            assert job.take(world.records_after(job)) == 2
            changes = job.tables.changes().filter(pl.col("account_id") == 99).collect()
            world.assert_complete(job.tables)
    assert sorted(changes.select("_position", "balance", "_count").iter_rows()) == [
        (1, Decimal("3.00"), 1),
        (2, Decimal("3.00"), -1),
    ]
