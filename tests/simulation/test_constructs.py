"""Constructs of SQL, each in a view by itself: kept in every state as DuckDB computes it."""

import pytest

from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import judged_run
from protocols.simulation.scenario import scenario_from_json
from protocols.simulation.schedule import Schedule
from tests.cases.constructs import NAMES, SOURCES, UPDATES

VIEWS = {**NAMES}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(("seed", "algebra"), [(0, "frame"), (1, "bag"), (2, "frame")])
def test_it_is_kept_as_duckdb_says(name: str, seed: int, algebra: str) -> None:
    form = {"name": name, "view": VIEWS[name], "sources": SOURCES, "updates": UPDATES}
    schedule = Schedule(seed=seed, algebra=algebra)
    judged = judged_run(
        scenario_from_json(form), PROTOCOLS["batched-sweep"], schedule, double_check=True
    )
    assert judged.trouble is None, judged.trouble
    assert judged.outcome is not None
    changed = [s for s in judged.outcome.states if s.change and not s.change.is_empty()]
    assert len(changed) > 2
