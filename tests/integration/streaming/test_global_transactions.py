"""Global transactions through the job: one position for all parts, over batches and restarts.

The sources a and b commit two of them in opposite orders, so that no state between them is legal.
b's parts come a batch after a's. Everything is real except Spark; every visible state is compared
with DuckDB, and the checker judges the trace.
"""

import polars as pl
import pytest
from deltalake import DeltaTable

from protocols.checking.checker import check
from protocols.checking.tracereading import read_trace
from protocols.errors import SourceViolation
from protocols.exchange.holdback import GlobalPart
from protocols.maintenance.registry import PROTOCOLS
from tests.cases.stories import KEYED
from tests.harness.world import OneView, World, start
from warehouse.order import order_from_note

pytestmark = pytest.mark.world(story=KEYED)

G, H = (GlobalPart(name, frozenset("ab")) for name in "gh")
#: Its partner has no relation in the view, so it does not wait.
ALONE = GlobalPart("alone", frozenset(["c", "elsewhere"]))


def parts_at_a(world: World) -> None:
    """a: local, g, h, local. b and c: local ones."""
    a, b, c = (world.sources[name] for name in "abc")
    a.commit(("r", (101, 1, "p"), 1))
    a.commit(("r", (102, 1, "p"), 1), part=G)
    b.commit(("s", (101, 1, 1), 1))
    a.commit(("r", (101, 1, "p"), -1), ("r", (103, 1, "p"), 1), part=H)
    a.commit(("r", (104, 1, "p"), 1))
    c.commit(("u", (2, "m"), 1), part=ALONE)
    world.wait_until_published()


def parts_at_b(world: World) -> None:
    """b: local, h, local, g, local."""
    b = world.sources["b"]
    b.commit(("s", (102, 1, 2), 1))
    b.commit(("s", (1, 1, 1), -1), part=H)
    b.commit(("s", (103, 1, 1), 1))
    b.commit(("s", (104, 1, 1), 1), ("s", (105, 1, 2), 1), part=G)
    b.commit(("s", (106, 1, 1), 1))
    world.wait_until_published()


def assert_valid(world: World, job: OneView, protocol: str) -> None:
    """Checks that four parts and the local transaction between two of them have one position."""
    assert job.standing.vector == world.versions
    world.assert_right(job.tables)
    group = job.tables.progress().filter(pl.len().over("position") > 1)
    assert group["position"].n_unique() == 1
    assert group.select("source", "version").rows() == [("a", 3), ("a", 4), *parts_of_b()]
    commits = DeltaTable(job.tables.directory / "changes").history()
    notes = [commit["viewsweep/order"] for commit in commits if "viewsweep/order" in commit]
    orders = [order for order, _ in map(order_from_note, notes)]
    assert any(
        order.version[order.position == group["position"][0]].tolist() == [3, 4, 4, 5, 6]
        for order in orders
    )
    with world.trace(protocol).open("rb") as lines:
        found = check(read_trace(lines), PROTOCOLS[protocol].level)
    assert found.verdict == "valid", found.contradiction


def parts_of_b() -> list[tuple[str, int]]:
    return [("b", 4), ("b", 5), ("b", 6)]


def assert_waits(world: World, job: OneView) -> None:
    """Checks that a's parts and everything after them wait; the offset is before them."""
    assert job.standing.vector["a"] <= 2
    behind = world.records_after(job).filter(pl.col("topic") == world.sources["a"].topic)
    assert b'"id":"g"' in b"".join(behind["value"].to_list())
    world.assert_right(job.tables)


@pytest.mark.parametrize("protocol", ["batched-sweep", "g-strobe"])
def test_parts_wait_for_their_partners_over_batches(world: World, protocol: str) -> None:
    with world.job(protocol=protocol) as job:
        start(job)
        parts_at_a(world)
        first = world.records_after(job)
        job.take(first)
        assert_waits(world, job)
        parts_at_b(world)
        # Like Spark, only new records.
        second = world.records_after(job)
        job.take(second.join(first, on=("topic", "offset"), how="anti"))
        assert_valid(world, job, protocol)


@pytest.mark.parametrize(
    ("protocol", "checkpoint"), [("sweep", True), ("g-strobe", True), ("nested-sweep", False)]
)
def test_parts_wait_for_their_partners_over_a_restart(
    world: World, protocol: str, checkpoint: bool
) -> None:
    with world.job(protocol=protocol) as job:
        start(job)
        parts_at_a(world)
        first = world.records_after(job)
        job.take(first)
        assert_waits(world, job)
    with world.job(protocol=protocol) as job:
        start(job)
        assert job.take(first) == 0
        assert_waits(world, job)
    parts_at_b(world)
    with world.job(protocol=protocol) as job:
        start(job)
        batch = world.records_after(job)
        if checkpoint:
            # Spark has delivered a's parts before and does not repeat them, so the job does.
            job.take(first)
            batch = batch.join(first, on=("topic", "offset"), how="anti")
            assert world.sources["a"].topic not in batch["topic"].to_list()
        job.take(batch)
        assert_valid(world, job, protocol)


def test_one_record_at_a_time(world: World) -> None:
    with world.job() as job:
        start(job)
        parts_at_a(world)
        parts_at_b(world)
        records = world.records_after(job)
        for number in range(records.height):
            job.take(records[number : number + 1])
            world.assert_right(job.tables)
        assert_valid(world, job, "sweep")


def test_a_protocol_that_cannot_keep_them_whole_stops_at_the_first(world: World) -> None:
    with world.job(protocol="c-strobe") as job:
        start(job)
        parts_at_a(world)
        with pytest.raises(
            SourceViolation, match=r"source a, version 3: .*'g' is a global transaction"
        ):
            job.take(world.records_after(job))
        assert job.tables.standing().position == 0
