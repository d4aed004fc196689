"""The overview: the way of an update through the job, and what stands in its way."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from page.health import troubles
from page.lake import StoredRows
from page.samples import Samples
from protocols.errors import ViewsweepError
from streaming.figures.status import JobStatus, SourceStatus, ViewStatus
from streaming.settings.configuration import Configuration

#: With more views than this a search is offered.
_MANY_VIEWS = 20
_IN_WORDS = {
    "checking": "The job checks its sources, topics and tables.",
    "first state": "The job reads the first states of its views.",
    "starting Spark": "Every view has its state; Spark is starting.",
    "keeping": "The job keeps its views up to date.",
    "ending": "The job is ending.",
}


@dataclass(frozen=True)
class Stage:
    """A place that every update passes, and how it is there."""

    name: str
    figure: str
    unit: str
    words: str
    #: good, busy, bad or idle; the style sheet has a colour for each.
    state: str


@dataclass(frozen=True)
class ViewLine:
    """A view in the table."""

    name: str
    state: str
    words: str
    position: int | None
    backlog: int | None
    rows: int | None
    committed_at: float | None
    protocol: str


def overview(
    configuration: Configuration, status: JobStatus | None, samples: Samples, search: str
) -> dict[str, Any]:
    """Everything that the template needs."""
    views = list(_views(configuration, status))
    shown = [view for view in views if search.lower() in view.name.lower()]
    return {
        "lead": _lead(status),
        "stages": [] if status is None else list(_stages(status, samples)),
        "troubles": troubles(status),
        "charts": [] if status is None else list(_charts(status, samples)),
        "views": sorted(shown, key=lambda view: view.state == "good"),
        "all_views": len(views),
        "search": search if len(views) > _MANY_VIEWS or search else None,
        "sources": [_source(s) for s in status.sources]
        if status is not None and status.sources
        else [_unknown_source(name) for name in configuration.sources],
    }


def _lead(status: JobStatus | None) -> str:
    if status is None:
        return "No job gives its status here: this is what the tables hold."
    waits = "; ".join(map(str, status.waits))
    return _IN_WORDS[status.phase] + (f" It waits for {waits}." if waits else "")


# -- the way of an update --------------------------------------------------------------------------


def _stages(status: JobStatus, samples: Samples) -> Iterator[Stage]:
    questions = (samples.questions_per_s() or [0.0])[-1]
    silent = [source for source in status.sources if source.reachable is False]
    there = len(status.sources) - len(silent)
    yield Stage(
        "Sources",
        f"{there} of {len(status.sources)}",
        "answer",
        f"{questions:,.0f} questions a second",
        "bad" if silent else "good",
    )
    behind = [source.behind for source in status.sources if source.behind is not None]
    records = sum(each.records for each in behind)
    longest = max((each.seconds for each in behind), default=0.0)
    yield Stage(
        "Topics",
        f"{records:,}",
        "records behind",
        f"the first has waited {longest:,.1f} s" if records else "everything is taken",
        "bad" if longest > 60 else "busy" if longest > 5 else "good",
    )
    backlog = sum(view.backlog for view in status.views)
    held = len(status.held_back)
    rate = (samples.updates_per_s() or [0.0])[-1]
    yield Stage(
        "Mailbox",
        f"{backlog:,}",
        "updates wait",
        f"{rate:,.0f} updates a second" + (f"; {held} views hold back" if held else ""),
        "bad" if held else "busy" if backlog > 10_000 else "good",
    )
    failed = sum(view.failed is not None for view in status.views)
    at_work = sum(view.at_work > 0 for view in status.views)
    yield Stage(
        "Views",
        f"{len(status.views) - failed:,} of {len(status.views):,}",
        "kept",
        f"{at_work:,} ask at this moment" + (f"; {failed} failed" if failed else ""),
        "bad" if failed else "good",
    )
    p50, p99 = status.freshness_p50_ms, status.freshness_p99_ms
    yield Stage(
        "Delta",
        "-" if p50 is None else f"{p50:,.0f}",
        "ms to be visible",
        "nothing was committed lately" if p99 is None else f"99 of 100 within {p99:,.0f} ms",
        "idle" if p50 is None else "busy" if (p99 or 0) > 30_000 else "good",
    )


def _charts(status: JobStatus, samples: Samples) -> Iterator[dict[str, Any]]:
    rates: list[float | None] = [*samples.updates_per_s()]
    delays = samples.freshness_ms()
    for name, values, now, unit in (
        ("Updates a second", rates, status.updates_per_s_lately, ""),
        ("Median freshness", delays, status.freshness_p50_ms, " ms"),
    ):
        known = [value for value in values if value is not None]
        if len(known) > 1:
            yield {
                "name": name,
                "line": values,
                "now": "-" if now is None else f"{now:,.0f}{unit}",
                "highest": f"{max(known):,.0f}{unit}",
            }


# -- tables ----------------------------------------------------------------------------------------


def _views(configuration: Configuration, status: JobStatus | None) -> Iterator[ViewLine]:
    known = {} if status is None else {view.name: view for view in status.views}
    for name, settings in configuration.views.items():
        if name in known:
            yield _kept(known[name])
        else:
            yield _stored(configuration.warehouse, name, settings.protocol)


def _kept(view: ViewStatus) -> ViewLine:
    state, words = "good", "kept"
    if view.failed is not None:
        state, words = "bad", "failed"
    elif view.held_back is not None:
        state, words = "busy", "holds back"
    return ViewLine(
        view.name,
        state,
        words,
        view.position,
        view.backlog,
        view.rows,
        view.committed_at,
        view.protocol,
    )


def _stored(lake: Path, name: str, protocol: str) -> ViewLine:
    """A view that no job keeps at this moment."""
    try:
        standing = StoredRows(lake, name).standing
    except ViewsweepError:
        standing = None
    words = "no state yet" if standing is None else "not kept now"
    position = None if standing is None else standing.position
    return ViewLine(name, "busy", words, position, None, None, None, protocol)


def _source(source: SourceStatus) -> dict[str, Any]:
    figures, behind = source.answers, source.behind
    state, words = {
        True: ("good", "answers"),
        False: ("bad", "silent"),
        None: ("busy", "not asked yet"),
    }[source.reachable]
    return {
        "name": source.name,
        "state": state,
        "words": words,
        "received": source.received,
        "behind": None if behind is None else behind.records,
        "waits": None if behind is None or not behind.records else behind.seconds,
        "answers": figures.answers,
        "mean": figures.seconds / figures.answers if figures.answers else None,
        "errors": figures.errors,
    }


def _unknown_source(name: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("received", "behind", "waits", "answers", "mean", "errors"))
    return {"name": name, "state": "", "words": "not known", **nothing}
