"""`/metrics`: the status of a job in Prometheus' form. docs/page.md explains each name.

One status is taken for each scrape, and nothing is counted in between.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from streaming.figures.answers import LATENCY_BOUNDS
from streaming.figures.measuring import PHASES
from streaming.figures.status import JobStatus, SourceStatus, ViewStatus

#: By the value of a label.
Values: TypeAlias = Mapping[str, float]


def registry_of(status: Callable[[], JobStatus | None]) -> CollectorRegistry:
    """The registry whose exposition shows the status at each scrape, and this process."""
    registry = CollectorRegistry()
    registry.register(_JobCollector(status))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class _JobCollector(Collector):
    """Turns one status into metrics; without a job only `viewsweep_up` is there, and 0."""

    def __init__(self, status: Callable[[], JobStatus | None]) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        status = self._status()
        yield GaugeMetricFamily(
            "viewsweep_up", "1 while a job gives its status.", float(status is not None)
        )
        if status is not None:
            yield from _of_job(status)
            yield from _of_views(status.views)
            yield from _of_sources(status.sources)


def _of_job(status: JobStatus) -> Iterator[Metric]:
    phases: Values = {str(phase): phase == status.phase for phase in PHASES}
    yield _gauge("viewsweep_phase", "1 for the present phase of the job.", "phase", phases)
    for name, words, value in (
        ("updates", "Transactions that became visible in views.", status.updates),
        ("batches", "Commits handed over to the views' tables.", status.batches),
        ("questions", "Questions sent to sources.", status.queries),
        ("answers_of_copies", "Questions answered by a copy.", status.answers_of_copies),
        ("corrected_answers", "Answers with updates to take out.", status.corrected_answers),
        ("skipped_questions", "Questions saved by an empty partial.", status.skipped_queries),
        ("exchanged_bytes", "Bytes of questions and answers.", status.bytes),
    ):
        yield CounterMetricFamily(f"viewsweep_{name}", words, value)
    yield _counter(
        "viewsweep_step_seconds", "Time spent in a step of batches.", "step", status.step_seconds
    )
    freshness = {"0.5": status.freshness_p50_ms, "0.99": status.freshness_p99_ms}
    yield _gauge(
        "viewsweep_freshness_seconds",
        "From the commit at a source to the commit in Delta, lately.",
        "quantile",
        {name: value / 1000 for name, value in freshness.items() if value is not None},
    )
    longest = max((wait.seconds for wait in status.waits), default=0.0)
    yield GaugeMetricFamily("viewsweep_longest_wait_seconds", "The longest present wait.", longest)
    yield _gauge("viewsweep_copy_rows", "Rows of a relation's copy.", "relation", status.copies)


def _of_views(views: Iterable[ViewStatus]) -> Iterator[Metric]:
    views = tuple(views)
    for name, words, values in (
        ("position", "Position of the last commit.", {v.name: v.position for v in views}),
        ("rows", "Rows of the view, equal ones counted.", {v.name: v.rows for v in views}),
        (
            "backlog_positions",
            "Positions delivered and not committed.",
            {v.name: v.backlog for v in views},
        ),
        (
            "failed",
            "1 if the job keeps the view no longer.",
            {v.name: v.failed is not None for v in views},
        ),
        (
            "audit_holds",
            "1 if the view's audits found nothing.",
            {v.name: v.audit.holds for v in views if v.audit is not None},
        ),
        (
            "held_back_transactions",
            "Global transactions that lack a part.",
            {v.name: len(v.held_back.transactions) if v.held_back else 0 for v in views},
        ),
        (
            "last_commit_timestamp_seconds",
            "When this job last committed.",
            {v.name: v.committed_at for v in views if v.committed_at is not None},
        ),
    ):
        yield _gauge(f"viewsweep_view_{name}", words, "view", values)
    versions = GaugeMetricFamily(
        "viewsweep_view_version", "Version of a source in the view.", labels=("view", "source")
    )
    for view in views:
        for source, version in view.vector.items():
            versions.add_metric((view.name, source), version)
    yield versions


def _of_sources(sources: Iterable[SourceStatus]) -> Iterator[Metric]:
    sources = tuple(sources)
    behind = {s.name: s.behind for s in sources if s.behind is not None}
    for name, words, values in (
        (
            "up",
            "1 if the source answered when it was last asked.",
            {s.name: s.reachable for s in sources if s.reachable is not None},
        ),
        ("received_version", "Last version received.", {s.name: s.received for s in sources}),
        ("lag_records", "Records that some view lacks.", {n: b.records for n, b in behind.items()}),
        (
            "lag_seconds",
            "How long the first of them has waited.",
            {n: b.seconds for n, b in behind.items()},
        ),
    ):
        yield _gauge(f"viewsweep_source_{name}", words, "source", values)
    errors = {s.name: s.answers.errors for s in sources}
    yield _counter("viewsweep_source_errors", "Failed attempts to ask.", "source", errors)
    sizes = {s.name: s.answers.bytes for s in sources}
    yield _counter("viewsweep_source_bytes", "Bytes of questions and answers.", "source", sizes)
    answers = HistogramMetricFamily(
        "viewsweep_answer_seconds", "From a question to its answer.", labels=("source",)
    )
    for source in sources:
        answers.add_metric(
            (source.name,), _buckets(source.answers.latencies), source.answers.seconds
        )
    yield answers


def _buckets(latencies: Iterable[int]) -> list[tuple[str, float]]:
    """The counts added up from the fastest on, as Prometheus has them."""
    total, buckets = 0, []
    for bound, count in zip((*map(str, LATENCY_BOUNDS), "+Inf"), latencies, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _gauge(name: str, words: str, label: str, values: Values) -> Metric:
    family = GaugeMetricFamily(name, words, labels=(label,))
    for each, value in values.items():
        family.add_metric((each,), float(value))
    return family


def _counter(name: str, words: str, label: str, values: Values) -> Metric:
    family = CounterMetricFamily(name, words, labels=(label,))
    for each, value in values.items():
        family.add_metric((each,), float(value))
    return family
