"""A view that begins during global transactions contains each of them completely or not at all.

Everything is real except Spark. Every state, including the first one, is compared with DuckDB, and
the checker judges the trace.
"""

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from protocols.errors import SourceViolation, Unreachable
from protocols.exchange.holdback import GlobalPart
from sources.simulated.queryserver import status_of
from streaming.settings.configuration import read_configuration
from tests.cases.stories import KEYED
from tests.harness.world import OneView, World, start

pytestmark = pytest.mark.world(story=KEYED)


def part(id_: str, participants: str) -> GlobalPart:
    return GlobalPart(id_, frozenset(participants))


def at(world: World, source: str, number: int, of: GlobalPart | None = None) -> None:
    """Commits a transaction that inserts a matching row; maybe a part of a global one."""
    row = {"a": (number, 1, "p"), "b": (number, 1, 1), "c": (number, "k")}[source]
    world.sources[source].commit(({"a": "r", "b": "s", "c": "u"}[source], row, 1), part=of)


def begun(world: World, job: OneView) -> dict[str, int]:
    """Makes the first state, checks it, and returns its vector."""
    start(job)
    assert job.standing.position == 0
    world.assert_right(job.tables)
    return dict(job.standing.vector)


def assert_catches_up(world: World, protocol: str = "sweep", **changes: Any) -> None:
    """Checks that another job installs everything so far, and that the whole run was right."""
    world.wait_until_published()
    with world.job(protocol=protocol, **changes) as job:
        start(job)
        job.take(world.records_after(job))
        assert job.standing.vector == world.versions
        world.assert_right(job.tables)
    found = world.verdict(protocol)
    assert found.verdict == "valid", found.contradiction


def torn(world: World) -> None:
    """a: local, g, local. b has not committed its part."""
    at(world, "a", 101)
    at(world, "a", 102, part("g", "ab"))
    at(world, "a", 103)
    at(world, "b", 101)
    world.wait_until_published()


@pytest.mark.parametrize("protocol", ["sweep", "batched-sweep", "g-strobe"])
def test_a_view_begins_before_a_part_whose_partner_has_not_come(
    world: World, protocol: str
) -> None:
    torn(world)
    with world.job(protocol=protocol) as job:
        assert begun(world, job) == {"a": 2, "b": 2, "c": 1}
        assert any("part of global transaction 'g'" in line for line in world.reports)
        job.take(world.records_after(job))
        assert job.standing.vector == {"a": 2, "b": 2, "c": 1}
    at(world, "b", 102, part("g", "ab"))
    assert_catches_up(world, protocol)


def test_a_partner_that_comes_while_the_first_state_is_read(world: World) -> None:
    """The topics then hold more than the vector, which excludes the incomplete transaction."""
    at(world, "a", 100, part("early", "ab"))
    at(world, "b", 100, part("early", "ab"))
    torn(world)
    few = mock.patch("streaming.intake.firstvector._MANY", 1)
    with few, world.job(page_rows=1) as job:
        job.check()
        at(world, "b", 102, part("g", "ab"))
        at(world, "b", 103)
        world.wait_until_published()
        job.prepare()
        world.assert_right(job.tables)
        assert job.standing.vector == {"a": 3, "b": 3, "c": 1}
    assert_catches_up(world)


def test_what_is_torn_at_one_source_tears_at_the_next(world: World) -> None:
    at(world, "a", 101, part("g", "ab"))
    at(world, "b", 101, part("i", "bc"))
    at(world, "a", 102, part("h", "ab"))
    at(world, "c", 2, part("early", "bc"))
    at(world, "b", 102, part("early", "bc"))
    at(world, "b", 103, part("h", "ab"))
    at(world, "b", 104, part("k", "bc"))
    at(world, "c", 3)
    at(world, "c", 4, part("i", "bc"))
    at(world, "c", 5, part("k", "bc"))
    world.wait_until_published()
    with world.job() as job:
        # g (a 2) excludes h (a 3, b 4), which excludes k (b 5, c 5); the rest is complete.
        assert begun(world, job) == {"a": 1, "b": 3, "c": 4}
    at(world, "b", 105, part("g", "ab"))
    assert_catches_up(world)


def test_whole_transactions_are_in_the_first_state(world: World) -> None:
    """The control: nothing is lowered if nothing is torn."""
    for number in range(2, 6):
        at(world, "a", 100 + number, part(f"g{number}", "abc"))
        at(world, "b", 100 + number, part(f"g{number}", "abc"))
        at(world, "c", number, part(f"g{number}", "abc"))
    at(world, "a", 200, part("alone", "ax"))
    world.wait_until_published()
    with world.job() as job:
        assert begun(world, job) == world.versions
    assert not any("global" in line for line in world.reports)
    assert_catches_up(world)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("says", [True, False])
