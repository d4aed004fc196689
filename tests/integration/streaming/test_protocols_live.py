"""Every protocol through the job: real broker, query servers and Delta, no Spark.

The sources commit while the protocol asks, so that answers and updates interleave. Two judges: the
checker, which compares the trace of the run with the level that the protocol claims, and DuckDB,
which evaluates the view's SQL at every position shown.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from infra.localbroker import LocalBroker
from protocols.errors import WrongUse
from protocols.maintenance.registry import PROTOCOLS, Entry
from tests.cases.stories import KEYED, MIXED, ONE_SOURCE, Story
from tests.harness.records import cut
from tests.harness.world import OneView, World, start

#: Transactions before a view is created, between batches, and while its protocol asks.
_BEFORE, _BETWEEN, _MEANWHILE = 12, 18, 18
RIGHT = [name for name in PROTOCOLS if name != "naive"]


def story_for(entry: Entry) -> Story:
    """The most awkward story that the protocol can keep."""
    if entry.one_source:
        return ONE_SOURCE
    return KEYED if entry.needs_keys else MIXED


def commit_while_asking(world: World, job: OneView, dice: random.Random) -> None:
    """Makes the sources commit before and after some waves of questions, up to a limit."""
    ask, left = job.checked.sources.ask, [_MEANWHILE]

    def committing(questions: list[Any]) -> list[Any]:
        for _ in range(2):
            count = min(left[0], dice.randint(0, 3))
            left[0] -= count
            if count:
                world.commit_at_random(dice, count)
        return ask(questions)

    job.checked.sources.ask = committing  # type: ignore[method-assign]


def live(world: World, protocol: str, seed: int) -> OneView:
    """A complete run: three batches, with a restart before the last one."""
    dice = random.Random(seed)
    world.publish()
    world.commit_at_random(dice, _BEFORE)
    world.wait_until_published()
    with world.job(protocol=protocol) as job:
        start(job)
        world.commit_at_random(dice, _BETWEEN)
        world.wait_until_published()
        commit_while_asking(world, job, dice)
        for batch in cut(world.records_after(job), dice, 2):
            job.take(batch)
    world.wait_until_published()
    with world.job(protocol=protocol) as job:
        start(job)
        job.take(world.records_after(job))
    return job


@pytest.mark.parametrize("protocol", RIGHT)
def test_a_live_run_is_as_consistent_as_claimed(
    broker: LocalBroker, tmp_path: Path, topic: str, protocol: str
) -> None:
    story = story_for(PROTOCOLS[protocol])
    with World(tmp_path, broker.bootstrap, topic, story) as world:
        job = live(world, protocol, len(protocol))
        assert job.standing.vector == world.versions
        world.assert_right(job.tables)
        found = world.verdict(protocol)
        assert found.verdict == "valid", found.contradiction
        assert found.counts.compensated > 0, "nothing concurrent happened"


def test_control_the_uncompensated_protocol_is_caught(
    broker: LocalBroker, tmp_path: Path, topic: str
) -> None:
    verdicts = []
    for seed in range(3):
        directory = tmp_path / str(seed)
        directory.mkdir()
        with World(directory, broker.bootstrap, f"{topic}-{seed}") as world:
            live(world, "naive", seed)
            verdicts.append(world.verdict("naive").verdict)
        if "invalid" in verdicts:
            return
    raise AssertionError(f"three runs without compensation: {verdicts}")


@pytest.mark.parametrize(
    "protocol", [name for name, entry in PROTOCOLS.items() if entry.one_source]
)
def test_a_view_that_the_protocol_cannot_keep_is_refused_before_any_work(
    broker: LocalBroker, tmp_path: Path, topic: str, protocol: str
) -> None:
    with World(tmp_path, broker.bootstrap, topic) as world:
        world.publish()
        with world.job(protocol=protocol) as job, pytest.raises(WrongUse, match="cannot keep view"):
            job.check()
        assert not (tmp_path / "tables").exists()
