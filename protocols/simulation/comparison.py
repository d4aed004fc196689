"""Table 1 of the SWEEP paper, measured: promise, level and cost of the protocols side by side.

Levels come from the checker over random runs (drawn scenarios, all knobs drawn), costs from the
metronome (pace.py) at several paces and for several numbers of relations. The claims of the paper
about the protocols are then compared with these figures, one by one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from protocols.checking.checker import check
from protocols.checking.levels import LEVELS, Level
from protocols.checking.tracereading import read_trace
from protocols.maintenance.registry import PROTOCOLS, Entry
from protocols.simulation.drawn import scenario_for
from protocols.simulation.pace import RunCost, cost
from protocols.simulation.schedule import drawn_schedule
from protocols.simulation.simulator import simulate

#: Sizes of two bursts for ECA's messages: how the number of terms grows with twice the updates.
_BURSTS = (12, 24)


@dataclass(frozen=True)
class ComparisonSettings:
    """The settings of a comparison."""

    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    #: The length of the chain in the table and in the plot over paces.
    relations: int = 4
    #: Updates per round trip. The first has no concurrency; the table shows the last as "under
    #: load".
    paces: tuple[float, ...] = (0, 0.5, 1, 2, 4)
    #: The lengths of the chain in the plot over n, at the last pace.
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6)
    updates: int = 60
    #: Random runs per protocol for the level.
    runs: int = 40


@dataclass(frozen=True)
class ProtocolLine:
    """The results of one protocol."""

    entry: Entry
    #: The weakest level of all random runs; None if a run did not even converge.
    reached: Level | None
    #: The number of runs below the claimed level.
    below: int
    #: Pace → cost at `Settings.relations`.
    by_pace: Mapping[float, RunCost]
    #: Number of relations → cost at the last pace.
    by_size: Mapping[int, RunCost]

    @property
    def at_rest(self) -> RunCost:
        return next(iter(self.by_pace.values()))

    @property
    def under_load(self) -> RunCost:
        return list(self.by_pace.values())[-1]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the measured figures."""

    words: str
    holds: bool
    figures: str


