"""Fixtures of tests over real PostgreSQL databases."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from infra.localpostgres import LocalPostgres
from protocols.views.catalog import Catalog
from tests.cases.airline import AIRLINE
from tests.harness.ruled import AIRLINE_TABLES, RuledDatabase

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[LocalPostgres]:
    """One server for all tests of a process; each test has databases of its own."""
    with LocalPostgres() as running:
        yield running


@pytest.fixture
def database(server: LocalPostgres) -> Iterator[Callable[..., RuledDatabase]]:
    """Makes databases with the airline's tables, or others, for views that rules keep."""
    made: list[RuledDatabase] = []

    def fresh(tables: str = AIRLINE_TABLES, catalog: Catalog = AIRLINE) -> RuledDatabase:
        made.append(RuledDatabase(server, f"rules_{next(_numbers)}", tables, catalog))
        return made[-1]

    yield fresh
    for each in made:
        each.close()
