"""MariaDB with Debezium keeps all rules."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.adapters.mariadb import MariaDB
from tests.conformance.stage import Stage
from tests.conformance.suite import RULES, broken


@pytest.fixture(scope="module")
def stage(bootstrap: str) -> Iterator[Stage]:
    with closing(Stage(MariaDB(bootstrap))) as stage:
        yield stage


@pytest.mark.parametrize("rule", RULES)
def test_mariadb_keeps_the_rule(stage: Stage, rule: str) -> None:
    found = broken(stage, rule)
    assert not found, "\n".join(found)
