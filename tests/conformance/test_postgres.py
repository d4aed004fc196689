"""PostgreSQL with Debezium keeps all rules."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.adapters.postgres import Postgres
from tests.conformance.stage import Stage
from tests.conformance.suite import RULES, broken


@pytest.fixture(scope="module")
def stage(bootstrap: str) -> Iterator[Stage]:
    with closing(Stage(Postgres(bootstrap))) as stage:
        yield stage


@pytest.mark.parametrize("rule", RULES)
def test_postgresql_keeps_the_rule(stage: Stage, rule: str) -> None:
    found = broken(stage, rule)
    assert not found, "\n".join(found)
