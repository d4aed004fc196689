"""A batch swept in slices shows the same states, wherever its slices are swept.

The slices are swept in this process, where many cases cost little, and by the executors of a real
Spark. Meanwhile the sources commit, so answers contain updates that the driver has not received and
an executor must read by itself. Every state is compared with DuckDB.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import polars as pl
import pytest
from pyspark.sql import SparkSession

from protocols.algebra.frame import Frame
from protocols.errors import Unreachable, ViewsweepError
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.questions import Snapshot
from protocols.exchange.slices import Slice
from protocols.maintenance import batched_sweep
from protocols.views.view import Atom
from streaming.job.slices import Batch, Swept
from streaming.job.sweeping import Cluster
from streaming.settings.configuration import read_configuration
from streaming.spark import executors
from streaming.spark.executors import Executors
from streaming.spark.sparkjob import spark_session
from streaming.stopping import Stopped
from tests.harness.cluster import InThisProcess
from tests.harness.records import cut
from tests.harness.waiting import eventually
from tests.harness.world import OneView, World, start

pytestmark = pytest.mark.world(transactions=60)

GLOBAL = GlobalPart("g", frozenset("ab"))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_session(lambda _: None)
    yield session
    session.stop()


@dataclass
class Meanwhile:
    """Makes the sources commit after a batch is cut and before it is swept."""

    cluster: Cluster
    happens: Callable[[], None]
    slices_swept: list[int] = field(default_factory=list)

    def slices(self, rows: int) -> int:
        return self.cluster.slices(rows)

    def sweep(self, batch: Batch, slices_: Sequence[Slice]) -> list[Swept]:
        self.happens()
        self.slices_swept.append(len(slices_))
        return self.cluster.sweep(batch, slices_)

    def cancel(self, view: str) -> None:
        self.cluster.cancel(view)


def commit(world: World, seed: int, transactions: int = 45) -> None:
    world.commit_at_random(random.Random(seed), transactions)
    world.wait_until_published()


def sweep_all(world: World, cluster: Cluster, seed: int, batches: int) -> OneView:
    """A job that sweeps some random updates on a cluster while the sources commit."""
    moments = iter(range(1000, 2000))
    while_it_sweeps = Meanwhile(cluster, lambda: commit(world, next(moments), 5))
    with world.job(protocol="batched-sweep", executors=while_it_sweeps, executor_rows=1) as job:
        start(job)
        commit(world, seed)
        for batch in cut(world.records_after(job), random.Random(seed), batches):
            job.take(batch)
        assert while_it_sweeps.slices_swept, "nothing was swept elsewhere"
        assert job.measures.batches_on_executors == len(while_it_sweeps.slices_swept)
        assert job.measures.corrected > 0, "nothing concurrent happened"
    return job


@pytest.mark.parametrize(("seed", "number"), [(0, 1), (1, 2), (2, 3), (3, 7)])
def test_slices_of_any_batch_make_a_complete_view(world: World, seed: int, number: int) -> None:
    job = sweep_all(world, InThisProcess(number), seed, batches=1 + seed)
    assert world.assert_complete(job.tables) > 30


def test_global_transactions_keep_their_one_position_in_slices(world: World) -> None:
    a, b = (world.sources[name] for name in "ab")
    with world.job(protocol="batched-sweep", executors=InThisProcess(3), executor_rows=1) as job:
        start(job)
        commit(world, 4, 20)
        a.commit(("r", (101, 1, "p"), 1), part=GLOBAL)
        b.commit(("s", (1, 2), 1), part=GLOBAL)
        commit(world, 5, 20)
        job.take(world.records_after(job))
        assert job.measures.batches_on_executors == 1
        progress = job.tables.progress()
        assert progress.filter(pl.len().over("position") > 1).height == 2
        assert world.assert_complete(job.tables) > 30


def test_what_two_atoms_of_a_slice_ask_alike_goes_out_once(world: World) -> None:
    sql = (
        "SELECT r.id, one.y, two.y AS other FROM a.r r"
        " JOIN b.s one ON r.x = one.x JOIN b.s two ON r.x = two.x"
    )
    given: dict[str, Any] = {"sql": sql, "executors": InThisProcess(1), "executor_rows": 1}
    with world.job(protocol="batched-sweep", **given) as job:
        start(job)
        world.sources["a"].commit(("r", (900, 1, "p"), 1))
        world.wait_until_published()
        job.take(world.records_after(job))
        figures: Any = job.status().to_json()
        assert sum(each["queries"] for each in figures["executors"].values()) == 1
        assert job.tables.progress()["questions"].list.len().sum() == 2


def test_a_batch_below_the_threshold_stays_with_the_driver(world: World) -> None:
    cluster = InThisProcess(2)
    with world.job(protocol="batched-sweep", executors=cluster, executor_rows=10_000) as job:
        start(job)
        commit(world, 6)
        job.take(world.records_after(job))
        assert job.measures.batches_on_executors == 0
        assert world.assert_complete(job.tables) > 30


def test_the_threshold_counts_changed_rows_and_zero_means_never(world: World) -> None:
    with world.job(protocol="batched-sweep", executors=InThisProcess(2), executor_rows=2) as job:
        start(job)
        a = world.sources["a"]
        a.commit(("r", (101, 1, "p"), 1))
        world.wait_until_published()
        job.take(world.records_after(job))
        assert job.measures.batches_on_executors == 0
        a.commit(("r", (102, 1, "p"), 1), ("r", (103, 1, "p"), 1))
        world.wait_until_published()
        job.take(world.records_after(job))
        assert job.measures.batches_on_executors == 1
    with world.job(protocol="batched-sweep", executors=InThisProcess(2), executor_rows=0) as job:
        start(job)
        commit(world, 7)
        job.take(world.records_after(job))
        assert job.measures.batches_on_executors == 0


def test_control_slices_without_compensation_are_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_told(_mailbox: Any, atom: Atom, _keys: Any, found: Snapshot[Frame], *_: int) -> Frame:
        return found.rows.select(atom.renaming)

    monkeypatch.setattr(batched_sweep, "over_span", as_told)
    job = sweep_all(world, InThisProcess(2), 2, batches=2)
    with pytest.raises(AssertionError, match="position"):
        world.assert_complete(job.tables)


def test_a_source_that_is_away_is_named_and_nothing_of_the_batch_is_there(world: World) -> None:
    cluster = Meanwhile(InThisProcess(2), world.sources["b"].stop_server)
    changes: dict[str, Any] = {"executor_rows": 1, "patience_seconds": 0.5}
    with world.job(protocol="batched-sweep", executors=cluster, **changes) as job:
        start(job)
        commit(world, 8)
        with pytest.raises(Unreachable, match="source b"):
            job.take(world.records_after(job))
    world.sources["b"].restart_server()
    world.go_on(protocol="batched-sweep")


# -- beside a sweep ------------------------------------------------------------------------------


@dataclass
class Slow:
    """Sweeps nothing before it is released; a cancelled view is not swept at all."""

    cluster: Cluster
    #: Views whose sweeps fail at once.
    broken: frozenset[str] = frozenset()
    begun: set[str] = field(default_factory=set)
    let_go: threading.Event = field(default_factory=threading.Event)
    given_up: set[str] = field(default_factory=set)

    def slices(self, rows: int) -> int:
        return self.cluster.slices(rows)

    def sweep(self, batch: Batch, slices_: Sequence[Slice]) -> list[Swept]:
        name = batch.view.name
        self.begun.add(name)
        if name in self.broken:
            raise Unreachable(f"view {name}: nobody sweeps it")
        assert self.let_go.wait(60)
        if name in self.given_up:
            raise ViewsweepError("given up")
        return self.cluster.sweep(batch, slices_)

    def cancel(self, view: str) -> None:
        self.given_up.add(view)
        self.let_go.set()


def two_views(world: World, executors: Cluster, other: str) -> "closing[OneView]":
    """A job with v, which executors sweep, and w, the same view under protocol `other`."""
    known = read_configuration(world.write_configuration(executor_rows=1))
    settings = known.view("v").with_protocol("batched-sweep")
    views = [settings, replace(settings, name="w").with_protocol(other)]
    return closing(OneView(known, views, world.reports.append, executors))


def sweepers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("executors for")]


def test_another_view_is_swept_and_committed_while_executors_are_slow(world: World) -> None:
    slow = Slow(InThisProcess(2))
    with two_views(world, slow, "sweep") as job, ThreadPoolExecutor(1) as threads:
        start(job)
        commit(world, 10)
        left, right = job.views
        taken = threads.submit(job.take, world.records_after(job))
        eventually(lambda: right.committed.vector == world.versions, "w is committed")
        assert slow.begun == {"v"}
        assert left.committed.position == 0
        assert not taken.done(), "a micro-batch is done when all views are"
        slow.let_go.set()
        taken.result(60)
        for view in job.views:
            assert world.assert_complete(view.tables) > 30
        assert job.measures.batches_on_executors == 1


def test_two_views_are_swept_by_executors_at_once(world: World) -> None:
    slow = Slow(InThisProcess(2))
    with two_views(world, slow, "batched-sweep") as job, ThreadPoolExecutor(1) as threads:
        start(job)
        commit(world, 11)
        taken = threads.submit(job.take, world.records_after(job))
        eventually(lambda: slow.begun == {"v", "w"}, "both are at work")
        slow.let_go.set()
        taken.result(60)
        for view in job.views:
            assert world.assert_complete(view.tables) > 30
        assert job.measures.batches_on_executors == 2


def test_a_job_that_is_stopped_gives_up_what_executors_sweep(world: World) -> None:
    slow = Slow(InThisProcess(2))
    with two_views(world, slow, "sweep") as job, ThreadPoolExecutor(1) as threads:
        start(job)
        commit(world, 12)
        taken = threads.submit(job.take, world.records_after(job))
        eventually(lambda: slow.begun == {"v"}, "executors are at work")
        job.stopping.set()
        with pytest.raises(Stopped):
            taken.result(60)
        job.close()
        assert slow.given_up == {"v"}
        assert not sweepers()
    world.go_on(protocol="batched-sweep")


def test_executors_that_fail_for_one_view_leave_those_of_the_others_at_work(world: World) -> None:
    slow = Slow(InThisProcess(2), frozenset("v"))
    with two_views(world, slow, "batched-sweep") as job, ThreadPoolExecutor(1) as threads:
        start(job)
        commit(world, 13)
        taken = threads.submit(job.take, world.records_after(job))
        eventually(lambda: job.views[0].failed == "view v: nobody sweeps it", "v has failed")
        assert slow.begun == {"v", "w"}
        slow.let_go.set()
        taken.result(60)
        assert isinstance(job.failure, Unreachable)
        assert world.assert_complete(job.views[1].tables) > 30
        assert slow.given_up == set()


# -- Spark -----------------------------------------------------------------------------------------


def test_executors_of_spark_show_what_the_driver_shows(world: World, spark: SparkSession) -> None:
    """Two views take the same batches; executors sweep only one of them."""
    moments = iter(range(1000, 2000))
    cluster = Meanwhile(Executors(lambda: spark), lambda: commit(world, next(moments), 5))
    other = world.write_configuration(executor_rows=0, toml={'"tables"': '"others"'})
    with (
        world.job(read_configuration(other), protocol="batched-sweep", executors=cluster) as driver,
        world.job(protocol="batched-sweep", executors=cluster, executor_rows=1) as on_executors,
    ):
        start(driver)
        start(on_executors)
        commit(world, 3)
        for batch in cut(world.records_after(driver), random.Random(3), 3):
            assert driver.take(batch) == on_executors.take(batch)
        assert min(cluster.slices_swept) == 2
        assert on_executors.measures.corrected > 0, "nothing concurrent happened"
    assert changes_by_position(driver) == changes_by_position(on_executors)
    assert world.assert_complete(on_executors.tables) > 30
    assert_valid_and_counted(world, on_executors)


def changes_by_position(job: OneView) -> dict[int, list[tuple[Any, ...]]]:
    """The changes of each position, sorted."""
    rows = job.tables.changes().collect().partition_by("_position", as_dict=True)
    return {int(position): sorted(part.rows(), key=repr) for (position,), part in rows.items()}


def assert_valid_and_counted(world: World, job: OneView) -> None:
    """Checks that the trace is complete, and that `progress` has the executors' questions."""
    found = world.verdict("batched-sweep")
    assert found.verdict == "valid", found
    figures: Any = job.status().to_json()
    asked = sum(each["queries"] for each in figures["executors"].values())
    assert job.tables.progress()["questions"].list.len().sum() == asked > 0
    batches = figures["executor_batches"]
    assert sum(each["positions"] for each in batches) == figures["updates"]
    for each in batches:
        spent = [(piece["ready"], piece["seconds"]) for piece in each["slices"]]
        assert all(0 < ready < seconds < each["seconds"] for ready, seconds in spent)


