"""A MariaDB server for the tests of this folder."""

from collections.abc import Iterator

import pytest

from infra.localmariadb import LocalMariaDB


@pytest.fixture(scope="session")
def server() -> Iterator[LocalMariaDB]:
    """One server for all tests of a process; each test has databases of its own."""
    with LocalMariaDB() as running:
        yield running
