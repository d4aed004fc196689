"""Slices of a large batch: the data sent to an executor, and the sweep there.

A slice of the batch's positions can be swept by itself (batched_sweep.py): by its own questions,
with its own compensation, in a process of its own. So an executor runs the same code as the driver,
over a mailbox of its own:

    driver     Batch     the changes received so far, the order of delivery, where sources answer
               Slice     its first and its last position
    executor   its mailbox holds the batch's changes; if its answers contain later updates, it reads
               these from the topics itself, after the last one that the driver had received
    executor   writes the changes of the view into the directory of their table
    driver     Swept     its commit names the files, which makes them visible all at once

No position is in two slices (protocols/exchange/slices.py), so nothing has to be added up. This
code does not know Spark; `executors.py` carries it there and back.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import Frame
from protocols.algebra.framelog import VERSION
from protocols.exchange.copies import Copy
from protocols.exchange.correction import ahead
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.exchange.mailbox import Log, Mailbox
from protocols.exchange.questions import Maintenance, Question, Snapshot
from protocols.exchange.slices import Slice
from protocols.exchange.together import finish
from protocols.maintenance.registry import protocol
from protocols.views.catalog import Relation
from protocols.views.tree import AnyView
from sources.partitions import Partition, Token
from streaming.figures.measuring import Measures
from streaming.figures.noting import noted
from streaming.intake.asking import Sources
from streaming.intake.reading import Reading, nothing_received
from streaming.settings.configuration import Configuration
from warehouse.files import WrittenFile, write
from warehouse.standing import Standing


@dataclass(frozen=True)
class Batch:
    """The data that all slices of one batch share."""

    configuration: Configuration
    view: AnyView
    #: The name of the protocol that keeps the view.
    protocol: str
    #: The position and vector where the mailbox begins, with tokens and digests after `received`.
    standing: Standing
    #: Source → where it publishes.
    partitions: Mapping[str, Sequence[Partition]]
    #: The directory of the table `changes`.
    directory: Path
    #: Source → the last version received.
    received: Mapping[str, int]
    #: Relation → its changes from the standing up to there, each with its version.
    changes: Mapping[Relation, pl.DataFrame]
    #: The deliveries after the standing.
    order: Deliveries
    #: Relation → all of its rows as of `received`, if a copy answers for its source.
    copies: Mapping[Relation, pl.DataFrame]


@dataclass
class Swept:
    """One slice, swept, and its cost."""

    slice: Slice
    #: The executor that swept it.
    executor: str
    #: Its changes of the view, written and not committed; None if there are none.
    file: WrittenFile | None = None
    #: The questions asked, as entries of `progress`.
    questions: list[dict[str, Any]] = field(default_factory=list)
    #: The number of answers that contained updates after the slice.
    corrected: int = 0
    queries: int = 0
    bytes: int = 0
    #: Questions that copies answered.
    answers_of_copies: int = 0
    #: The seconds that it took, and those of them until its mailbox held the whole batch.
    seconds: float = 0.0
    ready: float = 0.0


def changed_rows(view: AnyView, mailbox: Mailbox[Frame], first: int, last: int) -> Numbers:
    """The positions of all changed rows of these updates, ascending."""
    found = [np.empty(0, np.int64)]
    for relation in view.relations:
        after, upto = (mailbox.version_at(relation.source, cut) for cut in (first - 1, last))
        rows = mailbox.placed(relation, after, upto) if after < upto else None
        if rows is not None:
            found.append(rows.data[POSITION].to_numpy())
    return np.sort(np.concatenate(found))


def batch_of(
    configuration: Configuration,
    view: AnyView,
    protocol: str,
    mailbox: Mailbox[Frame],
    logs: Mapping[Relation, Log[Frame]],
    copies: Iterable[Copy[Frame]],
    partitions: Mapping[str, Sequence[Partition]],
    tokens: Mapping[str, Token],
    digests: Mapping[str, int],
) -> Batch:
    """The data that executors need.

    `tokens` come after the last updates that the mailbox has received, `digests` are of the
    histories up to these, and `copies` are up to date.
    """
    base = mailbox.vector_at(mailbox.start)
    received = {source: mailbox.received(source) for source in view.sources}
    changes = {}
    for relation in view.relations:
        after, upto = base[relation.source], received[relation.source]
        rows = logs[relation].placed(after, upto, range(after + 1, upto + 1))
        if rows is not None:
            changes[relation] = rows.data.rename({POSITION: VERSION})
    order = mailbox.deliveries(mailbox.start, mailbox.last_position)
    standing = Standing(mailbox.start, base, dict(tokens), dict(digests))
    directory = configuration.warehouse / view.name / "changes"
    held = {copy.relation: copy.rows.data for copy in copies if copy.relation in view.relations}
    return Batch(
        configuration,
        view,
        protocol,
        standing,
        partitions,
        directory,
        received,
        changes,
        order,
        held,
    )


# -- at an executor ------------------------------------------------------------------------------


def sweep(batch: Batch, slice_: Slice) -> Swept:
    """Sweeps one slice, with questions, topics and a mailbox of its own."""
    began = time.perf_counter()
    swept = Swept(slice_, _executor())
    measures, stopping = Measures(), threading.Event()
    with (
        closing(_sources(batch, stopping)) as sources,
        closing(_reading(batch, sources, measures, stopping)) as reading,
    ):
        mailbox = Mailbox(reading.received, batch.standing.vector, batch.standing.position)
        mailbox.deliver_as(batch.order)
        swept.ready = time.perf_counter() - began

        def ask(questions: list[Question[Frame]]) -> list[Snapshot[Frame]]:
            told = reading.look_up(questions)
            for question, (answer, found) in zip(questions, told, strict=True):
                if answer.copied:
                    swept.answers_of_copies += 1
                    continue
                swept.corrected += ahead(mailbox, question, found) > 0
                swept.questions.append(noted(question, answer, found.version))
            return [found for _, found in told]

        change = finish(_sweeping(batch, mailbox)(slice_.first, slice_.last), ask)
    if change is not None:
        swept.file = write(batch.directory, change.data.select(*batch.view.schema, COUNT, POSITION))
    swept.queries, swept.bytes = measures.queries, measures.bytes
    swept.seconds = time.perf_counter() - began
    return swept


def _sweeping(
    batch: Batch, mailbox: Mailbox[Frame]
) -> Callable[[int, int], Maintenance[Frame, Frame | None]]:
    stretch = protocol(batch.protocol).stretch
    assert stretch is not None, "the driver hands out no batch of a protocol that cannot be cut"
    return stretch(batch.view, mailbox)


def _executor() -> str:
    """The executor's name: host and parent process, which only forks the workers."""
    return f"{socket.gethostname()}/{os.getppid()}"


def _sources(batch: Batch, stopping: threading.Event) -> Sources:
    known, job = batch.configuration, batch.configuration.job
    used = {source: known.sources[source] for source in batch.view.sources}
    return Sources(used, job.patience_seconds, _report, stopping, job.answer_megabytes)


def _reading(
    batch: Batch, sources: Sources, measures: Measures, stopping: threading.Event
) -> Reading:
    """A reading that goes on where the driver was when it cut the batch."""
    standing = batch.standing
    received = nothing_received(batch.configuration, batch.view.relations, standing)
    for source, version in batch.received.items():
        if version > standing.vector[source]:
            changes = {r: rows for r, rows in batch.changes.items() if r.source == source}
            received.receive(source, version, changes)
    reading = Reading(
        batch.configuration,
        sources,
        received,
        standing,
        batch.partitions,
        measures,
        _report,
        stopping,
    )
    for relation, rows in batch.copies.items():
        version = received.received(relation.source)
        reading.router.add(Copy(relation, received, Frame(rows), version))
    return reading


def _report(message: str) -> None:
    """Writes to the log of the executor."""
    print(message, file=sys.stderr, flush=True)