@dataclass(frozen=True)
class ComparedProtocols:
    """The result of a comparison."""

    settings: ComparisonSettings
    lines: tuple[ProtocolLine, ...]
    claims: tuple[Claim, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The protocols that stayed below their claim, except the control, which has to."""
        return tuple(x.entry.name for x in self.lines if x.below and not x.entry.control)

    def to_json(self) -> dict[str, Any]:
        return {
            "settings": asdict(self.settings),
            "rows": [_line_to_json(line) for line in self.lines],
            "claims": [asdict(claim) for claim in self.claims],
        }


def compare(settings: ComparisonSettings, report: Callable[[str], None]) -> ComparedProtocols:
    """Measures everything; `report` is called after each protocol."""
    lines = []
    for name in settings.protocols:
        lines.append(_measured(PROTOCOLS[name], settings))
        report(f"{name}: {len(lines)} of {len(settings.protocols)}")
    return ComparedProtocols(settings, tuple(lines), tuple(_claims(lines)))


def _measured(entry: Entry, settings: ComparisonSettings) -> ProtocolLine:
    reached, below = _levels(entry, settings.runs)
    by_pace = {
        pace: cost(entry, settings.relations, pace, settings.updates) for pace in settings.paces
    }
    last = settings.paces[-1]
    by_size = {
        size: by_pace[last]
        if size == settings.relations
        else cost(entry, size, last, settings.updates)
        for size in settings.sizes
    }
    return ProtocolLine(entry, reached, below, by_pace, by_size)


def _levels(entry: Entry, runs: int) -> tuple[Level | None, int]:
    """The weakest level that the checker found, and the number of runs below the claim."""
    ranks = []
    for seed in range(1, runs + 1):
        scenario = scenario_for(seed, entry).scenario
        outcome = simulate(scenario, entry, drawn_schedule(seed, entry, {}))
        reached = check(read_trace(outcome.lines), entry.level).reached
        ranks.append(-1 if reached is None else LEVELS.index(reached))
    weakest = min(ranks)
    claimed = LEVELS.index(entry.level)
    return None if weakest < 0 else LEVELS[weakest], sum(rank < claimed for rank in ranks)


# The claims of the paper --------------------------------------------------------------------------


def _claims(lines: Sequence[ProtocolLine]) -> list[Claim]:
    known = {line.entry.name: line for line in lines}
    about: dict[str, Callable[[Mapping[str, ProtocolLine]], list[Claim]]] = {
        "eca": _about_eca,
        "strobe": _about_strobe,
        "c-strobe": _about_c_strobe,
        "sweep": _about_sweep,
        "nested-sweep": _about_nested,
        "batched-sweep": _about_batched,
    }
    return [claim for name, say in about.items() if name in known for claim in say(known)]


def _about_eca(known: Mapping[str, ProtocolLine]) -> list[Claim]:
    line = known["eca"]
    small, large = _BURSTS
    terms = {n: [cost(line.entry, n, k, k).most_terms for k in _BURSTS] for n in (3, 4)}
    powers = {n: math.log2(after / before) for n, (before, after) in terms.items()}
    return [
        Claim(
            "ECA: O(1) messages per update",
            line.under_load.most_questions <= 1,
            f"at most {line.under_load.most_questions} question per update at any pace",
        ),
        Claim(
            "ECA: the size of a message is quadratic in the number of interfering updates",
            all(1.5 < power < 2.5 for power in powers.values()),
            f"when the number of interfering updates doubles from {small} to {large}, the largest"
            " question grows"
            + " and".join(
                f" from {before} to {after} terms for n = {n} (exponent {powers[n]:.1f})"
                for n, (before, after) in terms.items()
            )
            + ": the exponent is about n - 2, so it depends on n",
        ),
        _quiescence("ECA", line, needs=True),
    ]


def _about_strobe(known: Mapping[str, ProtocolLine]) -> list[Claim]:
    line = known["strobe"]
    most = {n: c.most_questions for n, c in line.by_size.items()}
    return [
        Claim(
            "Strobe: O(n) messages per update, none for a deletion",
            all(count <= n - 1 for n, count in most.items()),
            f"at most {_listed(most)} questions for n = {_listed_keys(most)}",
        ),
        _quiescence("Strobe", line, needs=True),
    ]


def _about_c_strobe(known: Mapping[str, ProtocolLine]) -> list[Claim]:
    most = {n: c.most_questions for n, c in known["c-strobe"].by_size.items() if n > 2}
    return [
        Claim(
            "C-Strobe: O(n!) messages per update, not scalable",
            all(count <= math.factorial(n) for n, count in most.items()),
            f"at most {_listed(most)} questions for one update, n = {_listed_keys(most)}: about"
            " twice as many for every further relation. The growth is exponential in any case, but"
            " not factorial if questions that substitute changes for the same relations are merged"
            " into one",
        )
    ]


def _about_sweep(known: Mapping[str, ProtocolLine]) -> list[Claim]:
    line = known["sweep"]
    most = {n: c.most_questions for n, c in line.by_size.items()}
    return [
        Claim(
            "SWEEP: n - 1 messages per update, complete consistency",
            all(count <= n - 1 for n, count in most.items()) and not line.below,
            f"at most {_listed(most)} for n = {_listed_keys(most)}, whatever the pace",
        ),
        _quiescence("SWEEP", line, needs=False),
    ]


def _about_nested(known: Mapping[str, ProtocolLine]) -> list[Claim]:
    line = known["nested-sweep"]
    sweep = known.get("sweep", line)
    costs = {p: (c.per_update(c.questions)) for p, c in line.by_pace.items()}
    return [
        Claim(
            "Nested SWEEP: never more messages than SWEEP, amortised over concurrent updates",
            all(c.questions <= sweep.by_pace[p].questions for p, c in line.by_pace.items()),
            f"{', '.join(f'{x:.2f}' for x in costs.values())} questions per update at the paces"
            f" {_listed_keys(costs)}; SWEEP always"
            f" {sweep.at_rest.per_update(sweep.at_rest.questions):.2f}",
        ),
        Claim(
            "Nested SWEEP: needs a period in which interfering updates subside",
            line.under_load.installs_meanwhile == 0,
            f"{_meanwhile(line.under_load)}: every composite ends at its horizon, a bound on the"
            " updates that it may contain",
        ),
    ]


def _about_batched(known: Mapping[str, ProtocolLine]) -> list[Claim]:
    line = known["batched-sweep"]
    most = {n: c.most_questions for n, c in line.by_size.items()}
    load = line.under_load
    return [
        Claim(
            "Batched SWEEP (beyond the paper): n + I - 1 messages per batch, complete consistency",
            all(count <= max(2 * n - 3, 2) for n, count in most.items()) and not line.below,
            f"at most {_listed(most)} questions for n = {_listed_keys(most)} (I, the number of"
            " inner relations, is n - 2 in a chain); under load"
            f" {load.per_update(load.questions):.2f} questions and"
            f" {load.per_update(load.installs):.2f} states per update",
        )
    ]


def _quiescence(name: str, line: ProtocolLine, needs: bool) -> Claim:
    load = line.under_load
    starved = load.covered_meanwhile < 0.1 * load.updates
    words = "shows next to nothing while updates keep coming (requires quiescence)"
    other = "shows new states while updates keep coming (requires no quiescence)"
    return Claim(
        f"{name}: {words if needs else other}",
        starved if needs else not starved or load.installs_meanwhile > 0,
        _meanwhile(load),
    )


def _meanwhile(load: RunCost) -> str:
    arrived = f"had been shown when the {load.updates}th and last update arrived"
    if not load.installs_meanwhile:
        return f"no state {arrived}"
    return (
        f"{load.installs_meanwhile} states, the last of them including update"
        f" {load.covered_meanwhile}, {arrived}"
    )


def _listed(numbers: Mapping[Any, Any]) -> str:
    return ", ".join(f"{number:g}" for number in numbers.values())


def _listed_keys(numbers: Mapping[Any, Any]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _line_to_json(line: ProtocolLine) -> dict[str, Any]:
    return {
        "protocol": line.entry.name,
        "claims": line.entry.level.name,
        "reached": None if line.reached is None else line.reached.name,
        "runs_below_the_claim": line.below,
        "one_source": line.entry.one_source,
        "needs_keys": line.entry.needs_keys,
        "by_pace": {f"{pace:g}": asdict(each) for pace, each in line.by_pace.items()},
        "by_relations": {str(size): asdict(each) for size, each in line.by_size.items()},
    }
