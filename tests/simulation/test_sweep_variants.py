"""SWEEP's relatives: parallel legs, pipelined, nested, batched, and the control that reads all.

Each runs over random scenarios and schedules and is compared with DuckDB at every state that it
shows. Then each mistake that algorithms.md warns of (sections 3 and 5) is made on purpose, as a
slip in the real code, and must be found.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from protocols.algebra.bag import Bag
from protocols.errors import ProtocolBug
from protocols.exchange import correction, driver
from protocols.exchange.asof import Reading, about, as_answered
from protocols.exchange.correction import at_cut
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance
from protocols.maintenance import batched_sweep
from protocols.maintenance.batched_sweep import BatchedSweep
from protocols.maintenance.nested_sweep import NestedSweep
from protocols.maintenance.parallel_sweep import ParallelSweep
from protocols.maintenance.pipelined_sweep import PipelinedSweep
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.simulator import Outcome, Schedule, simulate
from protocols.views.jointree import queries_per_batch
from protocols.views.view import Atom, View
from tests.cases.random_scenarios import random_scenario
from tests.harness.campaigns import planted
from tests.harness.innerjoins import parsed
from tests.harness.oracle import Oracle, Rows

COMPLETE = ("parallel-sweep", "pipelined-sweep", "batched-sweep")
STRONG = ("nested-sweep", "recompute")
#: A mistake that shows in many schedules may not survive this many runs.
SOON = 150


@dataclass(frozen=True)
class Found:
    """The number of the first wrong run, counted from 1, and whether anything was concurrent."""

    wrong: int | None
    runs: int
    concurrent: int
    states: int
    positions: int


def wrong_state(outcome: Outcome, oracle: Oracle) -> int | None:
    """The first position whose state is wrong, out of order, or missing."""
    held: Rows = Counter()
    before = -1
    for state in outcome.states:
        held.update({} if state.change is None else dict(state.change.counts))
        shown = {row: count for row, count in held.items() if count}
        if state.position <= before or shown != oracle.at(state.vector):
            return state.position
        before = state.position
    return None


def hunt(
    entry: Entry,
    seeds: Iterable[int],
    algebra: str = "bag",
    stale: bool = True,
    slices: int = 1,
) -> Found:
    """Runs until a state is wrong; complete protocols must show every position."""
    runs = concurrent = states = positions = 0
    for seed in seeds:
        scenario = random_scenario(seed).scenario
        lags, late = stale and seed % 2 == 1, seed % 3 == 0
        schedule = Schedule(seed, algebra, lags, late, slices=slices)
        outcome = simulate(scenario, entry, schedule)
        runs += 1
        concurrent += sum(outcome.concurrent.values())
        last = outcome.states[-1]
        top = dict.fromkeys(last.vector, 0) | Counter(u.source for u in scenario.updates)
        shown, every = len(outcome.states) - 1, last.position
        states, positions = states + shown, positions + every
        lost = last.vector != dict(top) or (entry.name in COMPLETE and shown != every)
        if lost or wrong_state(outcome, Oracle(scenario)) is not None:
            print(f"{entry.name}: caught in run {runs}")
            return Found(runs, runs, concurrent, states, positions)
    return Found(None, runs, concurrent, states, positions)


def assert_right(found: Found) -> Found:
    assert found.wrong is None
    assert found.concurrent > found.runs, "vacuous: hardly any answer needed compensation"
    return found


@pytest.mark.parametrize(("algebra", "runs"), [("bag", 120), ("frame", 50)])
@pytest.mark.parametrize("name", COMPLETE)
def test_every_position_becomes_visible_and_is_right(name: str, algebra: str, runs: int) -> None:
    found = assert_right(hunt(PROTOCOLS[name], range(runs), algebra))
    assert found.states == found.positions


@pytest.mark.parametrize(("algebra", "runs"), [("bag", 120), ("frame", 50)])
@pytest.mark.parametrize("name", STRONG)
def test_what_is_shown_is_an_exact_prefix_of_the_order(name: str, algebra: str, runs: int) -> None:
    found = assert_right(hunt(PROTOCOLS[name], range(runs), algebra))
    assert found.states < found.positions, "vacuous: nothing was ever taken together"


@pytest.mark.parametrize("budget", [0, 1, 2])
def test_a_composite_of_any_budget_ends_on_a_prefix(budget: int) -> None:
    entry = _entry("nested-sweep", lambda v, m: NestedSweep(v, m, budget))
    assert_right(hunt(entry, range(60)))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_any_width_of_the_pipeline_installs_in_order(width: int) -> None:
    entry = _entry("pipelined-sweep", lambda v, m: PipelinedSweep(v, m, width))
    assert_right(hunt(entry, range(60)))


@pytest.mark.parametrize("slices", [2, 3, 5])
def test_slices_of_a_batch_that_are_swept_elsewhere_give_its_changes(slices: int) -> None:
    assert_right(hunt(PROTOCOLS["batched-sweep"], range(60), slices=slices))


def test_a_batch_asks_no_more_than_its_bound_whatever_its_size() -> None:
    reached = 0
    for seed in range(150):
        scenario = random_scenario(seed, updates=14).scenario
        view = parsed(scenario.view, scenario.catalog)
        outcome = simulate(scenario, PROTOCOLS["batched-sweep"], Schedule(seed, "bag"))
        bound = queries_per_batch(view)
        most = max((n for position, n in outcome.queries.items() if position), default=0)
        assert most <= bound, scenario.view
        reached += most == bound
    assert reached > 20, "vacuous: the bound was hardly ever reached"


def test_nested_asks_at_most_n_minus_1_per_update_and_atom_and_less_under_load() -> None:
    asked = single = 0
    for seed in range(100):
        scenario = random_scenario(seed).scenario
        view = parsed(scenario.view, scenario.catalog)
        changed = sum(
            atom.relation in update.changes for update in scenario.updates for atom in view.atoms
        )
        nested = _asked(simulate(scenario, PROTOCOLS["nested-sweep"], Schedule(seed, "bag")))
        assert nested <= changed * (len(view.atoms) - 1)
        asked += nested
        single += _asked(simulate(scenario, PROTOCOLS["sweep"], Schedule(seed, "bag")))
    assert asked < 0.9 * single


def _asked(outcome: Outcome) -> int:
    return sum(n for position, n in outcome.queries.items() if position)


# -- mistakes ----------------------------------------------------------------------------------


def test_nothing_is_caught_when_nothing_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    same = "return Stretch(first, last, self.change)"
    monkeypatch.setattr(BatchedSweep, "begin", planted(BatchedSweep.begin, same, same))
    assert_right(hunt(PROTOCOLS["batched-sweep"], range(60)))


def test_counts_on_both_sides_of_the_merge_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed merge of the legs: a deletion squared is an insertion."""
    right = "partial.keys([(_LEG + name, name) for name in leg.links])"
    both = "partial.select([(_LEG + name, name) for name in leg.links])"
    monkeypatch.setattr(ParallelSweep, "_walk", planted(ParallelSweep._walk, right, both))
    assert hunt(PROTOCOLS["parallel-sweep"], range(SOON)).wrong


