"""Campaigns: many runs, each judged, and a test that they could have found an error at all.

Every run is judged by `judging`; if that objects, the checker decides which level the run really
reached. Now and then the checker also checks a run that the judge accepts, to test the judge. A
campaign in which (almost) nothing was concurrent proves nothing: it is *vacuous*.
"""

import gc
import os
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Literal

from protocols.checking.checker import check
from protocols.checking.plans import NotEvaluated
from protocols.checking.tracereading import read_trace
from protocols.errors import WrongUse
from protocols.maintenance.registry import Entry, protocol
from protocols.simulation.bounds import exceeded
from protocols.simulation.coverage import operators, outline
from protocols.simulation.drawn import Shaped, scenario_for
from protocols.simulation.drawnviews import view_scenario
from protocols.simulation.journal import Outcome
from protocols.simulation.judging import AnyContents, contents_of, objection
from protocols.simulation.scenario import Scenario
from protocols.simulation.schedule import Schedule, drawn_schedule
from protocols.simulation.setting import beside_of, setting_of, sources_of
from protocols.simulation.simulator import simulate
from protocols.views.tree import AnyView

Kind = Literal["wrong", "bound", "broke"]
#: The drawn views: inner joins, or random SQL beyond them.
Family = Literal["joins", "views"]
#: Seeds that share a drawn scenario: drawing and parsing one costs as much as a run.
SHARING: dict[Family, int] = {"joins": 4, "views": 2}
#: Updates of a drawn scenario.
UPDATES = 9
#: One run in so many is checked by the checker too, although the judge accepts it.
DOUBLE_CHECKED = 200
#: The counters that tallies add up.
_COUNTED = (
    "runs",
    "states",
    "queries",
    "concurrent",
    "concurrent_at_first",
    "crashes",
    "together",
)
#: Seeds that a worker takes at once.
_CHUNK = 160


@dataclass(frozen=True)
class Trouble:
    """The error of a run: below its level (wrong), too many questions (bound), or broke."""

    kind: Kind
    words: str
    #: The level that the run reached nevertheless.
    reached: str | None = None
    #: The traceback if viewsweep itself broke.
    traceback: str | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "words": self.words, "reached": self.reached}


@dataclass(frozen=True)
class Judged:
    """A run and its error, if any; no outcome if it broke."""

    outcome: Outcome | None
    trouble: Trouble | None


def judged_run(
    scenario: Scenario, entry: Entry, schedule: Schedule, double_check: bool = False
) -> Judged:
    """Runs and judges; raises WrongUse if the protocol cannot keep the scenario."""
    setting_of(scenario, entry, schedule.algebra)
    outcome = None
    try:
        outcome = simulate(scenario, entry, schedule)
        contents = _contents(scenario, entry)
        trouble = trouble_of(scenario, entry, outcome, double_check, contents)
        for number, other in enumerate(outcome.beside):
            setting = beside_of(scenario, number, entry)
            judged = (setting.scenario, setting.entry)
            trouble = trouble or trouble_of(*judged, other, double_check, _contents(*judged))
        return Judged(outcome, trouble)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        return Judged(outcome, Trouble("broke", words, None, traceback.format_exc()))


def trouble_of(
    scenario: Scenario,
    entry: Entry,
    outcome: Outcome,
    double_check: bool = False,
    contents: "AnyContents | None" = None,
) -> Trouble | None:
    """The error found in a completed run; None if there is none."""
    view = setting_of(scenario, entry, "bag").view
    objected = objection(view, entry, outcome, contents)
    if objected is not None or double_check:
        try:
            verdict = check(read_trace(outcome.lines), entry.level)
        except NotEvaluated as error:
            # The judge, which asks DuckDB for one vector at a time, does have its answers.
            if objected is not None:
                return Trouble("wrong", f"{objected}; {error}")
        except WrongUse as error:
            return Trouble("broke", f"the trace of the run is not valid: {error}; {objected}")
        else:
            if verdict.verdict != "valid":
                reached = verdict.reached.name if verdict.reached else "none"
                words = verdict.contradiction or verdict.undecided or ""
                return Trouble("wrong", objected or f"only the checker noticed: {words}", reached)
    bound = exceeded(view, entry, outcome)
    return None if bound is None else Trouble("bound", bound)


