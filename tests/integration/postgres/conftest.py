"""Fixtures of tests over real PostgreSQL databases."""

from collections.abc import Iterator

import pytest

from infra.localpostgres import LocalPostgres


@pytest.fixture(scope="session")
def server() -> Iterator[LocalPostgres]:
    """One server for all tests of a process; each test has databases of its own."""
    with LocalPostgres() as running:
        yield running
