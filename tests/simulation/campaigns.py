"""Campaigns: many random scenarios under random schedules, each state held against the oracle."""

import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from oracle import Oracle, Rows
from random_scenarios import SHAPES, random_scenario

from protocols.maintenance.registry import Entry
from protocols.simulation.simulator import Outcome, Schedule, simulate


@dataclass
class Campaign:
    """What a campaign has found, and whether it could have found anything."""

    runs: int = 0
    #: Per wrong run: its seed and the first position with a wrong state.
    wrong: list[str] = field(default_factory=list)
    #: The number of the first wrong run, counted from 1.
    first_wrong: int | None = None
    #: Answers that contained an error, or lacked something, in all runs.
    concurrent: int = 0
    #: The same for the first states alone.
    concurrent_at_first: int = 0
    shapes: Counter[str] = field(default_factory=Counter)

    def assert_telling(self) -> "Campaign":
        """Fails a campaign that no defect could have failed."""
        assert self.concurrent > self.runs, "vacuous: hardly any answer needed compensation"
        assert self.shapes.keys() == set(SHAPES), f"vacuous: not all shapes in {self.shapes}"
        return self

    def assert_right(self) -> "Campaign":
        assert not self.wrong, f"{len(self.wrong)} of {self.runs} runs, e.g. {self.wrong[0]}"
        return self


def campaign(
    protocol: Entry,
    seeds: Iterable[int],
    algebra: str = "bag",
    stale: bool | None = None,
    updates: int = 9,
    until_wrong: bool = False,
) -> Campaign:
    """Runs the seeds; stale reads in every other run unless they are asked for or forbidden."""
    found = Campaign()
    for seed in seeds:
        shaped = random_scenario(seed, updates)
        stale_now = seed % 2 == 1 if stale is None else stale
        schedule = Schedule(seed, algebra, stale_now, late_start=seed % 3 == 0)
        outcome = simulate(shaped.scenario, protocol, schedule)
        found.runs += 1
        found.shapes[shaped.shape] += 1
        found.concurrent += sum(outcome.concurrent.values())
        found.concurrent_at_first += outcome.concurrent.get(0, 0)
        position = first_wrong_position(outcome, Oracle(shaped.scenario))
        if position is not None:
            found.wrong.append(f"seed {seed} at position {position}: {shaped.form['view']}")
            found.first_wrong = found.first_wrong or found.runs
            if until_wrong:
                break
    return found


def first_wrong_position(outcome: Outcome, oracle: Oracle) -> int | None:
    """The first position whose state is not there or not the view at its vector; None if right."""
    held: Rows = Counter()
    for expected, state in enumerate(outcome.states):
        held.update({} if state.change is None else dict(state.change.counts))
        shown = {row: count for row, count in held.items() if count}
        if state.position != expected or shown != oracle.at(state.vector):
            return expected
    return None


def planted(function: Callable[..., Any], right: str, wrong: str) -> Callable[..., Any]:
    """The same function with one piece of its source replaced: a defect as a slip would make it."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{right!r} is not (once) in {function.__qualname__}"
    names: dict[str, Any] = {}
    exec(source.replace(right, wrong), function.__globals__, names)
    changed: Callable[..., Any] = names[function.__name__]
    return changed
