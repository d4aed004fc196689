"""Does any schedule break SWEEP?

Random scenarios (all shapes of views, bags and keyed relations, NULL and NaN links, several
relations per source, transactions over several of them) under random schedules, in both algebras,
with and without stale reads. What is caught here: wrong cuts, wrong compensation, wrong order. The
judge is DuckDB over the relations at each vector, and beside it the checker on the trace.
"""

from collections import Counter

import pytest
from campaigns import campaign, first_wrong_position
from oracle import Oracle
from random_scenarios import random_scenario

from protocols.checking.checker import check
from protocols.checking.trace import read_trace
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.scenario import Scenario, scenario_from_json
from protocols.simulation.simulator import Outcome, Schedule, simulate
from protocols.views.sql import parse_view

SWEEP, NAIVE = PROTOCOLS["sweep"], PROTOCOLS["naive"]


@pytest.mark.parametrize(("algebra", "runs"), [("bag", 180), ("frame", 80)])
def test_sweep_shows_the_view_at_every_position_in_delivery_order(algebra: str, runs: int) -> None:
    found = campaign(SWEEP, range(runs), algebra).assert_telling()
    assert not found.wrong, found.wrong[0]


@pytest.mark.parametrize("algebra", ["bag", "frame"])
def test_the_uncompensated_control_fails_in_a_good_share_of_runs(algebra: str) -> None:
    found = campaign(NAIVE, range(40), algebra).assert_telling()
    assert len(found.wrong) > found.runs / 3


def test_a_campaign_without_concurrency_fails_as_vacuous() -> None:
    with pytest.raises(AssertionError, match="vacuous"):
        campaign(SWEEP, range(20), updates=0).assert_telling()


def test_a_campaign_without_self_joins_fails_as_vacuous() -> None:
    chains = [seed for seed in range(40) if random_scenario(seed).shape == "chain"]
    with pytest.raises(AssertionError, match="not all shapes"):
        campaign(SWEEP, chains).assert_telling()


def test_the_first_state_is_the_view_at_its_vector_although_the_sources_go_on() -> None:
    found = campaign(SWEEP, range(0, 120, 3)).assert_right()
    assert found.concurrent_at_first > found.runs / 2, "vacuous: nothing happened during the load"


def test_a_late_start_begins_at_versions_above_zero() -> None:
    outcomes = (_run(seed, late_start=True)[1] for seed in range(10))
    assert any(sum(outcome.states[0].vector.values()) for outcome in outcomes)


def test_the_checker_finds_sweep_complete_in_delivery_order() -> None:
    concurrent = 0
    for seed in range(1000, 1030):
        _, outcome = _run(seed, algebra="frame" if seed % 3 else "bag")
        verdict = check(read_trace(outcome.lines))
        assert verdict.verdict == "valid", f"seed {seed}: {verdict.contradiction}"
        assert str(verdict.reached) == "complete-in-delivery-order"
        concurrent += sum(outcome.concurrent.values())
    assert concurrent > 30


def test_the_checker_and_the_oracle_agree_about_every_run_of_the_control() -> None:
    verdicts = Counter()
    for seed in range(2000, 2030):
        scenario, outcome = _run(seed, protocol="naive")
        wrong = first_wrong_position(outcome, Oracle(scenario)) is not None
        verdict = check(read_trace(outcome.lines)).verdict
        assert verdict == ("invalid" if wrong else "valid"), seed
        verdicts[verdict] += 1
    assert min(verdicts["valid"], verdicts["invalid"]) > 3, verdicts


def test_sweep_asks_every_other_atom_once_per_change_unless_the_partial_is_empty() -> None:
    saved = 0
    for seed in range(60):
        scenario, outcome = _run(seed)
        view = parse_view("v", scenario.view, scenario.catalog)
        for before, state in zip(outcome.states, outcome.states[1:], strict=False):
            (source,) = (s for s, v in state.vector.items() if v > before.vector[s])
            own = [update for update in scenario.updates if update.source == source]
            changes = own[state.vector[source] - 1].changes
            changed = sum(atom.relation in changes for atom in view.atoms)
            asked = outcome.queries.get(state.position, 0)
            skipped = outcome.skipped[state.position]
            assert asked + skipped == changed * (len(view.atoms) - 1), (seed, state.position)
            saved += skipped
    assert saved, "vacuous: no partial was ever empty"


def test_the_same_seed_gives_the_same_trace_and_another_seed_another_one() -> None:
    scenario = random_scenario(7).scenario
    first, again, other = (simulate(scenario, SWEEP, Schedule(seed)).lines for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_updates_with_a_time_are_committed_in_its_order_over_all_sources() -> None:
    for seed in range(20):
        form = random_scenario(seed, shape="chain").form
        for time, update in enumerate(form["updates"]):
            update["at"] = float(time // 2)
        trace = read_trace(_run(seed, form=form)[1].lines)
        sources = [update["source"] for update in form["updates"]]
        committed = [commit.source for commit in trace.commits]
        for time in range(0, len(sources), 2):
            assert sorted(committed[time : time + 2]) == sorted(sources[time : time + 2])


def _run(
    seed: int,
    protocol: str = "sweep",
    algebra: str = "bag",
    late_start: bool = False,
    form: dict[str, object] | None = None,
) -> tuple[Scenario, Outcome]:
    scenario = scenario_from_json(form) if form else random_scenario(seed).scenario
    schedule = Schedule(seed, algebra, stale=seed % 2 == 0, late_start=late_start)
    return scenario, simulate(scenario, PROTOCOLS[protocol], schedule)
