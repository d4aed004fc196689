"""Are the drawn scenarios varied enough, and can the protocol keep their views?"""

from collections import Counter
from itertools import pairwise

import pytest

from protocols.maintenance.registry import PROTOCOLS
from protocols.simulation.drawn import LINKED, SHAPES, Shaped, random_scenario, scenario_for
from protocols.simulation.scenario import Scenario
from protocols.simulation.schedule import KINDS, Schedule, drawn_schedule
from protocols.simulation.setting import setting_of
from protocols.simulation.simulator import simulate
from protocols.simulation.source import MemorySource
from tests.harness.campaigns import first_wrong_position
from tests.harness.innerjoins import inner
from tests.harness.oracle import Oracle

SWEEP = PROTOCOLS["sweep"]


def test_drawn_scenarios_are_possible_ones_and_cover_what_there_is() -> None:
    made = [random_scenario(seed, globals_=True) for seed in range(150)]
    scenarios = [each.scenario for each in made]
    assert {each.shape for each in made} == set(SHAPES)
    keyed = {bool(relation.key) for scenario in scenarios for relation in scenario.catalog}
    assert keyed == {True, False}
    types = {type_.name for s in scenarios for r in s.catalog for _, type_ in r.columns}
    assert types == set(LINKED)
    atoms = {len(inner(setting_of(s, SWEEP, "bag").view).atoms) for s in scenarios}
    assert atoms == {2, 3, 4, 5}
    assert any(len(update.changes) > 1 for s in scenarios for update in s.updates)
    assert any(None in row for s in scenarios for rows in s.initial.values() for row in rows.counts)
    assert any(len(s.catalog.relations) > len(s.catalog.sources) for s in scenarios)


def test_keys_are_used_again_and_rows_modified() -> None:
    reused = modified = 0
    for seed in range(60):
        scenario = random_scenario(seed, keys=True).scenario
        gone: set[object] = set()
        for update in scenario.updates:
            for relation, rows in update.changes.items():
                came = {row[0] for row, count in rows.counts.items() if count > 0}
                went = {row[0] for row, count in rows.counts.items() if count < 0}
                modified += len(came & went)
                reused += sum((relation, key) in gone for key in came - went)
                gone |= {(relation, key) for key in went - came}
    assert reused > 60
    assert modified > 60


def test_global_transactions_span_sources_and_meet_in_opposite_orders() -> None:
    made = [random_scenario(seed, globals_=True) for seed in range(200)]
    assert sum(any(u.global_id for u in each.scenario.updates) for each in made) > 30
    assert sum(map(_in_opposite_orders, made)) > 5
    assert not any(
        update.global_id for seed in range(60) for update in random_scenario(seed).scenario.updates
    )


def _in_opposite_orders(made: Shaped) -> bool:
    orders: dict[str, list[str]] = {}
    for update in made.form["updates"]:
        if "global" in update:
            orders.setdefault(update["source"], []).append(update["global"])
    pairs = [set(pairwise(order)) for order in orders.values()]
    return any((h, g) in other for one in pairs for g, h in one for other in pairs)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_gets_what_it_can_keep(name: str) -> None:
    entry = PROTOCOLS[name]
    for seed in range(25):
        scenario = scenario_for(seed, entry).scenario
        setting_of(scenario, entry, "bag")
        assert not entry.one_source or len(scenario.catalog.sources) == 1
        assert not entry.needs_keys or all(relation.key for relation in scenario.catalog)


def test_knobs_are_drawn_from_the_seed_and_given_ones_stay() -> None:
    drawn = [drawn_schedule(seed, SWEEP, {"crashes": 1}) for seed in range(100)]
    assert {schedule.crashes for schedule in drawn} == {1}
    for knob in ("stale", "late_start", "page", "partitions", "redelivery"):
        assert len({getattr(schedule, knob) for schedule in drawn}) > 1, knob
    assert {schedule.slices for schedule in drawn} == {1}, "it has no batches"
    batched = [drawn_schedule(seed, PROTOCOLS["batched-sweep"], {}) for seed in range(100)]
    assert len({schedule.slices for schedule in batched}) > 1
    fifo = [drawn_schedule(seed, PROTOCOLS["strobe"], {}) for seed in range(100)]
    assert {(schedule.stale, schedule.partitions) for schedule in fifo} == {(False, 1)}


def test_every_source_has_its_own_speeds_for_updates_and_answers() -> None:
    different = 0
    for seed in range(40):
        delays = Schedule(seed).settled(["a", "b"]).delays
        assert delays is not None
        assert delays.keys() == set(KINDS)
        different += delays["arrive"]["a"] != delays["arrive"]["b"]
        different += delays["arrive"]["a"] != delays["hand over"]["a"]
    assert different > 40


def test_the_parts_of_a_relation_are_disjoint_and_cover_it_at_every_version() -> None:
    cut = 0
    for seed in range(40):
        scenario = random_scenario(seed).scenario
        for source in _sources(scenario):
            for relation in {r for r in scenario.catalog if r.source == source.name}:
                for number in (2, 3):
                    parts = source.parts(relation, number)
                    cut += len(parts) > 1
                    for version in range(source.version + 1):
                        held = source.held(relation, version)
                        pieces = [held.where(condition) for condition in parts]
                        found = Counter(row for piece in pieces for row in piece.counts)
                        assert not parts or found == Counter(held.counts.keys())
    assert cut > 100


def _sources(scenario: Scenario) -> list[MemorySource]:
    outcome = simulate(scenario, SWEEP, Schedule(0, "bag", choices=()))
    return list(outcome.sources.values())


@pytest.mark.parametrize("redelivery", ["same", "other"])
def test_after_a_crash_every_state_is_still_right_and_every_position_shown(redelivery: str) -> None:
    crashes, changed = 0, 0
    for seed in range(80):
        scenario = random_scenario(seed, globals_=True).scenario
        schedule = Schedule(seed, "bag", crashes=3, redelivery=redelivery)  # type: ignore[arg-type]
        outcome = simulate(scenario, SWEEP, schedule)
        assert first_wrong_position(outcome, Oracle(scenario)) is None
        assert [state.position for state in outcome.states] == list(range(len(outcome.groups) + 1))
        crashes += outcome.crashes
        calm = simulate(scenario, SWEEP, Schedule(seed, "bag"))
        changed += outcome.groups != calm.groups
    assert crashes > 80
    assert changed
