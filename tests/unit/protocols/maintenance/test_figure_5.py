"""The example of section 5.2 of the SWEEP paper (SIGMOD'97), step by step as in its text.

All three updates have happened before the first question is answered. The paper sends the partial
change and receives it joined; we send its link values and receive the source's rows, so statements
of the text about an answer are here about the answer's rows.
"""

import json
from typing import Any

import pytest

from protocols.algebra.bag import Bag, BagLog
from protocols.exchange.asof import asof
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install
from protocols.exchange.questions import Query, Snapshot
from protocols.maintenance.naive import naive
from protocols.maintenance.registry import PROTOCOLS
from protocols.maintenance.sweep import Sweep
from protocols.simulation.scenario import Scenario, scenario_from_json
from protocols.simulation.simulator import Schedule, simulate
from protocols.simulation.source import MemorySource, restricted
from tests.harness.innerjoins import parsed
from tests.harness.places import ROOT

FILE = ROOT / "examples" / "scenarios" / "figure-5.json"
#: The right column of Figure 5, from top to bottom.
STATES = [{(7, 8): 2}, {(5, 6): 2, (7, 8): 2}, {(5, 6): 2}, {(5, 6): 1}]


class Figure5:
    """The paper's moment: everything is committed and received, ΔR2, ΔR3, ΔR1 in this order."""

    def __init__(self) -> None:
        self.scenario: Scenario = scenario_from_json(json.loads(FILE.read_text()))
        self.view = parsed(self.scenario.view, self.scenario.catalog)
        logs = {relation: BagLog() for relation in self.view.relations}
        self.mailbox: Mailbox[Bag] = Mailbox(logs, {"a": 0, "b": 0, "c": 0})
        self.sources: dict[str, MemorySource] = {}
        for update in self.scenario.updates:
            initial = self.scenario.initial
            source = MemorySource(update.source, initial, [update])
            source.commit()
            self.sources[update.source] = source
            changes = {relation: (1, rows) for relation, rows in update.changes.items()}
            self.mailbox.receive(update.source, 1, changes)
            self.mailbox.deliver((update.source, 1))

    def answer(self, query: Query[Bag]) -> Snapshot[Bag]:
        """The source's present rows, at its version 1."""
        source = self.sources[query.relation.source]
        held = source.held(query.relation, source.version)
        rows = restricted(held, query.condition, query.keys)
        return Snapshot(rows.select([(c, c) for c in query.columns]), source.version)

    def swept(self, sweep: Sweep[Bag], position: int) -> tuple[list[Any], Install[Bag]]:
        """Questions and answers of one update, as (relation, keys, rows), and its install."""
        steps, work = [], sweep.update(position)
        try:
            queries = next(work)
            while True:
                (query,) = queries
                assert isinstance(query, Query)
                (keys,) = query.keys or ()
                answer = self.answer(query)
                steps.append((query.relation.name, set(keys.counts), dict(answer.rows.counts)))
                queries = work.send([answer])
        except StopIteration as done:
            return steps, done.value


@pytest.fixture
def figure() -> Figure5:
    return Figure5()


def test_the_sweep_of_r2_goes_left_to_r1_then_right_to_r3(figure: Figure5) -> None:
    steps, install = figure.swept(Sweep(figure.view, figure.mailbox), 1)
    # R1's answer lacks (2, 3), R3's lacks (7, 8), which does not match anyway.
    assert steps == [("R1", {(3,)}, {(3,): 1}), ("R3", {(5,)}, {(5, 6): 1})]
    assert install.change is not None
    assert install.change.counts == {(5, 6): 2}


def test_the_answer_of_r1_loses_the_error_term_of_the_concurrent_delete(figure: Figure5) -> None:
    """The answer is {(1,3,5)}; compensated for -(2,3) it is {(1,3,5), (2,3,5)}."""
    view = parsed("SELECT R1.A, R2.D FROM a.R1, b.R2 WHERE B = C", figure.scenario.catalog)
    r1 = view.atoms[0]
    reading = asof(figure.mailbox, r1, Bag(("B",), {(3,): 1}), cut=0, position=1)
    (query,) = next(reading)
    assert isinstance(query, Query)
    answer = figure.answer(query)
    partial = Bag(("R2.C", "R2.D"), {(3, 5): 1})
    joined = answer.rows.select(r1.renaming).join(partial, [("R1.B", "R2.C")])
    assert joined.counts == {(1, 3, 3, 5): 1}
    with pytest.raises(StopIteration) as done:
        reading.send([answer])
    compensated = done.value.value.join(partial, [("R1.B", "R2.C")])
    assert compensated.columns == ("R1.A", "R1.B", "R2.C", "R2.D")
    assert compensated.counts == {(1, 3, 3, 5): 1, (2, 3, 3, 5): 1}


def test_the_sweep_of_r3_puts_back_what_r1_no_longer_has(figure: Figure5) -> None:
    """ΔR2 is not concurrent with ΔR3: R2's answer at version 1 needs no correction at cut 1."""
    steps, install = figure.swept(Sweep(figure.view, figure.mailbox), 2)
    assert steps == [("R2", {(7,)}, {(3, 7): 1}), ("R1", {(3,)}, {(3,): 1})]
    assert install.change is not None
    assert install.change.counts == {(7, 8): -2}


def test_the_sweep_of_r1_comes_last_and_meets_nothing_concurrent(figure: Figure5) -> None:
    steps, install = figure.swept(Sweep(figure.view, figure.mailbox), 3)
    assert [relation for relation, _, _ in steps] == ["R2", "R3"]
    assert install.change is not None
    assert install.change.counts == {(5, 6): -1}


def test_every_state_of_the_figure_becomes_visible(figure: Figure5) -> None:
    sweep = Sweep(figure.view, figure.mailbox)
    state = Bag(("D", "F"), STATES[0])
    for position, expected in enumerate(STATES[1:], 1):
        change = figure.swept(sweep, position)[1].change
        assert change is not None
        state = state.plus(change)
        assert state.counts == expected


def test_without_compensation_the_states_of_the_figure_are_missed(figure: Figure5) -> None:
    believing = naive(figure.view, figure.mailbox)
    change = figure.swept(believing, 1)[1].change
    assert change is not None
    assert change.counts == {(5, 6): 1}


@pytest.mark.parametrize("algebra", ["bag", "frame"])
def test_any_schedule_of_the_scenario_file_ends_in_the_last_row(algebra: str) -> None:
    scenario = scenario_from_json(json.loads(FILE.read_text()))
    for seed in range(10):
        outcome = simulate(scenario, PROTOCOLS["sweep"], Schedule(seed, algebra))
        state = Bag(("D", "F"))
        for shown in outcome.states:
            state = state if shown.change is None else state.plus(shown.change)
        assert state.counts == STATES[-1]
