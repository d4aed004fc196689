"""Audits a view beside the job that keeps it, or without one: it needs no history.

The view's last commit says at which position and vector it stands. The sources are asked for
stretches as they are now, their topics are read from that vector on, and the answers are corrected
to it (protocols/auditing). Nothing is written.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from random import Random

from protocols.algebra.frame import Frame
from protocols.auditing.audit import Audit, Found
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Question, Snapshot
from protocols.views.tree import AnyView
from sources.history import UNKNOWN
from sources.topics import ends_of
from streaming.figures.audited import Audited
from streaming.figures.measuring import Measures
from streaming.intake.asking import Sources, refuse_reset, versions_in
from streaming.intake.reading import Reading, nothing_received
from streaming.settings.configuration import Configuration
from warehouse.audited import AuditedTables
from warehouse.definition import stored_view
from warehouse.standing import Standing

#: The share of a view that an audit looks at, if nothing else is said.
FRACTION = 0.01


@dataclass(frozen=True)
class Amount:
    """How much of a view an audit looks at: so many rows, or a share of all."""

    fraction: float = FRACTION
    rows: int | None = None

    def of(self, rows: int) -> int:
        """The number of rows, at least one."""
        return max(1, round(rows * self.fraction) if self.rows is None else self.rows)


def audit(
    configuration: Configuration,
    name: str,
    amount: Amount,
    report: Callable[[str], None],
    stopping: threading.Event,
) -> Audited:
    """Audits the view of this name at the position of its last commit."""
    began, at = time.monotonic(), time.time()
    view = stored_view(configuration.warehouse / name)
    tables = AuditedTables(configuration.warehouse, view)
    measures = Measures()
    with ExitStack() as made:
        reading = _reading(configuration, view, tables.standing, measures, report, stopping, made)
        mailbox = Mailbox(reading.received, tables.standing.vector, tables.standing.position)

        def ask(questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
            return [found for _, found in reading.look_up(questions)]

        auditing = Audit(view, mailbox, tables, ask, Random())
        found = auditing.look_at(amount.of, stopping.is_set)
    seconds = time.monotonic() - began
    return _audited(view, tables.standing, found, measures, at, seconds)


def _reading(
    configuration: Configuration,
    view: AnyView,
    standing: Standing,
    measures: Measures,
    report: Callable[[str], None],
    stopping: threading.Event,
    made: ExitStack,
) -> Reading:
    """Opens the view's sources, and their topics from its standing on."""
    used = {source: configuration.sources[source] for source in view.sources}
    job, kafka = configuration.job, configuration.kafka
    sources = Sources(used, job.patience_seconds, report, stopping, job.answer_megabytes)
    made.enter_context(closing(sources))
    ends = ends_of(kafka, {source.name: source.topics for source in used.values()})
    vector, digests = standing.vector, standing.digests
    sources.begin(kafka, ends, {s: (vector[s], standing.tokens[s]) for s in used})
    refuse_reset(vector, versions_in(sources.described()))
    tokens = {
        source: sources.resumed(
            kafka, source, ends[source], vector[source], token, digests.get(source, UNKNOWN)
        )
        for source, token in standing.tokens.items()
    }
    resumed = Standing(standing.position, vector, tokens, digests)
    received = nothing_received(configuration, view.relations, resumed)
    reading = Reading(configuration, sources, received, resumed, ends, measures, report, stopping)
    made.enter_context(closing(reading))
    reading.expect(resumed)
    return reading


def _audited(
    view: AnyView,
    standing: Standing,
    found: Found,
    measures: Measures,
    at: float,
    seconds: float,
) -> Audited:
    return Audited(
        view=view.name,
        position=standing.position,
        vector=dict(standing.vector),
        at=at,
        seconds=seconds,
        stretches=found.stretches,
        rows=found.rows,
        of=found.of,
        questions=measures.queries,
        bytes=measures.bytes,
        wrong=found.wrong,
        differences=tuple(found.differences),
        first_after=found.first_after,
        troubles=tuple(found.troubles),
    )
