"""The broker of the suite."""

from collections.abc import Iterator

import pytest

from infra.localbroker import LocalBroker


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The address of one broker for all adapters."""
    with LocalBroker() as running:
        yield running.bootstrap
