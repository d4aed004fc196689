"""Whether a job works, and if not, why: `/healthz`, `/readyz`, and the troubles on the page."""

from collections.abc import Iterator
from dataclasses import dataclass

from streaming.figures.status import JobStatus

#: A wait is a trouble after so long.
_LONG_SECONDS = 10.0


@dataclass(frozen=True)
class Trouble:
    """Something that somebody should look at."""

    words: str
    #: The view or the source that it is about.
    view: str | None = None
    source: str | None = None
    #: Whether some view is not kept up to date because of it.
    grave: bool = True


def troubles(status: JobStatus | None) -> list[Trouble]:
    """Everything that is wrong with a job, the gravest first."""
    if status is None:
        return [Trouble("no job gives its status: none runs, or it has no [page] section")]
    return sorted(_found(status), key=lambda each: not each.grave)


def _found(status: JobStatus) -> Iterator[Trouble]:
    for view in status.views:
        if view.failed is not None:
            yield Trouble(f"view {view.name} failed: {view.failed}", view=view.name)
        if view.audit is not None and not view.audit.holds:
            yield Trouble(f"audit: {view.audit}", view=view.name, grave=False)
        if view.held_back is not None:
            yield Trouble(str(view.held_back), view=view.name)
    for source in status.sources:
        if source.reachable is False:
            said = f": {source.answers.last_error}" if source.answers.last_error else ""
            words = f"source {source.name} does not answer, and its updates wait{said}"
            yield Trouble(words, source=source.name)
    for wait in status.waits:
        if wait.seconds >= _LONG_SECONDS:
            yield Trouble(f"waiting for {wait}", grave=False)


def unready(status: JobStatus | None) -> list[str]:
    """The reasons why the views are not kept up to date; empty when they are."""
    reasons = [each.words for each in troubles(status) if each.grave]
    if status is not None and status.phase != "keeping":
        reasons.insert(0, f"the job is not keeping its views yet: {status.phase}")
    return reasons