def test_a_condition_between_the_legs_that_is_forgotten_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "if legs.at_merge is not None:"
    untested = planted(ParallelSweep.view_change, right, "if False:")
    monkeypatch.setattr(ParallelSweep, "view_change", untested)
    assert hunt(PROTOCOLS["parallel-sweep"], range(SOON)).wrong


def test_overlooking_what_a_sibling_is_sweeping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compensates only for updates "still in the queue": here, those that have not begun."""
    begin = PipelinedSweep.__init__

    def careless(self: PipelinedSweep[Any], view: View, mailbox: Mailbox[Any]) -> None:
        begin(self, view, mailbox)
        self._sweep._read = _taking_only_the_queue_for_concurrent(self)

    monkeypatch.setattr(PipelinedSweep, "__init__", careless)
    assert hunt(PROTOCOLS["pipelined-sweep"], range(SOON)).wrong


def _taking_only_the_queue_for_concurrent(protocol: PipelinedSweep[Any]) -> Reading[Any]:
    # At each answer the cut is the last update begun, not the update's own position.
    def read(
        mailbox: Mailbox[Any], atom: Atom, keys: Any, cut: int, position: int
    ) -> Maintenance[Any, Any]:
        question = about(atom, keys, position)
        (found,) = yield [question]
        now = protocol._begun if cut == position else cut
        return at_cut(mailbox, question, found, now).select(atom.renaming)

    return read


def test_installing_in_the_order_in_which_sweeps_end_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver lets no state pass after a later one."""
    right = "while self._installed + 1 in self._done:"
    unordered = planted(
        PipelinedSweep._taking_part, right, "for self._installed in [position - 1]:"
    )
    monkeypatch.setattr(PipelinedSweep, "_taking_part", unordered)
    with pytest.raises(ProtocolBug, match="cannot show"):
        hunt(PROTOCOLS["pipelined-sweep"], range(SOON))


