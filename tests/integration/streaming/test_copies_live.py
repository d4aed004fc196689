"""Live runs in which copies answer for sources: right at every position, and sources are not asked.

Every state is compared with DuckDB over the rows that the sources committed.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from infra.localbroker import LocalBroker
from protocols.errors import Unreachable, WrongUse
from tests.cases.stories import ONE_SOURCE
from tests.harness.cluster import InThisProcess
from tests.harness.records import cut
from tests.harness.world import OneView, World, start

ALL = ("a.r", "b.s", "c.u")
#: A group over an outer join: its operators ask for whole groups and for partners.
OUTER = (
    "SELECT r.t, COUNT(*) AS n, SUM(s.y) AS total"
    " FROM a.r r LEFT JOIN b.s s ON r.x = s.x GROUP BY r.t"
)


def commit(world: World, seed: int, transactions: int = 40) -> None:
    world.commit_at_random(random.Random(seed), transactions)
    world.wait_until_published()


def complete_copies(job: OneView, relations: int) -> None:
    """Does the work of quiet moments until all copies answer."""
    while len(job.measures.copies) < relations:
        job.running.tend()


def over_copies(world: World, copies: tuple[str, ...] = ALL, **given: Any) -> OneView:
    """A job that builds copies while updates come, and continues when no source answers."""
    commit(world, 1, 60)
    with world.job(copies=copies, page_rows=7, **given) as job:
        start(job)
        commit(world, 2)
        for batch in cut(world.records_after(job), random.Random(3), 3):
            job.take(batch)
        commit(world, 4)
        complete_copies(job, len(copies))
        for source in world.sources.values():
            if any(relation.startswith(f"{source.name}.") for relation in copies):
                source.stop_server()
        asked = job.measures.queries
        for seed in (5, 6):
            commit(world, seed)
            for batch in cut(world.records_after(job), random.Random(seed), 3):
                job.take(batch)
        if len(copies) == len(ALL):
            assert job.measures.queries == asked
        assert job.measures.answers_of_copies > 3
    return job


@pytest.mark.parametrize("protocol", ["batched-sweep", "sweep", "pipelined-sweep"])
def test_with_copies_of_all_relations_no_source_has_to_answer(world: World, protocol: str) -> None:
    job = over_copies(world, protocol=protocol)
    assert world.assert_complete(job.tables) > 100


@pytest.mark.parametrize("protocol", ["nested-sweep", "recompute"])
def test_protocols_that_show_fewer_states_show_right_ones(world: World, protocol: str) -> None:
    world.assert_right(over_copies(world, protocol=protocol).tables)


def test_some_relations_are_copied_and_the_others_asked(world: World) -> None:
    job = over_copies(world, ("b.s",), protocol="batched-sweep")
    assert world.assert_complete(job.tables) > 100


def test_operators_beyond_inner_joins_do_not_notice_who_answers(
    broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    with World(tmp_path, broker.bootstrap, topic) as world:
        world.story = type(world.story)(
            world.story.forms, OUTER, world.story.row, world.story.first
        )
        world.publish()
        job = over_copies(world, ("a.r", "b.s"), protocol="batched-sweep")
        assert world.assert_complete(job.tables) > 60


def test_executors_get_the_copies_and_ask_no_source(world: World) -> None:
    given: dict[str, Any] = {"executors": InThisProcess(3), "executor_rows": 1}
    job = over_copies(world, protocol="batched-sweep", **given)
    assert job.measures.batches_on_executors > 3
    assert world.assert_complete(job.tables) > 100


def test_after_a_restart_copies_are_made_again(world: World) -> None:
    over_copies(world, protocol="batched-sweep")
    for source in world.sources.values():
        source.restart_server()
    commit(world, 7)
    with world.job(copies=ALL, protocol="batched-sweep") as job:
        start(job)
        assert not job.measures.copies
        job.take(world.records_after(job))
        complete_copies(job, 3)
        commit(world, 8)
        job.take(world.records_after(job))
        world.assert_complete(job.tables)
    told = [line for line in world.reports if "answers for the source from now on" in line]
    assert len(told) == 6


def test_without_copies_a_silent_source_ends_the_job(world: World) -> None:
    """The control of the runs above, in which the sources are not missed."""
    with world.job(protocol="batched-sweep", patience_seconds=0.5) as job:
        start(job)
        for source in world.sources.values():
            source.stop_server()
        commit(world, 9)
        with pytest.raises(Unreachable):
            job.take(world.records_after(job))


def test_control_believing_a_copy_is_wrong(world: World) -> None:
    with pytest.raises(AssertionError, match="position"):
        world.assert_right(over_copies(world, protocol="naive").tables)


# -- refusals --------------------------------------------------------------------------------------


def test_a_relation_that_the_source_does_not_have_is_refused(world: World) -> None:
    with (
        world.job(copies=["b.sales"]) as job,
        pytest.raises(WrongUse, match=r"sources\.b\.keep\.sales: .*it has: s, unused"),
    ):
        job.check()


def test_another_word_than_those_known_is_refused(world: World) -> None:
    with pytest.raises(WrongUse, match=r"sources\.a\.keep\.r has to be one of ask, full"):
        world.job(copies=["a.r"], toml={'"full"': '"cached"'})


def test_protocols_that_count_on_fifo_get_no_copies(
    broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    with World(tmp_path, broker.bootstrap, topic, ONE_SOURCE) as world:
        world.publish()
        with (
            world.job(copies=["a.r"], protocol="eca") as job,
            pytest.raises(WrongUse, match="needs answers and updates"),
        ):
            job.check()
