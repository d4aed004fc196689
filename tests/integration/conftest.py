"""Fixtures of live tests: a broker, and topics that no other test uses."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.localbroker import LocalBroker
from tests.harness.jobs import World
from tests.harness.runs import Command

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


@pytest.fixture
def published(broker: LocalBroker, tmp_path: Path, topic: str) -> Iterator[World]:
    """Sources that have each committed and published a few rows."""
    with World(tmp_path, broker.bootstrap, topic) as world:
        world.publish()
        yield world


@pytest.fixture
def command(
    published: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """`viewsweep run` over these sources, in this process."""
    return Command(published, capsys, monkeypatch)
