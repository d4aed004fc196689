"""Campaigns in tests: the product's own, compared with DuckDB, and planted defects."""

import inspect
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from protocols.maintenance.registry import Entry
from protocols.simulation import campaign as product
from protocols.simulation import drawn
from protocols.simulation.simulator import Outcome
from tests.cases.random_scenarios import SHAPES as FAMILY_SHAPES
from tests.harness.oracle import Oracle, Rows


def assert_telling(tally: product.Tally) -> product.Tally:
    """Fails a campaign that no defect could have failed."""
    assert not tally.vacuous
    assert tally.concurrent > tally.runs, "vacuous: hardly any answer needed compensation"
    assert tally.shapes.keys() == set(drawn.SHAPES), f"vacuous: not all shapes in {tally.shapes}"
    return tally


def assert_right(tally: product.Tally) -> product.Tally:
    found = tally.troubles
    assert not found, f"{len(found)} of {tally.runs} runs, e.g. seed {found[0][0]}: {found[0][1]}"
    return tally


def hunted(
    protocol: Entry,
    runs: int,
    shaped: drawn.Shaped | None = None,
    family: product.Family = "joins",
    **given: Any,
) -> product.Tally:
    """Runs the seeds from 0 until one of them is wrong."""
    campaign = product.Campaign(protocol, shaped, given=given, family=family)
    tally = campaign.over(range(runs), until_trouble=True)
    if tally.troubles:
        print(f"caught in run {tally.runs}")
    return tally


def first_wrong_position(outcome: Outcome, oracle: Oracle) -> int | None:
    """The first position whose state is missing or is not the view at its vector; None if right."""
    held: Rows = Counter()
    for expected, state in enumerate(outcome.states):
        held.update({} if state.change is None else dict(state.change.counts))
        shown = {row: count for row, count in held.items() if count}
        if state.position != expected or shown != oracle.at(state.vector):
            return expected
    return None


def planted(function: Callable[..., Any], right: str, wrong: str) -> Callable[..., Any]:
    """The same function with one piece of its source replaced, like a defect made by a slip."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{right!r} is not (once) in {function.__qualname__}"
    names: dict[str, Any] = {}
    exec(source.replace(right, wrong), function.__globals__, names)
    changed: Callable[..., Any] = names[function.__name__]
    return changed


@dataclass
class Campaign:
    """The findings of a campaign for one family of protocols."""

    runs: int = 0
    #: Per wrong run: its seed and its fault.
    wrong: list[str] = field(default_factory=list)
    #: The number of the first wrong run, counted from 1.
    first_wrong: int | None = None
    #: Answers that contained an error, or lacked a row, in all runs.
    concurrent: int = 0
    shapes: Counter[str] = field(default_factory=Counter)

    def assert_telling(self) -> "Campaign":
        """Fails a campaign that no defect could have failed."""
        assert self.concurrent > self.runs, "vacuous: hardly any answer needed compensation"
        assert self.shapes.keys() == set(FAMILY_SHAPES), f"vacuous: not all in {self.shapes}"
        return self

    def assert_right(self) -> "Campaign":
        assert not self.wrong, f"{len(self.wrong)} of {self.runs} runs, e.g. {self.wrong[0]}"
        return self
