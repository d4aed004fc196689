"""One job, its page and one browser for all tests of the page."""

from collections.abc import Iterator

import pytest

from infra.localbroker import LocalBroker
from tests.harness.pageworld import ShownWorld, shown_world


@pytest.fixture(scope="session")
def shown(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownWorld]:
    with shown_world(tmp_path_factory.mktemp("shown"), broker.bootstrap) as shown:
        yield shown
