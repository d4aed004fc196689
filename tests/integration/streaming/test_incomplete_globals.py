"""A part of a global transaction whose other part does not come.

The job reports the waiting part, since when and for which source it waits; `--once` does not end as
if all were well.
"""

import orjson
import pytest

from protocols.exchange.holdback import GlobalPart
from tests.harness.command import Command

G = GlobalPart("g", frozenset("ab"))


@pytest.fixture
def command(command: Command) -> Command:
    """A view that is up to date; then a's part of g comes (version 2), and a later transaction."""
    command.goes_on()
    source = command.world.sources["a"]
    source.commit(("r", (101, 1, "p"), 1), part=G)
    source.commit(("r", (102, 1, "p"), 1))
    command.world.wait_until_published()
    return command


def test_once_ends_with_3_and_says_what_waits_for_whom(command: Command) -> None:
    summary = command.world.directory / "summary.json"
    ended = command.run("--once", "--summary", str(summary))
    assert ended.code == 3
    for part in (
        "view v is not up to date: global transaction 'g' has the part of a (version 2)",
        "and lacks b, since 2",
        "Held back until then: a's 2 to 3",
        "Run the same command again",
    ):
        assert part in ended.message
    [held] = orjson.loads(summary.read_bytes())["held_back"]
    assert held["versions"] == {"a": [2, 3]}
    assert [(t["global"], t["missing"]) for t in held["transactions"]] == [("g", ["b"])]


def test_a_job_that_is_stopped_says_it_and_ends_with_0(command: Command) -> None:
    ended = command.run()
    assert (ended.code, ended.message) == (0, "")
    assert any("global transaction 'g' has the part of a" in line for line in ended.lines)


def test_when_the_other_part_comes_nothing_waits_and_once_ends_with_0(command: Command) -> None:
    command.run()
    command.world.sources["b"].commit(("s", (1, 5), 1), part=G)
    command.world.wait_until_published()
    ended = command.run("--once")
    assert (ended.code, ended.message) == (0, "")
    assert not any("global" in line for line in ended.lines)
    with command.world.job() as job:
        job.check()
        command.world.assert_right(job.tables)
        assert job.tables.standing().vector == command.world.versions