def test_it_begins_at_the_latest_legal_vector(world: World, seed: int, says: bool) -> None:
    """Few records at once, little remembered; compared with all vectors that fit the definition."""
    dice, places = Random(seed), {source: dict[int, str]() for source in "abc"}
    steps = [(f"g{n}", s) for n in range(8) for s in dice.sample("abc", dice.choice([1, 2, 3]))]
    participants = {id_: "".join(s for i, s in steps if i == id_) for id_, _ in steps}
    dice.shuffle(steps)
    for number, (id_, source) in enumerate(steps, 10):
        if dice.random() < 0.3:
            at(world, source, 100 + number)
        if number >= 10 + dice.choice([1, 1, 0.7]) * len(steps):
            break
        at(world, source, number, part(id_, participants[id_]))
        places[source][world.versions[source]] = id_
    world.wait_until_published()
    few = mock.patch.multiple("streaming.intake.firstvector", _MANY=2, _AT_ONCE=dice.choice([1, 3]))
    with few, status(says), world.job() as job:
        assert begun(world, job) == latest_legal(world.versions, places, participants)


def latest_legal(
    versions: Mapping[str, int],
    places: Mapping[str, Mapping[int, str]],
    participants: Mapping[str, str],
) -> dict[str, int]:
    def is_legal(vector: Mapping[str, int]) -> bool:
        inside = {s: {i for v, i in each.items() if v <= vector[s]} for s, each in places.items()}
        return all(len({i in inside[s] for s in who}) == 1 for i, who in participants.items())

    every = product(*(range(version + 1) for version in versions.values()))
    vectors = (dict(zip(versions, each, strict=True)) for each in every)
    return max(filter(is_legal, vectors), key=lambda vector: sum(vector.values()))


def status(says: bool) -> Any:
    """Sources that report their last part, or do not, since other sources need not."""

    def silent(*arguments: Any) -> dict[str, Any]:
        return {k: v for k, v in status_of(*arguments).items() if k != "last_global"}

    return mock.patch("sources.simulated.queryserver.status_of", status_of if says else silent)


def test_an_interrupted_first_state_goes_on_where_it_began(world: World) -> None:
    for number in range(110, 118):
        at(world, "a", number)
    torn(world)

    def interrupt(text: str) -> None:
        if "so far" in text:
            raise InterruptedError

    with world.job(page_rows=3, report=interrupt) as job, pytest.raises(InterruptedError):
        start(job)
    at(world, "b", 102, part("g", "ab"))
    world.wait_until_published()
    with world.job(page_rows=3) as job:
        assert begun(world, job) == {"a": 10, "b": 2, "c": 1}
    assert any("going on with the first state" in line for line in world.reports)
    assert_catches_up(world)


def test_another_view_that_is_made_at_a_restart(world: World) -> None:
    with world.job() as job:
        start(job)
    torn(world)
    with world.job() as job:
        start(job)
        job.take(world.records_after(job))
    other = {"[views.v]": '[views.w]\nsql = "v.sql"\n[views.v]'}
    known = read_configuration(world.write_configuration(toml=other))
    views = [known.view("v").with_protocol("sweep"), known.view("w").with_protocol("sweep")]
    job = OneView(known, views, world.reports.append)
    try:
        start(job)
        assert job.views[1].standing.vector == {"a": 2, "b": 2, "c": 1}
        at(world, "b", 102, part("g", "ab"))
        world.wait_until_published()
        job.take(world.records_after(job))
        for view in job.views:
            assert view.standing.vector == world.versions
            world.assert_right(view.tables)
    finally:
        job.close()


def cut(world: World, source: str) -> None:
    """Makes Kafka drop all records of the source's topic except the last one."""
    topic = world.sources[source].topic
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    [done] = admin.delete_records(
        [TopicPartition(topic, 0, world.sources[source].database.version - 1)]
    ).values()
    done.result()


def test_a_part_whose_partner_the_topic_has_lost_is_refused_by_name(world: World) -> None:
    at(world, "a", 101, part("g", "ab"))
    at(world, "b", 101, part("g", "ab"))
    at(world, "a", 102)
    at(world, "a", 103, part("h", "ax"))
    world.wait_until_published()
    cut(world, "a")
    refused = r"version 2 of source b is a part of global transaction 'g', and topic .* of source a"
    with world.job() as job, pytest.raises(SourceViolation, match=refused):
        start(job)
    assert not (world.directory / "tables/v").exists()


def test_a_source_without_global_transactions_is_not_read(world: World) -> None:
    at(world, "a", 101, part("g", "ab"))
    at(world, "b", 101, part("g", "ab"))
    for number in range(2, 5):
        at(world, "c", number)
    world.wait_until_published()
    cut(world, "c")
    with world.job() as job:
        assert begun(world, job) == world.versions


def test_what_a_silent_publisher_owes_is_waited_for_and_named(world: World) -> None:
    world.sources["a"].stop_publisher()
    at(world, "a", 101, part("g", "ab"))
    with (
        world.job(patience_seconds=0.5) as job,
        pytest.raises(Unreachable, match=r"version 2 of source a has not arrived in topic"),
    ):
        start(job)
