"""The verdict of the checker on a run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from protocols.checking.levels import Level
from protocols.checking.order import DeliveryOrder
from protocols.checking.trace import Trace

Answer = Literal["holds", "fails", "unknown"]


@dataclass(frozen=True)
class Counts:
    """The numbers of a run; `compensated` answers held more than asked for: real concurrency."""

    updates: int
    undelivered: int
    positions: int
    states: int
    queries: int
    #: Questions that an empty partial change made needless, if the trace says so.
    skipped: int
    queries_per_update: float
    answers: int
    compensated: int


@dataclass(frozen=True)
class Verdict:
    """The answer; `witness` has (position, vector) per state if the level asked for holds."""

    verdict: Literal["valid", "invalid", "unknown"]
    asked: Level
    reached: Level | None
    answers: Mapping[str, Answer]
    contradiction: str | None
    witness: tuple[tuple[int, Mapping[str, int]], ...]
    undecided: str | None
    findings: tuple[str, ...]
    remarks: tuple[str, ...]
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "asked": self.asked.name,
            "reached": self.reached.name if self.reached else None,
            "levels": dict(self.answers),
            "contradiction": self.contradiction,
            "witness": [{"position": p, "vector": dict(v)} for p, v in self.witness],
            "undecided": self.undecided,
            "findings": list(self.findings),
            "remarks": list(self.remarks),
            "counts": asdict(self.counts),
        }


def counts_of(trace: Trace, order: DeliveryOrder) -> Counts:
    """Counts the events of a run in its trace."""
    source = {name: i for i, name in enumerate(order.sources)}
    asked = {query.id: query for query in trace.queries}
    compensated = 0
    for answer in trace.answers:
        query = asked[answer.id]
        position = min(query.position, order.last)
        compensated += answer.version > order.prefixes[position, source[query.source]]
    updates = sum(1 for deliver in trace.delivers if deliver.position)
    return Counts(
        updates,
        len(trace.commits) - len(trace.delivers),
        order.last,
        len(trace.states),
        len(asked),
        sum(state.skipped for state in trace.states),
        round(len(asked) / updates, 3) if updates else 0.0,
        len(trace.answers),
        int(compensated),
    )
