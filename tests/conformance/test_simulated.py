"""The simulated sources keep all rules, with one partition and with several."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.adapters.simulated import Simulated
from tests.conformance.stage import Stage
from tests.conformance.suite import RULES, broken


@pytest.fixture(scope="module", params=[1, 3], ids=["one partition", "three partitions"])
def stage(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Stage]:
    with closing(Stage(Simulated(bootstrap, request.param))) as stage:
        yield stage


@pytest.mark.parametrize("rule", RULES)
def test_the_simulated_sources_keep_the_rule(stage: Stage, rule: str) -> None:
    found = broken(stage, rule)
    assert not found, "\n".join(found)
