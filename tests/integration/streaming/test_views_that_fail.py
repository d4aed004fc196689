"""One view of a job fails: it is named at once, and the others are complete.

Every part is real except Spark, and so is every failure. The views that go on are compared at every
position with DuckDB. In the control the failure of a view is let through.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
from confluent_kafka import Producer

from protocols.algebra.framelog import FrameLog
from protocols.errors import SourceViolation, ViewsweepError
from protocols.exchange.holdback import GlobalPart
from sources.simulated.database import SourceDatabase
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.topics import CLIENT_LOG
from streaming.job import views as failing
from tests.cases.stories import KEYED
from tests.harness.command import Command, running
from tests.harness.records import whole_topic
from tests.harness.severalviews import ALL, LEFT, LIKE_ALL, RIGHT, Kept, Views
from tests.harness.truth import Oracle
from tests.harness.waiting import eventually, patience
from tests.harness.world import OneView, Source, World, start
from tests.integration.streaming.test_several_views import commit
from warehouse.definition import stored_view
from warehouse.tables import ViewTables

pytestmark = pytest.mark.world(story=KEYED, transactions=40)


def skip_a_version(source: Source) -> None:
    """Publishes a record that is a version too far ahead, as if the topic had lost one."""
    source.wait_until_published()
    source.stop_publisher()
    last = whole_topic(source.bootstrap, source.topic)["value"][-1]
    form = orjson.loads(last)
    version = source.database.version + 2
    form["source"]["version"], form["transaction"]["id"] = version, f"{source.name}:{version}"
    form["transaction"] |= {"total_order": 1, "event_count": 1}
    del form["transaction"]["history"]
    producer = Producer({"bootstrap.servers": source.bootstrap}, logger=CLIENT_LOG)
    producer.produce(source.topic, orjson.dumps(form), partition=0)
    assert producer.flush(patience()) == 0


# ------------------------------------------------------------------------------ ways to fail


@dataclass
class Failing:
    """A job over several views while one of them fails."""

    world: World
    views: Views
    job: OneView

    def commit_and_take(self, seed: int, *sources: str) -> None:
        """Commits at these sources, or at all; the job takes all that is published."""
        dice = random.Random(seed)
        for source in sources or tuple("abc"):
            self.world.sources[source].commit_at_random(dice, 8)
        for source in sources or tuple("abc"):
            self.world.sources[source].wait_until_published()
        self.views.take_all(self.job, batches=3, seed=seed)


def another_job_commits(at: Failing) -> None:
    """A second job keeps `left` from now on."""
    commit(at.world, 20)
    with at.views.job("left") as other:
        start(other)
        at.views.take_all(other)
        at.views.assert_complete(other)


def changes_are_gone(at: Failing) -> None:
    """`current` of `left` can be brought no further."""
    lost = next((at.world.directory / "tables/left/changes").glob("*.parquet"))
    lost.rename(lost.with_suffix(".lost"))


def topic_has_a_gap(at: Failing) -> None:
    """The topic of c, which only `left` reads, lacks a version."""
    skip_a_version(at.world.sources["c"])


def source_is_away(at: Failing) -> None:
    """The query server of c, which only `left` reads, does not answer."""
    at.world.sources["c"].stop_server()
    commit(at.world, 21)


def source_is_reset(at: Failing) -> None:
    """Behind the address of c, which only `left` reads, an empty database answers."""
    source = at.world.sources["c"]
    source.stop_server()
    empty = SourceDatabase.create(at.world.directory / "empty.duckdb", "c", source.catalog, {})
    port = int(source.address.rpartition(":")[2])
    source.server = QueryServer(empty, Endpoint(port=port), source.topic)


def protocol_refuses(at: Failing) -> None:
    """The protocol of `left` cannot keep the parts of a global transaction together."""
    part = GlobalPart("g", frozenset("ab"))
    at.world.sources["a"].commit(("r", (101, 1, "p"), 1), part=part)
    at.world.sources["b"].commit(("s", (102, 1, 1), 1), part=part)


@dataclass(frozen=True)
class Case:
    """A failure of the view `left`, with the SQL and the protocols of both views."""

    fail: Callable[[Failing], None]
    says: str
    left: Kept
    right: Kept
    #: The sources that go on.
    sources: str = "abc"


OVER_ALL = Kept("left", ALL)
OVER_AB = Kept("right", LEFT)
CASES = {
    case.fail.__name__: case
    for case in (
        Case(another_job_commits, "another job has committed", OVER_ALL, Kept("right", LIKE_ALL)),
        Case(changes_are_gone, "is gone", Kept("left", LEFT), Kept("right", RIGHT)),
        Case(topic_has_a_gap, "what comes between is missing", OVER_ALL, OVER_AB, "ab"),
        Case(source_is_away, "Tried for 2 s", OVER_ALL, OVER_AB, "ab"),
        Case(source_is_reset, "was seen before", OVER_ALL, OVER_AB, "ab"),
        Case(
            protocol_refuses,
            "applies transactions atomically",
            Kept("left", ALL, "strobe"),
            OVER_AB,
        ),
    )
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def let_it_fail(at: Failing, case: Case) -> None:
    """Lets `left` fail, and the sources go on until the job has noticed."""
    at.commit_and_take(10)
    case.fail(at)

    def noticed() -> bool:
        at.job.running.tend()
        at.job.running.settle()
        return at.job.failure is not None

    at.commit_and_take(11, *case.sources)
    eventually(noticed)


def test_the_other_view_is_complete_and_the_failed_one_is_named(world: World, case: Case) -> None:
    views = Views(world, case.left, case.right, patience_seconds=2.0)
    with views.job() as job:
        start(job)
        at = Failing(world, views, job)
        let_it_fail(at, case)
        left, right = job.status().views
        assert left.failed is not None
        assert case.says in left.failed
        assert right.failed is None
        [said] = [line for line in world.reports if "view left failed" in line]
        assert left.failed in said
        assert "the others go on" in said
        stood, before = left.position, right.position
        at.commit_and_take(12, *case.sources)
        job.running.finish()
        left, right = job.status().views
        assert left.position == stood, "nothing of it is installed any more"
        assert right.position > before
        assert isinstance(job.failure, ViewsweepError)
        assert (job.failure.exit_code, str(job.failure)) == (3, left.failed)
        assert views.assert_complete(job, "right") == {"right": right.position}


def test_control_without_isolation_the_other_view_stands_still(
    world: World, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def let_through(_views: failing.Views, _view: Any, error: BaseException) -> None:
        raise error

    monkeypatch.setattr(failing.Views, "_fail", let_through)
    views = Views(world, case.left, case.right, patience_seconds=2.0)
    with views.job() as job:
        start(job)
        with pytest.raises(ViewsweepError, match=case.says):
            let_it_fail(Failing(world, views, job), case)


# -------------------------------------------------------------------------------- afterwards


def test_no_update_is_kept_for_a_failed_view(world: World) -> None:
    views = Views(world, OVER_ALL, OVER_AB)
    with views.job() as job:
        start(job)
        at = Failing(world, views, job)
        let_it_fail(at, CASES["topic_has_a_gap"])
        at.commit_and_take(12, "a", "b")
        held = {str(relation): log for relation, log in job.running._reading.received.logs.items()}
        assert set(held) == {"a.r", "b.s", "c.u"}
        for log in held.values():
            assert isinstance(log, FrameLog)
            assert log.rows() is None


def test_the_last_view_that_fails_ends_the_job_with_the_first_error(world: World) -> None:
    views = Views(world, OVER_ALL, OVER_AB)
    with views.job() as job:
        start(job)
        at = Failing(world, views, job)
        let_it_fail(at, CASES["topic_has_a_gap"])
        skip_a_version(world.sources["a"])
        with pytest.raises(SourceViolation, match=f"topic {world.sources['c'].topic}"):
            views.take_all(job)
    last = world.reports[-1]
    assert last.startswith("view right failed, and no view is left: ")
    assert f"topic {world.sources['a'].topic}" in last


def test_a_fault_of_a_source_that_all_views_read_ends_the_job(world: World) -> None:
    views = Views(world, OVER_ALL, OVER_AB)
    with views.job() as job:
        start(job)
        skip_a_version(world.sources["b"])
        with pytest.raises(SourceViolation, match=f"topic {world.sources['b'].topic}"):
            views.take_all(job)
        assert [view.failed is not None for view in job.status().views] == [True, True]
    assert world.reports[-1].startswith("view left and right failed, and no view is left: ")


def test_the_next_start_goes_on_with_the_failed_view(world: World) -> None:
    case = CASES["another_job_commits"]
    views = Views(world, case.left, case.right)
    with views.job() as job:
        start(job)
        let_it_fail(Failing(world, views, job), case)
    with views.job() as job:
        start(job)
        Failing(world, views, job).commit_and_take(13)
        found = views.assert_complete(job)
        assert found["left"] > 20


# ------------------------------------------------------------------------------- the command

#: A view `w` beside `v`, which reads c as well.
TWO = {"[job]": '[views.w]\nsql = "w.sql"\n[job]'}
OVER_AB_ONLY = "SELECT r.id, s.y FROM a.r r JOIN b.s s ON r.x = s.x"


def test_the_command_ends_with_the_failure_when_the_others_are_done(
    command: Command, tmp_path: Path
) -> None:
    """Both views begin; then the topic of c has a gap, and only `v` reads it."""
    world = command.world
    (tmp_path / "w.sql").write_text(OVER_AB_ONLY)
    assert command.run(toml=TWO).code == 0
    skip_a_version(world.sources["c"])
    world.sources["a"].commit(("r", (101, 1, "p"), 1))
    world.sources["a"].wait_until_published()
    summary = tmp_path / "summary.json"
    ended = command.run("--once", "--summary", str(summary), toml=TWO)
    assert ended.code == 3
    assert f"topic {world.sources['c'].topic}" in ended.message
    assert any(line.startswith("view v failed, and the others go on") for line in ended.lines)
    told = orjson.loads(summary.read_bytes())["views"]
    assert told["w"]["failed"] is None
    assert ended.message.endswith(told["v"]["failed"])
    current = pl.read_delta(str(tmp_path / "tables/w/current"))
    truth = Oracle(world.sources.values(), OVER_AB_ONLY).at(world.versions)
    assert Counter({tuple(row): count for *row, count in current.iter_rows()}) == truth
    assert (101, 1) in truth


def _positions(world: World) -> Callable[[], int]:
    """The position of `w` in its table."""
    tables = ViewTables(world.directory / "tables", stored_view(world.directory / "tables/w"))
    return lambda: ViewTables(tables.directory.parent, tables.view).standing().position


@pytest.mark.world
@pytest.mark.parametrize("ends", ["Ctrl-C", "its last view"])
def test_under_spark_a_job_with_a_failed_view_goes_on_to_its_end(world: World, ends: str) -> None:
    (world.directory / "w.sql").write_text(OVER_AB_ONLY)
    with running(world, toml=TWO) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        next(line for line in lines if "keeping it" in line)
        skip_a_version(world.sources["c"])
        said = next(line for line in lines if "failed, and" in line)
        assert said.startswith("view v failed, and the others go on")
        position = _positions(world)
        before = position()
        world.sources["a"].commit(("r", (101, 1, "p"), 1))
        eventually(lambda: position() > before)
        if ends == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
        else:
            skip_a_version(world.sources["b"])
        rest = process.stderr.read()
        assert process.wait(patience()) == 3
    assert "Traceback" not in rest
    [message] = [line for line in rest.splitlines() if line.startswith("viewsweep: ")]
    assert f"topic {world.sources['c'].topic}" in message
    assert ("view w failed, and no view is left" in rest) == (ends == "its last view")
    assert ("view w: stopped at position" in rest) == (ends == "Ctrl-C")
