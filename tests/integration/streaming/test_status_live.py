"""`job.status()` of a job over real parts, asked from another thread than the job's."""

import random
import threading

from tests.harness.waiting import eventually
from tests.harness.world import World, start


def commit(world: World, seed: int, transactions: int = 12) -> None:
    world.commit_at_random(random.Random(seed), transactions)
    world.wait_until_published()


def test_a_status_is_there_before_there_is_anything_to_say(world: World) -> None:
    with world.job(protocol="batched-sweep") as job:
        status = job.status()
        assert (status.phase, status.sources, status.views) == ("checking", (), ())
        job.check()
        assert job.status().views == ()


def test_a_status_says_how_far_everything_is(world: World) -> None:
    commit(world, 1)
    with world.job(protocol="batched-sweep") as job:
        start(job)
        commit(world, 2)
        job.take(world.records_after(job))
        status = job.status()
        [view] = status.views
        assert (view.name, view.protocol) == ("v", "batched-sweep")
        assert dict(view.vector) == world.versions
        assert view.position == job.tables.standing().position > 0
        assert (view.backlog, view.at_work, view.held_back) == (0, 0, None)
        assert view.rows == sum(world.oracle().at(world.versions).values())
        assert view.committed_at is not None
        assert {source.name: source.received for source in status.sources} == world.versions
        assert status.waits == ()
        eventually(lambda: job.status().behind == "caught up")
        eventually(lambda: all(source.reachable for source in job.status().sources))


def test_a_status_says_that_a_source_is_silent_and_what_waits_for_it(world: World) -> None:
    commit(world, 1)
    with world.job(protocol="batched-sweep") as job:
        start(job)
        silent = world.sources["b"]
        silent.stop_server()
        commit(world, 2)
        batch = threading.Thread(target=lambda: job.take(world.records_after(job)))
        batch.start()
        eventually(lambda: any("b" in wait.words for wait in job.status().waits))
        [view] = job.status().views
        assert view.backlog > 0
        assert view.at_work == 1
        eventually(lambda: [s.name for s in job.status().sources if s.reachable is False] == ["b"])
        silent.restart_server()
        batch.join()
        assert job.status().views[0].backlog == 0
        assert job.status().waits == ()
        world.assert_complete(job.tables)
