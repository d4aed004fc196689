"""Forged claims in the traces of right runs: each must be refused.

`early`    what a state changed is shown one state before
`elsewhere` a state claims a vector at which the view is something else
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import orjson

from protocols.checking.checker import check
from protocols.checking.levels import WEAK
from protocols.checking.tracereading import read_trace
from protocols.maintenance.registry import Entry
from protocols.simulation.campaign import Campaign, Family
from protocols.simulation.journal import Outcome
from protocols.simulation.judging import contents_of
from protocols.simulation.setting import setting_of
from protocols.views.tree import AnyView


@dataclass
class Forgeries:
    """The findings of a campaign."""

    #: Whether to ask the weaker question, too: any vectors.
    weaker: bool = False
    #: Right runs, and those of them that the checker does not call valid.
    runs: int = 0
    not_valid: list[int] = field(default_factory=list)
    #: Forged traces by kind; those not refused; those that `any_vectors` accepts.
    forged: Counter[str] = field(default_factory=Counter)
    not_refused: list[tuple[int, str]] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)

    def over(self, entry: Entry, seeds: Sequence[int], family: Family = "joins") -> "Forgeries":
        """Runs the protocol, checks the trace, forges it in both ways and checks it again."""
        campaign = Campaign(entry, family=family)
        for seed in seeds:
            judged = campaign.run(seed)
            assert judged.trouble is None, judged.trouble
            assert judged.outcome is not None
            scenario = campaign.shaped(seed).scenario
            self._took(seed, entry, setting_of(scenario, entry, "bag").view, judged.outcome)
        return self

    def _took(self, seed: int, entry: Entry, view: AnyView, outcome: Outcome) -> None:
        self.runs += 1
        if check(read_trace(outcome.lines), entry.level).verdict != "valid":
            self.not_valid.append(seed)
        lines = [orjson.loads(line) for line in outcome.lines]
        random = Random(seed)
        for kind, forged in (
            ("early", early(lines, random)),
            ("elsewhere", elsewhere(lines, random, view, outcome)),
        ):
            if forged is None:
                continue
            self.forged[kind] += 1
            trace = read_trace([orjson.dumps(line) for line in forged])
            if check(trace, WEAK).verdict != "invalid":
                self.not_refused.append((seed, kind))
            if self.weaker:
                self.explained[kind] += check(trace, WEAK, any_vectors=True).verdict == "valid"


Lines = list[dict[str, Any]]


def early(lines: Lines, random: Random) -> Lines | None:
    """Moves all that one state changed into the state before; None if no state changed anything."""
    states = [number for number, line in enumerate(lines) if line["type"] == "state"]
    changing = [(before, number) for before, number in pairwise(states) if lines[number]["changes"]]
    if not changing:
        return None
    before, number = random.choice(changing)
    moved = lines[before]["changes"] + lines[number]["changes"]
    return _with(
        lines,
        {
            before: {**lines[before], "changes": _netted(moved)},
            number: {**lines[number], "changes": []},
        },
    )


def elsewhere(lines: Lines, random: Random, view: AnyView, outcome: Outcome) -> Lines | None:
    """Lets one state claim an earlier version of a source; None if the view is always the same."""
    contents = contents_of(view, outcome.sources)
    states = [number for number, line in enumerate(lines) if line["type"] == "state"]
    first = lines[states[0]]["vector"]
    for number in random.sample(states, len(states)):
        claimed = lines[number]["vector"]
        for vector in _earlier(claimed, first):
            if contents.at(vector) != contents.at(claimed):
                return _with(lines, {number: {**lines[number], "vector": vector}})
    return None


def _earlier(vector: dict[str, int], first: dict[str, int]) -> Iterator[dict[str, int]]:
    for source, version in vector.items():
        if version > first[source]:
            yield {**vector, source: version - 1}


def _with(lines: Lines, other: dict[int, dict[str, Any]]) -> Lines:
    return [other.get(number, line) for number, line in enumerate(lines)]


def _netted(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    counts: Counter[bytes] = Counter()
    for change in changes:
        counts[orjson.dumps(change["row"])] += change["count"]
    return [{"row": orjson.loads(row), "count": count} for row, count in counts.items() if count]
