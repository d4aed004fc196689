"""Fixtures of live tests: a broker, and topics that no other test uses."""

import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from tests.cases.stories import MIXED, Story
from tests.harness.command import Command
from tests.harness.world import World

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """One broker for all tests of a process, since each start takes two JVMs.

    A test that kills its broker takes `mortal_broker`.
    """
    with LocalBroker() as running:
        yield running


@pytest.fixture
def mortal_broker() -> Iterator[LocalBroker]:
    """A separate broker, which the test may kill."""
    with LocalBroker() as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic, or the prefix of several names, that no other test uses."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{name[:100]}-{next(_numbers)}"


@dataclass(frozen=True)
class _Wanted:
    """The arguments of `pytest.mark.world`."""

    story: Story = MIXED
    #: Committed at random before there is a view, besides the first row of each source.
    transactions: int = 0
    partitions: int = 1


@pytest.fixture
def world(
    request: pytest.FixtureRequest, broker: LocalBroker, tmp_path: Path, topic: str
) -> Iterator[World]:
    """Sources that have published a few rows; `pytest.mark.world` says which and how many."""
    mark = request.node.get_closest_marker("world")
    wanted = _Wanted() if mark is None else _Wanted(**mark.kwargs)
    with World(tmp_path, broker.bootstrap, topic, wanted.story, wanted.partitions) as world:
        world.publish()
        world.commit_at_random(random.Random(1), wanted.transactions)
        world.wait_until_published()
        yield world


@pytest.fixture
def command(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """`viewsweep run` over these sources, in this process."""
    return Command(world, capsys, monkeypatch)
