"""From the records of a topic to whole transactions in the mailbox, in columns.

A source publishes every record at least once and in order. So whatever stands at or below the
last record taken is a repetition and is dropped, and whatever is neither a repetition nor the
next one in line is a gap, with which nothing can go on. Records come from two readers, the
micro-batch and the lookahead; each record is decoded once, by whichever brings it first.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.frame import picked
from protocols.errors import SourceViolation
from protocols.maintenance.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.envelope import RECORD, BadRecord, Records, decode

#: (version, order) as one number; orders stay far below this.
_ORDERS = 1 << 32

Numbers: TypeAlias = NDArray[np.int64]
_HEAD_NAMES = ("record", "version", "order", "count", "ts_ms")


@dataclass(frozen=True, eq=False)
class _Heads:
    """The heads of some records, as arrays: a handful of records is the usual case."""

    record: Numbers
    version: Numbers
    order: Numbers
    count: Numbers
    ts_ms: Numbers

    def where(self, which: "slice | NDArray[np.bool_]") -> "_Heads":
        return _Heads(*(getattr(self, name)[which] for name in _HEAD_NAMES))

    def shifted(self, received: int) -> "_Heads":
        """For each record the one before it; before the first one, a whole transaction."""
        whole = {"record": -1, "version": received, "order": 0, "count": 0, "ts_ms": 0}
        return _Heads(
            *(np.concatenate(([whole[name]], getattr(self, name)[:-1])) for name in _HEAD_NAMES)
        )


def _heads_of(heads: pl.DataFrame) -> _Heads:
    return _Heads(*(heads.get_column(name).to_numpy() for name in _HEAD_NAMES))


class Receiver(Protocol):
    """What whole transactions are put into: the mailbox, or something in front of it."""

    def received(self, source: str) -> int:
        """The last version of a source that is here."""
        ...

    def receive(self, source: str, version: int, changes: Mapping[Relation, Any]) -> None:
        """Takes in the complete transactions of a source up to `version`, in its order."""
        ...


class Feed:
    """One source's topic, from an offset and a version on."""

    def __init__(
        self,
        source: str,
        topic: str,
        relations: Sequence[Relation],
        receiver: Receiver,
        offset: int,
    ) -> None:
        self.source = source
        self.topic = topic
        self._relations = tuple(relations)
        self._receiver = receiver
        #: All records below this offset have been taken.
        self.next_offset = offset
        #: The records of a transaction whose end has not come yet, with their offsets.
        self._pending = pl.Series("value", [], dtype=pl.Binary)
        self._pending_offsets = pl.Series("offset", [], dtype=pl.Int64)
        #: Parallel lists over the received versions `_first, _first + 1, …`: the offsets of the
        #: first record and behind the last one, and the time of the commit (milliseconds).
        self._first = receiver.received(source) + 1
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._times: list[int] = []
        #: Which of these versions are parts of global transactions.
        self._parts: dict[int, GlobalPart] = {}

    def take(self, offsets: pl.Series, values: pl.Series) -> None:
        """Takes in records with ascending offsets; those taken before are skipped undecoded."""
        start = int(offsets.search_sorted(self.next_offset))
        if start == len(offsets):
            return
        offsets = self._pending_offsets.append(offsets[start:].alias("offset"))
        values = self._pending.append(values[start:].alias("value"))
        self.next_offset = int(offsets[-1]) + 1
        try:
            records = decode(values, self._relations)
        except BadRecord as error:
            raise SourceViolation(
                f"source {self.source}, topic {self.topic}, offset {offsets[error.record]}:"
                f" {error.reason}"
            ) from None
        heads = self._fresh(_heads_of(records.heads))
        self._refuse_gaps(heads, offsets)
        ends = np.flatnonzero(heads.order == heads.count)
        whole = int(ends[-1]) + 1 if len(ends) else 0
        start = int(heads.record[whole]) if whole < len(heads.record) else len(values)
        self._keep_pending(offsets[start:], values[start:])
        if whole:
            complete = heads.where(slice(0, whole))
            self._receive(complete, records, repeated=whole < records.heads.height)
            self._remember(complete, offsets)
            received = range(int(complete.version[0]), int(complete.version[-1]) + 1)
            self._parts.update((v, p) for v, p in records.parts.items() if v in received)

    def _keep_pending(self, offsets: pl.Series, values: pl.Series) -> None:
        """Keeps the beginning of a transaction for when its end comes."""
        self._pending, self._pending_offsets = values, offsets

    def _fresh(self, heads: "_Heads") -> "_Heads":
        """Without repetitions; snapshot records, whose version is 0, are dropped like them."""
        line = heads.version * _ORDERS + heads.order
        seen = self._receiver.received(self.source) * _ORDERS + _ORDERS - 1
        highest_before = np.maximum.accumulate(np.concatenate(([seen], line)))[:-1]
        return heads.where(line > highest_before)

    def _refuse_gaps(self, heads: "_Heads", offsets: pl.Series) -> None:
        """Each record has to be the next of its transaction, or the first of the next one."""
        received = self._receiver.received(self.source)
        was = heads.shifted(received)
        goes_on = (
            (heads.version == was.version)
            & (heads.order == was.order + 1)
            & (heads.count == was.count)
        )
        begins = (heads.version == was.version + 1) & (heads.order == 1) & (was.order == was.count)
        wrong = np.flatnonzero(~(goes_on | begins))
        if len(wrong):
            i = wrong[0]
            raise SourceViolation(
                f"source {self.source}, topic {self.topic}, offset {offsets[int(heads.record[i])]}:"
                f" after record {was.order[i]} of version {was.version[i]} comes record"
                f" {heads.order[i]} of {heads.count[i]} of version {heads.version[i]}: what lies"
                " between is missing. If the topic lost it, the view has to be made anew (remove"
                " its directory); if the publisher skipped it, let it publish again from version"
                f" {received + 1}"
            )

    def _receive(self, heads: "_Heads", records: Records, repeated: bool) -> None:
        changes = {}
        for relation in self._relations:
            rows = records.rows.get(relation.name)
            if rows is None or rows.is_empty():
                continue
            if repeated:
                kept = pl.DataFrame({RECORD: heads.record})
                rows = rows.join(kept, on=RECORD, how="semi", maintain_order="left")
            changes[relation] = picked(rows, [name for name in rows.columns if name != RECORD])
        self._receiver.receive(self.source, int(heads.version[-1]), changes)

    def _remember(self, heads: "_Heads", offsets: pl.Series) -> None:
        places = offsets.to_numpy()[heads.record]
        ends = heads.order == heads.count
        self._starts += places[heads.order == 1].tolist()
        self._ends += (places[ends] + 1).tolist()
        self._times += heads.ts_ms[ends].tolist()

    # -- what lies where -----------------------------------------------------------------------

    def has_read_up_to(self, offset: int) -> bool:
        """Whether every record below this offset has been taken."""
        return self.next_offset >= offset

    def is_whole_up_to(self, offset: int) -> bool:
        """Whether every transaction that begins below this offset is complete."""
        if not self.has_read_up_to(offset):
            return False
        return self._pending_offsets.is_empty() or int(self._pending_offsets[0]) >= offset

    def version_up_to(self, offset: int) -> int:
        """The last version that begins below this offset."""
        return self._first + bisect_left(self._starts, offset) - 1

    def committed_at(self, version: int) -> int:
        """When a received version was committed, in milliseconds since the epoch."""
        return self._times[version - self._first]

    def part_of(self, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        return self._parts.get(version)

    def offset_behind(self, version: int) -> int:
        """The offset behind the last record of a received version."""
        return self._ends[version - self._first]

    def forget(self, version: int) -> None:
        """Drops what was remembered of versions up to this one."""
        done = max(0, version - self._first + 1)
        del self._starts[:done], self._ends[:done], self._times[:done]
        self._first += done
        self._parts = {v: part for v, part in self._parts.items() if v > version}


def positions_of(
    batch: dict[str, tuple[int, int]], feeds: dict[str, Feed]
) -> list[tuple[str, int]]:
    """The order of delivery of a batch: per source the versions (after, upto], merged by time.

    Deterministic for a given batch, and an extension of each source's own order: commit times are
    made ascending within a source first, because clocks may step back.
    """
    timed: list[tuple[int, str, int]] = []
    for source, (after, upto) in batch.items():
        latest = 0
        for version in range(after + 1, upto + 1):
            latest = max(latest, feeds[source].committed_at(version))
            timed.append((latest, source, version))
    return [(source, version) for _, source, version in sorted(timed)]