def test_control_executors_of_spark_without_compensation_are_caught(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = executors.task

    def uncompensated(shared: Any) -> executors.Task:
        # A function defined in here is sent to the executor, and spoils the protocol there.
        def spoilt(batches: Any) -> Any:
            from protocols.maintenance import batched_sweep

            def as_answered(_mailbox: Any, atom: Any, _keys: Any, found: Any, *_: Any) -> Any:
                return found.rows.select(atom.renaming)

            with mock.patch.object(batched_sweep, "over_span", as_answered):
                yield from task(shared)(batches)

        return spoilt

    monkeypatch.setattr(executors, "task", uncompensated)
    job = sweep_all(world, Executors(lambda: spark), 2, batches=2)
    with pytest.raises(AssertionError, match="position"):
        world.assert_complete(job.tables)


def test_an_error_on_an_executor_is_the_error_of_the_job(world: World, spark: SparkSession) -> None:
    cluster = Meanwhile(Executors(lambda: spark), world.sources["b"].stop_server)
    changes: dict[str, Any] = {"executor_rows": 1, "patience_seconds": 0.5}
    with world.job(protocol="batched-sweep", executors=cluster, **changes) as job:
        start(job)
        commit(world, 8)
        with pytest.raises(Unreachable, match="source b"):
            job.take(world.records_after(job))


def test_an_executor_that_breaks_names_the_positions_and_the_way_out(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaking(_shared: Any) -> executors.Task:
        def breaks(_batches: Any) -> Any:
            raise ModuleNotFoundError("No module named 'streaming'")

        return breaks

    monkeypatch.setattr(executors, "task", breaking)
    with world.job(
        protocol="batched-sweep", executors=Executors(lambda: spark), executor_rows=1
    ) as job:
        start(job)
        commit(world, 9)
        with pytest.raises(ViewsweepError, match=r"positions 1 to .*No module.*executor_rows = 0"):
            job.take(world.records_after(job))


def test_a_job_that_is_stopped_ends_what_spark_does_for_it(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleeping(_shared: Any) -> executors.Task:
        def sleeps(_batches: Any) -> Any:
            time.sleep(600)
            yield

        return sleeps

    monkeypatch.setattr(executors, "task", sleeping)
    at_work = spark.sparkContext.statusTracker().getActiveJobsIds
    cluster = Executors(lambda: spark)
    with (
        world.job(protocol="batched-sweep", executors=cluster, executor_rows=1) as job,
        ThreadPoolExecutor(1) as threads,
    ):
        start(job)
        commit(world, 14)
        taken = threads.submit(job.take, world.records_after(job))
        eventually(lambda: bool(at_work()), "Spark is at work")
        job.stopping.set()
        with pytest.raises(Stopped):
            taken.result(60)
        job.close()
        assert not sweepers()
        eventually(lambda: not at_work(), "Spark has given it up")
    monkeypatch.undo()
    world.go_on(protocol="batched-sweep", executors=cluster, executor_rows=1)
