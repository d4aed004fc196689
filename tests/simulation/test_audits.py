"""Audits of simulated views, while the sources go on: no false alarm, and no damage passes.

`python -m bench.audits` does the same for longer, and over the named views.
"""

from collections.abc import Iterator
from random import Random

import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import Campaign, Family
from protocols.simulation.journal import Outcome
from protocols.simulation.setting import setting_of
from protocols.views.tree import AnyView
from tests.harness.plantedinruns import SLIPS, hunted
from tests.harness.simulatedaudits import audited, states

BATCHED = PROTOCOLS["batched-sweep"]
FAMILIES: tuple[Family, ...] = ("joins", "views")
State = tuple[int, dict[str, int], pl.DataFrame]


def runs(family: Family, seeds: range) -> Iterator[tuple[AnyView, Outcome, Random]]:
    campaign = Campaign(BATCHED, family=family)
    for seed in seeds:
        judged = campaign.run(seed)
        assert judged.trouble is None
        assert judged.outcome is not None
        scenario = campaign.shaped(seed).scenario
        yield setting_of(scenario, BATCHED, "bag").view, judged.outcome, Random(seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_there_is_no_false_alarm(family: Family) -> None:
    stretches = ahead = 0
    for view, outcome, random in runs(family, range(6)):
        for state in states(view, outcome):
            found, asked = audited(view, outcome, state, random.randint(1, 4), random)
            assert not found.differences, (view.sql, state[0], found)
            assert not found.troubles, (view.sql, state[0], found)
            stretches += found.stretches
            ahead += asked.ahead
    assert stretches > 30
    assert ahead > 30, "vacuous: hardly any answer had to be corrected"


def damaged(rows: pl.DataFrame, random: Random) -> pl.DataFrame | None:
    """The state without one row, with one row twice, or with one row more that is not there."""
    if rows.is_empty():
        return None
    place = random.randrange(rows.height)
    kinds = ("lost", "twice")
    if random.choice(kinds) == "lost":
        return pl.concat([rows.slice(0, place), rows.slice(place + 1)])
    more = pl.int_range(rows.height, eager=True) == place
    return rows.with_columns(pl.col(COUNT) + more.cast(pl.Int64))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_damaged_row_is_found_when_all_rows_are_looked_at(family: Family) -> None:
    damages = 0
    for view, outcome, random in runs(family, range(100, 112)):
        for position, vector, rows in states(view, outcome):
            wrong = damaged(rows, random)
            if wrong is not None:
                found, _ = audited(view, outcome, (position, vector, wrong), 10**6, random)
                assert found.wrong, (view.sql, position)
                damages += 1
    assert damages > 20


def test_stretches_find_most_damaged_rows_too() -> None:
    """With half of the rows looked at, at least a third of the damages is found."""
    damages = caught = 0
    for view, outcome, random in runs("views", range(200, 212)):
        for position, vector, rows in states(view, outcome):
            wrong = damaged(rows, random)
            if wrong is None or int(wrong[COUNT].sum()) < 4:
                continue
            half = int(wrong[COUNT].sum()) // 2
            found, _ = audited(view, outcome, (position, vector, wrong), half, random)
            damages += 1
            caught += found.wrong > 0
    assert damages > 10
    assert caught * 3 > damages


@pytest.mark.parametrize("name", SLIPS)
def test_a_planted_defect_is_found(name: str) -> None:
    hunt = hunted(name, range(60), enough=1)
    assert hunt.wrong, "vacuous: the defect made no state wrong"
    assert hunt.found == hunt.wrong
