"""The questions and answers of a job's last positions, kept for whoever wants to see them.

Only a job that shows a page keeps them. A record holds the frames that the job had anyway, up to a
number of bytes over all views; the oldest go first. A batch that is too large is noted without its
rows.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from protocols.algebra.frame import Frame
from protocols.algebra.framelog import FrameLog
from protocols.exchange.deliveries import Deliveries
from protocols.exchange.mailbox import Log
from protocols.exchange.questions import Answer, Joint, Question, Snapshot
from protocols.views.catalog import Relation

#: All records together are not larger, and a single one is not larger than its share of this.
_BYTES = 48 * 2**20
_SHARE = 16
_MOST_RECORDS = 5_000


@dataclass(frozen=True, eq=False)
class RecordedAnswer:
    """A question of a view, its answer, and the snapshot that was made of it."""

    question: Question[Frame]
    answer: Answer[Frame]
    found: Snapshot[Frame]


@dataclass(frozen=True, eq=False)
class RecordedBatch:
    """Everything that was installed in one commit of a view, and what was asked for it."""

    #: The vector before it.
    vector: Mapping[str, int]
    order: Deliveries
    #: Relation → its changes after that vector, as far as answers contained them, each with its
    #: version.
    changes: Mapping[Relation, pl.DataFrame]
    answers: tuple[RecordedAnswer, ...]
    bytes: int
    #: Whether it was too large, so that changes and answers are left out.
    too_large: bool = False

    @property
    def first(self) -> int:
        return int(self.order.position[0])

    @property
    def last(self) -> int:
        return int(self.order.position[-1])


class Recording:
    """The records of all views of a job; one thread writes, any may read."""

    def __init__(self, room: int = _BYTES) -> None:
        self._room = room
        self._kept: deque[tuple[str, RecordedBatch]] = deque()
        self._bytes = 0
        #: View → the answers for positions that are not installed yet.
        self._pending: dict[str, list[RecordedAnswer]] = {}
        self._changing = threading.Lock()

    def answered(self, view: str, answer: RecordedAnswer) -> None:
        """Notes an answer that a view has received."""
        self._pending.setdefault(view, []).append(answer)

    def installed(
        self,
        view: str,
        vector: Mapping[str, int],
        order: Deliveries,
        logs: Mapping[Relation, Log[Frame]],
    ) -> None:
        """Notes a commit: the vector before it, what it delivers, the view's relations."""
        last = int(order.position[-1])
        pending = self._pending.pop(view, [])
        answers = [each for each in pending if each.question.position <= last]
        self._pending[view] = [each for each in pending if each.question.position > last]
        newest = dict(vector)
        for name, which in enumerate(order.sources):
            versions = order.version[order.source == name]
            newest[which] = max(newest[which], int(versions.max(initial=0)))
        for each in answers:
            source = each.question.source
            newest[source] = max(newest[source], each.found.version)
        size = sum(map(_size, answers))
        rows = _changes(logs, vector, newest) if size <= self._room // _SHARE else {}
        size += sum(int(each.estimated_size()) for each in rows.values())
        record = RecordedBatch(dict(vector), order, rows, tuple(answers), size)
        if size > self._room // _SHARE:
            record = RecordedBatch(dict(vector), order, {}, (), 0, too_large=True)
        self._keep(view, record)

    def _keep(self, view: str, record: RecordedBatch) -> None:
        with self._changing:
            self._kept.append((view, record))
            self._bytes += record.bytes
            while self._bytes > self._room or len(self._kept) > _MOST_RECORDS:
                self._bytes -= self._kept.popleft()[1].bytes

    def of_view(self, view: str) -> list[RecordedBatch]:
        """The records of a view, the newest first."""
        with self._changing:
            return [record for name, record in reversed(self._kept) if name == view]

    def of(self, view: str, position: int) -> RecordedBatch | None:
        """The record that a position of a view is in; None if it is not kept any more."""
        for record in self.of_view(view):
            if record.first <= position <= record.last:
                return record
        return None


def _changes(
    logs: Mapping[Relation, Log[Frame]], after: Mapping[str, int], upto: Mapping[str, int]
) -> dict[Relation, pl.DataFrame]:
    """The changes of these relations between two vectors, without the memory around them."""
    found = {}
    for relation, log in logs.items():
        assert isinstance(log, FrameLog), "a job keeps its changes in frames"
        rows = log.versioned(after[relation.source], upto[relation.source])
        if rows is not None:
            found[relation] = rows[np.arange(rows.height)]
    return found


def _size(answer: RecordedAnswer) -> int:
    frames = [answer.answer.rows, answer.found.rows]
    if not isinstance(answer.question, Joint):
        frames += answer.question.keys or ()
    return sum(int(frame.data.estimated_size()) for frame in frames)
