"""An idle job reports that its broker or a source is down, and how far it lags behind."""

from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from protocols.exchange.holdback import GlobalPart
from streaming.figures.measuring import Behind
from streaming.job import watching
from tests.harness.waiting import eventually
from tests.harness.world import OneView, World, start


@pytest.fixture(autouse=True)
def _looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(watching, "_SILENT_SECONDS", 0.1)


def said(world: World, what: str) -> int:
    return sum(what in line for line in world.reports)


def caught_up(job: OneView) -> bool:
    job.running.tend()
    job.running.settle()
    return set(job.measures.behind.values()) == {Behind(0, 0.0)}


def test_a_source_that_dies_beside_an_idle_view_is_said_once_and_its_return_too(
    world: World,
) -> None:
    with world.job() as job:
        start(job)
        world.sources["b"].stop_server()
        eventually(lambda: said(world, "source b does not answer since"))
        world.sources["b"].restart_server()
        eventually(lambda: said(world, "source b answers again after"))
    assert said(world, "source b") == 2
    assert said(world, "source a") == said(world, "the broker") == 0


def test_a_broker_that_dies_beside_an_idle_view_is_said_once_and_its_return_too(
    mortal_broker: LocalBroker, tmp_path: Path, topic: str
) -> None:
    gone = f"the broker at {mortal_broker.bootstrap} does not answer since"
    with World(tmp_path, mortal_broker.bootstrap, topic) as world:
        world.publish()
        with world.job() as job:
            start(job)
            mortal_broker.kill()
            eventually(lambda: said(world, gone))
            mortal_broker.restart()
            eventually(lambda: said(world, "answers again after"))
    assert said(world, "the broker") == 2


def test_how_far_a_view_is_behind_is_known_until_it_has_caught_up(world: World) -> None:
    with world.job() as job:
        start(job)
        eventually(lambda: caught_up(job))
        world.sources["a"].commit(("r", (101, 1, "p"), 1), ("r", (102, 1, "p"), 1))
        world.wait_until_published()
        eventually(lambda: job.measures.behind["a"].records == 2)
        job.take(world.records_after(job))
        eventually(lambda: caught_up(job))


def test_what_is_held_back_for_long_is_said_while_the_job_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_HELD_SECONDS", 0.2)
    part = GlobalPart("g", frozenset("ab"))
    with world.job() as job:
        start(job)
        world.sources["a"].commit(("r", (101, 1, "p"), 1), part=part)
        world.wait_until_published()
        job.take(world.records_after(job))
        eventually(lambda: said(world, "global transaction 'g' has the part of a (version 2)"))
        assert job.measures.behind["a"].records == 1
        world.sources["b"].commit(("s", (1, 5), 1), part=part)
        world.wait_until_published()
        job.take(world.records_after(job))
        eventually(lambda: said(world, "view v holds nothing back any more"))
    assert said(world, "global transaction") == 1
