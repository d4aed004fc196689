"""Does any schedule break SWEEP?

Random scenarios (all shapes of views, bags and keyed relations, NULL and NaN links, several
relations per source, transactions over several of them, global transactions) under random
schedules, in both algebras, with and without stale reads, partitions and crashes. This catches
wrong cuts, wrong compensation and wrong order. The judge is the product's own;
test_simulate_judging.py shows that it agrees with DuckDB and with the checker.
"""

import itertools

import pytest

from protocols.checking.checker import check
from protocols.checking.tracereading import read_trace
from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.campaign import Campaign
from protocols.simulation.drawn import Shaped
from protocols.simulation.scenario import Scenario, scenario_from_json
from protocols.simulation.simulator import Outcome, Schedule, simulate
from tests.cases.random_scenarios import random_scenario
from tests.harness.campaigns import assert_right, assert_telling

SWEEP, NAIVE = PROTOCOLS["sweep"], PROTOCOLS["naive"]


@pytest.mark.parametrize(("algebra", "runs"), [("bag", 240), ("frame", 80)])
def test_sweep_shows_the_view_at_every_position_in_delivery_order(algebra: str, runs: int) -> None:
    campaign = Campaign(SWEEP, given={"algebra": algebra}, double_checked=20)
    tally = assert_right(assert_telling(campaign.over(range(runs))))
    assert tally.crashes > runs / 10, "vacuous: hardly a crash"


def test_the_uncompensated_control_fails_in_a_good_share_of_runs() -> None:
    tally = Campaign(NAIVE).over(range(80))
    assert len(tally.of("wrong")) > tally.runs / 4


def test_a_campaign_without_concurrency_is_vacuous() -> None:
    assert Campaign(SWEEP, updates=0).over(range(20)).vacuous


def test_the_first_state_is_the_view_at_its_vector_although_the_sources_go_on() -> None:
    tally = assert_right(Campaign(SWEEP, given={"late_start": True}).over(range(60)))
    assert tally.concurrent_at_first > tally.runs / 2, "vacuous: nothing happened during the load"


def test_a_late_start_begins_at_versions_above_zero_and_never_in_a_global_transaction() -> None:
    outcomes = (_run(seed, late_start=True)[1] for seed in range(10))
    assert any(sum(outcome.states[0].vector.values()) for outcome in outcomes)
    campaign = Campaign(SWEEP, given={"late_start": True, "crashes": 1}, double_checked=1)
    assert_right(campaign.over(range(40)))


def test_the_checker_finds_sweep_complete_in_delivery_order() -> None:
    concurrent = 0
    for seed in range(1000, 1030):
        _, outcome = _run(seed, algebra="frame" if seed % 3 else "bag")
        verdict = check(read_trace(outcome.lines), SWEEP.level)
        assert verdict.verdict == "valid", f"seed {seed}: {verdict.contradiction}"
        assert str(verdict.reached) == "complete-in-delivery-order"
        concurrent += sum(outcome.concurrent.values())
    assert concurrent > 30


def test_the_same_seed_gives_the_same_trace_and_another_seed_another_one() -> None:
    scenario = random_scenario(7).scenario
    first, again, other = (simulate(scenario, SWEEP, Schedule(seed)).lines for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_recorded_choices_repeat_a_run() -> None:
    scenario = random_scenario(7).scenario
    first = simulate(scenario, SWEEP, Schedule(1, crashes=2))
    again = simulate(scenario, SWEEP, Schedule(1, crashes=2, choices=first.choices))
    assert first.crashes
    assert first.lines == again.lines


def test_without_choices_everything_happens_in_turn() -> None:
    for seed in range(20):
        scenario = random_scenario(seed).scenario
        outcome = simulate(scenario, SWEEP, Schedule(seed, "bag", choices=()))
        assert not any(outcome.concurrent.values())


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


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_protocol_falls_below_its_level_or_asks_too_much(name: str) -> None:
    """Briefly for each protocol; `make soak` runs longer. Each is also tested with its family."""
    campaign = Campaign(PROTOCOLS[name])
    tally = campaign.over(range(4000, 4000 + 40))
    assert not tally.vacuous
    if PROTOCOLS[name].control:
        assert tally.of("wrong")
    else:
        assert_right(tally)


def test_a_campaign_in_parallel_finds_what_it_finds_alone() -> None:
    campaign = Campaign(NAIVE, double_checked=0)
    alone = campaign.over(range(24))
    parts = list(campaign.in_parallel(range(24), workers=2, chunk=12))
    assert len(parts) == 2
    assert sum(part.states for part in parts) == alone.states
    found = itertools.chain.from_iterable(part.troubles for part in parts)
    assert sorted(seed for seed, _ in found) == [seed for seed, _ in alone.troubles]


def test_a_campaign_over_one_given_scenario_draws_schedules_only() -> None:
    shaped: Shaped = random_scenario(5)
    tally = Campaign(SWEEP, shaped).over(range(30))
    assert tally.shapes.keys() == {shaped.shape}
    assert_right(tally)


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