def test_absorbing_only_the_first_pending_update_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = "absorbed = self._mailbox.changes(atom.relation, cuts[atom], horizon)"
    first = "absorbed = self._mailbox.changes(atom.relation, cuts[atom], cuts[atom] + 1)"
    monkeypatch.setattr(
        NestedSweep, "_view_change", planted(NestedSweep._view_change, right, first)
    )
    assert hunt(PROTOCOLS["nested-sweep"], range(SOON)).wrong


def test_a_budget_without_a_horizon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It absorbs what has come at each visit: the composite is not a prefix of the order."""
    right = "yield from self._take_in(frame, atom, cuts[atom], position)"
    later = right + "; horizon = self._mailbox.last_position"
    monkeypatch.setattr(
        NestedSweep, "_view_change", planted(NestedSweep._view_change, right, later)
    )
    assert hunt(PROTOCOLS["nested-sweep"], range(SOON)).wrong


def test_a_nested_sweep_over_too_few_atoms_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "stack.append(self._frame(atom, absorbed, tuple(frame.bound)))"
    never = "pass"
    monkeypatch.setattr(
        NestedSweep, "_view_change", planted(NestedSweep._view_change, right, never)
    )
    assert hunt(PROTOCOLS["nested-sweep"], range(SOON)).wrong


@pytest.mark.parametrize("always", ["True", "False"])
def test_a_batch_without_a_tie_break_is_caught(
    always: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = "_ALIVE_AT if atom.index < partial.origin.index else"
    untied = planted(BatchedSweep._extend, right, f"_ALIVE_AT if {always} else")
    monkeypatch.setattr(BatchedSweep, "_extend", untied)
    assert hunt(PROTOCOLS["batched-sweep"], range(SOON)).wrong


def _over_span(monkeypatch: pytest.MonkeyPatch, right: str, wrong: str) -> None:
    defect = planted(correction.over_span, right, wrong)
    monkeypatch.setattr(batched_sweep, "over_span", defect)


def test_a_batch_that_is_not_compensated_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    _over_span(monkeypatch, "if not touching:", "if True:")
    assert hunt(PROTOCOLS["batched-sweep"], range(SOON)).wrong


def test_a_batch_without_order_inside_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compensates for updates after the batch, and not for those in it."""
    _over_span(monkeypatch, "changes = _logged(mailbox, atom, keys, begin, end)", "changes = None")
    assert hunt(PROTOCOLS["batched-sweep"], range(SOON)).wrong


@pytest.mark.parametrize("stale", [True, False])
def test_inferring_from_fifo_what_an_answer_contains_is_caught(
    stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates and answers travel over separate channels, and replicas lag behind."""
    inferred = planted(
        correction.snapshot,
        "version = max(inclusion.version for _, inclusion in readings)",
        "version = received.received(question.source); readings = []",
    )
    monkeypatch.setattr(driver, "snapshot", inferred)
    assert hunt(PROTOCOLS["batched-sweep"], range(4 * SOON), stale=stale).wrong


def test_null_that_equals_null_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bag, "keys", planted(Bag.keys, " if None not in row", ""))
    monkeypatch.setattr(Bag, "join", planted(Bag.join, "if None not in link:", "if True:"))
    assert hunt(PROTOCOLS["batched-sweep"], range(SOON)).wrong


def test_a_recomputation_that_believes_its_answers_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("protocols.maintenance.recompute.asof", as_answered)
    assert hunt(PROTOCOLS["recompute"], range(SOON)).wrong


def _entry(name: str, start: Callable[[Any, Mailbox[Any]], Any]) -> Entry:
    return replace(PROTOCOLS[name], start=lambda view, mailbox, _contents: start(view, mailbox))
