"""A first state under wrong statuses and beside another job: it leaves nothing to remove."""

import random
from typing import Any
from unittest import mock

import pytest

from protocols.errors import SourceViolation, Unreachable, ViewsweepError
from sources.simulated.queryserver import status_of
from tests.harness.world import World, start

pytestmark = pytest.mark.world(transactions=30)


def lying(**lies: Any) -> Any:
    """Makes the query server of source a send this status."""

    def status(*arguments: Any) -> dict[str, Any]:
        true = status_of(*arguments)
        return {**true, **lies} if true["source"] == "a" else true

    return mock.patch("sources.simulated.queryserver.status_of", status)


@pytest.mark.parametrize(
    ("version", "error"), [(10_000, SourceViolation), (1, (SourceViolation, Unreachable))]
)
def test_a_wrong_version_in_a_status_is_not_kept(world: World, version: int, error: Any) -> None:
    with lying(version=version), world.job(patience_seconds=1) as job, pytest.raises(error):
        start(job)
    assert not (world.directory / "tables/v").exists()
    world.commit_at_random(random.Random(2), 10)
    world.go_on()


def test_a_wrong_schema_in_a_status_is_not_kept(world: World) -> None:
    columns = {"id": "BIGINT", "x": "BIGINT", "t": "VARCHAR", "more": "DATE"}
    wrong = {"r": {"columns": {**columns, "t": "BIGINT"}, "key": ["id"]}}
    with lying(relations=wrong), world.job() as job, pytest.raises(ViewsweepError):
        start(job)
    world.go_on()


def test_of_two_first_states_at_once_one_is_made_and_one_is_told(world: World) -> None:
    told: list[str] = []

    def run_the_other(report: str) -> None:
        if "so far" in report and not told:
            told.append(report)
            other.prepare()

    with (
        world.job(page_rows=2) as other,
        world.job(page_rows=2, report=run_the_other) as one,
    ):
        one.check()
        other.check()
        with pytest.raises(ViewsweepError, match="another job has committed to this view"):
            one.prepare()
        assert told
    world.go_on()