@dataclass
class Tally:
    """The results of a campaign; tallies of parts add up."""

    runs: int = 0
    states: int = 0
    queries: int = 0
    #: Answers that differed from the state that was asked for: a protocol may get these wrong.
    concurrent: int = 0
    #: The same among the questions of the first states.
    concurrent_at_first: int = 0
    #: Simulated crashes of the warehouse.
    crashes: int = 0
    #: Runs with several views over one reading.
    together: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    #: The different plans of the views.
    plans: set[str] = field(default_factory=set)
    #: Operator → runs of views with it in which an answer differed.
    met: Counter[str] = field(default_factory=Counter)
    #: (seed, error), by seed.
    troubles: list[tuple[int, Trouble]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.shapes += other.shapes
        self.plans |= other.plans
        self.met += other.met
        self.troubles = sorted(self.troubles + other.troubles, key=lambda found: found[0])

    def of(self, kind: Kind) -> list[tuple[int, Trouble]]:
        return [found for found in self.troubles if found[1].kind == kind]

    @property
    def vacuous(self) -> bool:
        """Whether there were several runs, but hardly any answer with a concurrent update."""
        return self.runs > 1 and self.concurrent * 10 < self.runs

    def took(self, judged: Judged) -> None:
        """Counts one more run."""
        self.runs += 1
        outcome = judged.outcome
        if outcome is not None:
            self.states += len(outcome.states)
            self.queries += sum(outcome.queries.values())
            self.concurrent += sum(outcome.concurrent.values())
            self.concurrent_at_first += outcome.concurrent.get(0, 0)
            self.crashes += outcome.crashes
            self.together += bool(outcome.beside)

    def covered(self, view: AnyView, outcome: Outcome | None) -> None:
        """Counts the plan and the operators of the run's view."""
        self.plans.add(outline(view))
        if outcome is not None and sum(outcome.concurrent.values()) > 0:
            self.met.update(operators(view))


@dataclass(frozen=True)
class Campaign:
    """The runs of a protocol over a given scenario or random ones, with some knobs fixed."""

    entry: Entry
    #: The scenario; None draws one for every few seeds.
    given_scenario: Shaped | None = None
    updates: int = UPDATES
    #: Knob → value, for all knobs that are not drawn.
    given: Mapping[str, Any] = field(default_factory=dict)
    double_checked: int = DOUBLE_CHECKED
    family: Family = "joins"

    def shaped(self, seed: int) -> Shaped:
        """The scenario of a seed."""
        if self.given_scenario is not None:
            return self.given_scenario
        return _drawn(self.family, seed // SHARING[self.family], self.entry, self.updates)

    def schedule(self, seed: int) -> Schedule:
        return drawn_schedule(seed, self.entry, self.given)

    def run(self, seed: int) -> Judged:
        double_check = self.double_checked > 0 and seed % self.double_checked == 0
        return judged_run(self.shaped(seed).scenario, self.entry, self.schedule(seed), double_check)

    def over(self, seeds: Iterable[int], until_trouble: bool = False) -> Tally:
        """Makes all runs, one after the other, in this process."""
        tally = Tally()
        for seed in seeds:
            judged = self.run(seed)
            tally.took(judged)
            shaped = self.shaped(seed)
            tally.shapes[shaped.shape] += 1
            tally.covered(setting_of(shaped.scenario, self.entry, "bag").view, judged.outcome)
            if judged.trouble is not None:
                tally.troubles.append((seed, judged.trouble))
                if until_trouble:
                    break
        return tally

    def in_parallel(self, seeds: range, workers: int, chunk: int = _CHUNK) -> Iterator[Tally]:
        """The tallies of its parts, as they are done; one worker starts no process."""
        chunks = [seeds[start : start + chunk] for start in range(0, len(seeds), chunk)]
        if workers == 1 or len(chunks) == 1:
            yield from map(self.over, chunks)
            return
        # Workers look the protocol up by its name: the entry itself cannot be pickled.
        order = (
            self.entry.name,
            self.given_scenario,
            self.updates,
            dict(self.given),
            self.double_checked,
            self.family,
        )
        # There is a worker for each core; their frames are small.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        try:
            yield from pool.map(_worker, [(order, part) for part in chunks])
        finally:
            # A stopped campaign must not wait for the remaining parts.
            pool.shutdown(cancel_futures=True)


def _worker(task: tuple[Any, range]) -> Tally:
    (name, *rest), seeds = task
    # Nearly all objects of a run are freed without the garbage collector.
    gc.set_threshold(100_000, 50, 100)
    return Campaign(protocol(name), *rest).over(seeds)


@lru_cache(maxsize=4)
def _drawn(family: Family, seed: int, entry: Entry, updates: int) -> Shaped:
    drawn = scenario_for if family == "joins" else view_scenario
    return drawn(seed, entry, updates)


@lru_cache(maxsize=12)
def _contents(scenario: Scenario, entry: Entry) -> AnyContents:
    """The view at any vector, shared by all runs over a scenario: their sources end the same."""
    sources = sources_of(scenario)
    for source in sources.values():
        while source.next_update is not None:
            source.commit()
    return contents_of(setting_of(scenario, entry, "bag").view, sources)
