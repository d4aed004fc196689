"""Everything that is known of a job at one moment, as one frozen value.

The live line, the summary and `--json` render it and nothing else.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from protocols.exchange.inclusion import Reads
from streaming.figures.answers import AnswerFigures
from streaming.figures.audited import Audited
from streaming.figures.heldback import HeldBack
from streaming.figures.measuring import Behind, Measures, Phase

#: A wait shorter than this is part of the work.
_WORTH_TELLING = 1.0


@dataclass(frozen=True)
class SourceStatus:
    """One source, as the job sees it."""

    name: str
    #: Whether it answered when it was last asked; None before that.
    reachable: bool | None
    #: The last version that was received from its topic.
    received: int
    #: How much of its topic some view lacks; None while that is not known.
    behind: Behind | None
    #: What it promises of its answers.
    reads: Reads = "versions"
    answers: AnswerFigures = field(default_factory=AnswerFigures)


@dataclass(frozen=True)
class ViewStatus:
    """One view."""

    name: str
    protocol: str
    #: Position and vector of its last commit.
    position: int
    vector: Mapping[str, int]
    #: Positions that are delivered and not committed.
    backlog: int
    #: Pieces of work that wait for answers or are swept by executors.
    at_work: int
    rows: int
    #: When this job last committed, in seconds since the epoch; None if it has not.
    committed_at: float | None
    held_back: HeldBack | None
    #: The reason why the job keeps it no longer; None while it does.
    failed: str | None
    #: Its last audit in this job, or the last one that found something; None before the first.
    audit: Audited | None = None


@dataclass(frozen=True)
class Wait:
    """Something that the job waits for."""

    words: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.words}, {self.seconds:,.0f} s"


@dataclass(frozen=True)
class JobStatus:
    """A job and all that belongs to it."""

    phase: Phase
    waits: tuple[Wait, ...]
    sources: tuple[SourceStatus, ...]
    views: tuple[ViewStatus, ...]
    #: Since the start of the job.
    seconds: float
    updates: int
    batches: int
    batches_on_executors: int
    queries: int
    answers_of_copies: int
    corrected_answers: int
    skipped_queries: int
    bytes: int
    first_state_seconds: float
    #: In the last seconds (`measuring.FRESH_SECONDS`).
    updates_per_s_lately: float
    freshness_p50_ms: float | None
    freshness_p99_ms: float | None
    #: Relation → rows of its copy.
    copies: Mapping[str, int]
    executors: Mapping[str, Mapping[str, float]]
    executor_batches: tuple[Mapping[str, Any], ...]
    #: Seconds by step of a micro-batch.
    step_seconds: Mapping[str, float]

    @property
    def position(self) -> int:
        """The position of the view that is least far."""
        return min((view.position for view in self.views), default=0)

    @property
    def view_rows(self) -> int:
        """Rows of all views, equal ones counted."""
        return sum(view.rows for view in self.views)

    @property
    def held_back(self) -> tuple[HeldBack, ...]:
        """The views in which parts of global transactions wait for others."""
        return tuple(view.held_back for view in self.views if view.held_back is not None)

    @property
    def behind(self) -> str:
        """How far the views are behind the topics, in words."""
        known = [(source.name, source.behind) for source in self.sources if source.behind]
        late = [f"{name} {behind}" for name, behind in known if behind.records]
        return ("; ".join(late) or "caught up") if known else "-"

    def to_json(self) -> dict[str, Any]:
        """The form of `--json` and `--summary`."""
        form = asdict(self)
        seconds = self.seconds
        return {
            **form,
            "seconds": round(seconds, 3),
            "waits": [asdict(wait) for wait in self.waits],
            "sources": {source.pop("name"): source for source in form["sources"]},
            "views": {view.name: _of_view(view) for view in self.views},
            "position": self.position,
            "positions": {view.name: view.position for view in self.views},
            "updates_per_s": round(self.updates / seconds, 1) if seconds else None,
            "updates_per_s_lately": round(self.updates_per_s_lately, 1),
            "first_state_seconds": round(self.first_state_seconds, 3),
            "view_rows": self.view_rows,
            "behind": {
                source.name: {
                    "records": source.behind.records,
                    "seconds": round(source.behind.seconds, 3),
                }
                for source in self.sources
                if source.behind is not None
            },
            "held_back": [held.to_json() for held in self.held_back],
            "step_seconds": {name: round(spent, 3) for name, spent in self.step_seconds.items()},
        }


def _of_view(view: ViewStatus) -> dict[str, Any]:
    held = None if view.held_back is None else view.held_back.to_json()
    audit = None if view.audit is None else view.audit.to_json()
    form = {**vars(view), "vector": dict(view.vector), "held_back": held, "audit": audit}
    del form["name"]
    return form


def status_of(
    measures: Measures, sources: Sequence[SourceStatus], views: Sequence[ViewStatus]
) -> JobStatus:
    """The status at this moment; the job writes the measures on."""
    now = time.monotonic()
    p50, p99 = measures.freshness.percentiles(50, 99)
    waits = (Wait(words, now - since) for words, since in list(measures.waits.items()))
    return JobStatus(
        phase=measures.phase,
        waits=tuple(wait for wait in waits if wait.seconds >= _WORTH_TELLING),
        sources=tuple(sources),
        views=tuple(views),
        seconds=now - measures.started,
        updates=measures.updates,
        batches=measures.batches,
        batches_on_executors=measures.batches_on_executors,
        queries=measures.queries,
        answers_of_copies=measures.answers_of_copies,
        corrected_answers=measures.corrected,
        skipped_queries=measures.skipped,
        bytes=measures.bytes,
        first_state_seconds=measures.first_state_seconds,
        updates_per_s_lately=measures.freshness.updates_per_s(),
        freshness_p50_ms=p50,
        freshness_p99_ms=p99,
        copies=dict(measures.copies),
        executors=dict(measures.executors),
        executor_batches=tuple(measures.executor_batches),
        step_seconds=dict(measures.steps),
    )
