"""All engines over one burst, in turns, each judged before its figures count.

The result of a run is compared row by row with the truth, and each state that it showed on the way
with the histories of the relations (vectors.py). Repeated runs take turns (a, b, c, a, b, c, …), so
that a busy minute of the machine does not hit one engine alone.
"""

import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import cpu_count
from statistics import median
from typing import Any

from bench.burst import Burst, BurstSettings, evaluated, same_rows, unfolded
from bench.engines.engine import Engine, EngineOutcome, EnginePlace
from bench.vectors import Histories
from infra.broker import which_broker
from infra.errors import InfraError
from infra.workplace import workplace
from protocols.errors import ViewsweepError


@dataclass(frozen=True)
class JudgedRun:
    """One run of an engine, judged."""

    #: The outcome without its rows and states, which are large.
    outcome: EngineOutcome
    #: Whether the result is the truth; None if the engine does not compute the view.
    right: bool | None
    wrong_states: int
    states_checked: int

    @property
    def updates_per_s(self) -> float:
        return self.outcome.updates / self.outcome.seconds


@dataclass
class EngineLine:
    """The runs of one engine."""

    engine: Engine
    runs: list[JudgedRun] = field(default_factory=list)
    #: The command that would install it.
    missing: str | None = None
    #: The error that ended a run of it.
    failure: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether a result or a state was wrong."""
        return any(run.right is False or run.wrong_states for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Medians over the runs; None for figures that were not measured."""
        outcomes = [run.outcome for run in self.runs]
        checked = sum(run.states_checked for run in self.runs)
        verdicts = {run.right for run in self.runs} - {None}
        return {
            "engine": self.engine.name,
            "about": self.engine.about,
            "updates_per_s": _median([run.updates_per_s for run in self.runs]),
            "p50_ms": _median([o.p50_ms for o in outcomes if o.p50_ms is not None]),
            "p99_ms": _median([o.p99_ms for o in outcomes if o.p99_ms is not None]),
            "wrong_states": sum(run.wrong_states for run in self.runs) if checked else None,
            "states_checked": checked or None,
            "peak_rss_bytes": max((o.peak_rss_bytes or 0 for o in outcomes), default=0) or None,
            "job_peak_rss_bytes": max((o.job_peak_rss_bytes or 0 for o in outcomes), default=0)
            or None,
            "base_rows_kept": max((o.base_rows_kept for o in outcomes), default=None),
            "right": all(verdicts) if verdicts else None,
            "inserts_only": any(outcome.inserts_only for outcome in outcomes),
            "runs": [run.updates_per_s for run in self.runs],
            "step_seconds": _steps(outcomes),
            "missing": self.missing,
            "failure": self.failure,
        }


@dataclass(frozen=True)
class BenchReport:
    """The measurements and their settings."""

    settings: dict[str, Any]
    lines: list[EngineLine]

    def to_json(self) -> dict[str, Any]:
        return {"settings": self.settings, "rows": [line.to_json() for line in self.lines]}


def side_by_side(
    engines: Sequence[Engine], settings: BurstSettings, repeats: int, say: Callable[[str], None]
) -> BenchReport:
    """Measures the engines that are installed; the others say how to install them."""
    lines = [EngineLine(engine, missing=engine.missing()) for engine in engines]
    jury = Jury(Burst(settings))
    with ExitStack() as running:
        broker = _Broker(running, say)
        for repeat in range(1, repeats + 1):
            for line in lines:
                if line.missing is None and line.failure is None:
                    say(f"{line.engine.name}, run {repeat} of {repeats}")
                    _run_once(line, jury, broker, say)
    found = {**settings.to_json(), "updates": jury.burst.updates, "repeats": repeats}
    return BenchReport({**found, "machine": _machine()}, lines)


class Jury:
    """Judges the outcomes of engines for a burst."""

    def __init__(self, burst: Burst) -> None:
        self.burst = burst

    @cached_property
    def _histories(self) -> Histories:
        return Histories(self.burst)

    def judged(self, outcome: EngineOutcome) -> JudgedRun:
        burst = self.burst
        truth = burst.truth_of_inserts if outcome.inserts_only else burst.truth
        if outcome.sql is not None:
            truth = evaluated(outcome.sql, {base.relation: base.final for base in burst.bases})
        right = None if outcome.rows is None else same_rows(unfolded(outcome.rows), truth)
        figures = replace(outcome, rows=None, states=[], vectors=[])
        return JudgedRun(figures, right, self._wrong_states(outcome), len(outcome.states))

    def _wrong_states(self, outcome: EngineOutcome) -> int:
        """The number of states that never existed: at no vector, or not at the one they claim."""
        if outcome.sql is None:
            return [self._histories.explain(state) for state in outcome.states].count(None)
        wrong = 0
        for state, vector in zip(outcome.states, outcome.vectors, strict=True):
            rows = {b.relation: b.at(vector.get(b.relation.source, 0)) for b in self.burst.bases}
            wrong += not same_rows(unfolded(state), evaluated(outcome.sql, rows))
        return wrong


class _Broker:
    """The broker, started when the first engine asks for it."""

    def __init__(self, running: ExitStack, say: Callable[[str], None]) -> None:
        self._running = running
        self._say = say
        self._bootstrap: str | None = None

    def bootstrap(self) -> str:
        if self._bootstrap is None:
            broker = self._running.enter_context(which_broker(progress=self._say))
            self._bootstrap = broker.bootstrap
        return self._bootstrap


def _run_once(line: EngineLine, jury: Jury, broker: _Broker, say: Callable[[str], None]) -> None:
    """Does one run; an engine that fails is not tried again."""
    with workplace("bench") as ours:
        # A unique name, which the topics get as well: the broker serves many runs.
        (directory := ours / ours.name).mkdir()
        place = EnginePlace(directory, broker.bootstrap, lambda what: say(f"  {what}"))
        try:
            judged = jury.judged(line.engine.measure(jury.burst, place))
        except (ViewsweepError, InfraError) as error:
            line.failure = str(error)
            say(f"  failed: {error}")
            return
    line.runs.append(judged)
    words = {True: "right", False: "WRONG", None: "no view"}[judged.right]
    say(f"  {judged.updates_per_s:,.0f} updates/s, {words}")


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _steps(outcomes: Sequence[EngineOutcome]) -> dict[str, float]:
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.steps)
    return {name: median(o.steps.get(name, 0.0) for o in outcomes) for name in names}


def _machine() -> dict[str, Any]:
    return {
        "cores": cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
