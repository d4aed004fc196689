"""From the records of a topic to whole transactions in the mailbox, in columns.

A source publishes every record at least once and in order. So a record at or before the last one
taken is a repetition and is dropped. A record that is neither a repetition nor the next one shows a
gap, and the feed stops there.

Decoding and taking are two steps, because the lookahead decodes in a thread of its own while the
job processes a batch: `Feed.decoded` touches nothing that changes, `Feed.take` is quick and belongs
to the job's thread. A record that cannot be taken (a bad one, a gap) does not raise at once: all
records before it are good, and the fault is raised only when a record after it is needed.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.frame import picked
from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.envelope import RECORD, BadRecord, decode, other_global
from sources.history import UNKNOWN, differ, other_past
from streaming.intake.chunks import Chunk, Heads, Place, heads_of

#: (version, order) as one number; orders stay far below this.
_ORDERS = 1 << 32


class Receiver(Protocol):
    """The receiver of whole transactions: the mailbox, or something in front of it."""

    def received(self, source: str) -> int:
        """The last version received of a source."""
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
        digest: int = UNKNOWN,
    ) -> None:
        """`digest`: of the source's history up to the last version that the receiver has."""
        self.source = source
        self.topic = topic
        self._relations = tuple(relations)
        self._receiver = receiver
        #: All records below this offset have been taken.
        self.next_offset = offset
        #: The reason why the record at `next_offset` cannot be taken; none after it is taken.
        self.fault: SourceViolation | None = None
        #: The last record taken that was not a repetition.
        self._last = Place(receiver.received(source), 0, 0)
        #: The records of a transaction whose end has not come yet.
        self._open: list[Chunk] = []
        #: Parallel arrays over the received versions `_first, _first + 1, …`: the offset of the
        #: first record, the offset after the last one, and the time of the commit (milliseconds).
        self._first = self._last.version + 1
        self._starts = array("q")
        self._ends = array("q")
        self._times = array("q")
        #: The digests of the source's history up to the versions `_first - 1, _first, …`.
        self._digests = array("q", [digest])
        #: Version → digest, learned from the source or a view before the version has come.
        self._expected: dict[int, int] = {}
        #: The last version at which the history was compared with another one and was the same.
        self.confirmed = self._last.version
        #: The received versions that are parts of global transactions, and these in order.
        self._parts: dict[int, GlobalPart] = {}
        self._part_versions = array("q")

    # -- taking records in ---------------------------------------------------------------------

    def decoded(self, offsets: Numbers, values: pl.Series) -> Chunk:
        """Decodes records with ascending offsets into columns, up to the first bad one.

        Depends on nothing that `take` changes, so another thread may call it.
        """
        fault, end = None, int(offsets[-1]) + 1
        try:
            records = decode(values, self._relations)
        except BadRecord as bad:
            end = int(offsets[bad.record])
            fault = self._fault_at(end, bad.reason)
            records = decode(values[: bad.record], self._relations)
        rows = {r: records.rows[r.name] for r in self._relations if len(records.rows[r.name])}
        return Chunk(heads_of(records, offsets), rows, records.parts, end, fault)

    def ended(self, fault: SourceViolation) -> Chunk:
        """A chunk without records, in place of records that the topic has lost."""
        nothing = np.empty(0, np.int64)
        return Chunk(Heads(*[nothing] * len(fields(Heads))), {}, {}, 0, fault)

    def take(self, chunk: Chunk) -> None:
        """Takes in the next records; whole transactions go on to the receiver."""
        if self.fault is not None:
            return
        self.next_offset, self.fault = max(self.next_offset, chunk.next_offset), chunk.fault
        which = self._fresh(chunk.heads)
        chunk = self._of_one_past(chunk, which)
        fresh = self._up_to_a_fault(chunk.where(which[: len(chunk.heads)]))
        if not len(fresh.heads):
            return
        self._last = fresh.heads.last
        ends = np.flatnonzero(fresh.heads.order == fresh.heads.count)
        if len(ends):
            whole = int(ends[-1]) + 1
            self._receive([*self._open, fresh.where(slice(0, whole))])
            self._open, fresh = [], fresh.where(slice(whole, None))
        self._keep_open(fresh)

    def _keep_open(self, fresh: Chunk) -> None:
        """Keeps the beginning of a transaction until its end comes."""
        if len(fresh.heads):
            self._open.append(fresh)

    def _fault_at(self, offset: int, reason: str) -> SourceViolation:
        return SourceViolation(
            f"source {self.source}, topic {self.topic}, offset {offset}: {reason}"
        )

    def _fresh(self, heads: Heads) -> NDArray[np.bool_]:
        """Marks records that are not repetitions; snapshot records (version 0) count as such."""
        last = self._last
        # A version further ahead is a gap in any case; clipped, its product cannot overflow.
        version = np.clip(heads.version - last.version, -1, len(heads) + 1)
        line = version * _ORDERS + np.minimum(heads.order, _ORDERS - 1)
        seen = last.order if last.order < last.size else _ORDERS - 1
        highest_before = np.maximum.accumulate(np.concatenate(([seen], line)))[:-1]
        return np.asarray(line > highest_before)

    def _of_one_past(self, chunk: Chunk, fresh: NDArray[np.bool_]) -> Chunk:
        """The records before the first whose digest contradicts the known one of its version."""
        heads = chunk.heads
        known = self._known(heads, fresh)
        other = np.flatnonzero((heads.digest != known) & (heads.digest != 0) & (known != 0))
        if not len(other):
            return chunk
        first = int(other[0])
        self.next_offset = int(heads.offset[first])
        reason = other_past(self.source, self.confirmed, int(heads.version[first]))
        self.fault = self._fault_at(self.next_offset, reason)
        return chunk.where(slice(0, first))

    def _known(self, heads: Heads, fresh: NDArray[np.bool_]) -> Numbers:
        """For each record the known digest of its version; 0 where none is known."""
        version, digest = self._last.version, self._last_digest
        if fresh.all():
            # Without repetitions only the record just before can be of the same version.
            versions = np.concatenate(([version], heads.version))[:-1]
            digests = np.concatenate(([digest], heads.digest))[:-1]
            known = np.where(versions == heads.version, digests, UNKNOWN)
        else:
            earlier = np.arange(self._first - 1, self._first - 1 + len(self._digests))
            versions = np.concatenate([earlier, [version], heads.version[fresh]])
            digests = np.concatenate([self._digests, [digest], heads.digest[fresh]])
            places = np.minimum(np.searchsorted(versions, heads.version), len(versions) - 1)
            known = np.where(versions[places] == heads.version, digests[places], UNKNOWN)
        for expected in self._expected.keys() & set(heads.version.tolist()):
            known[heads.version == expected] = self._expected[expected]
        return known

    @property
    def _last_digest(self) -> int:
        """The digest of the last record taken."""
        return int(self._open[-1].heads.digest[-1]) if self._open else self._digests[-1]

    def _up_to_a_fault(self, fresh: Chunk) -> Chunk:
        """The records before the first that does not follow the one before it."""
        heads, fault = fresh.heads, self._other_global(fresh)
        good = 0
        if fault is None:
            wrong = self._gaps(heads)
            if not len(wrong):
                return fresh
            good = int(wrong[0])
            fault = self._gap(heads.where(slice(0, good)), heads.where(slice(good, good + 1)))
        self.next_offset = int(heads.offset[good])
        self.fault = self._fault_at(self.next_offset, fault)
        return fresh.where(slice(0, good))

    def _other_global(self, fresh: Chunk) -> str | None:
        """The fault if an open transaction goes on as a part of another global transaction."""
        version = self._last.version
        if not self._open or not len(fresh.heads) or fresh.heads.version[0] != version:
            return None
        same = fresh.parts.get(version) == self._open[0].parts.get(version)
        return None if same else other_global(version)

    def _gaps(self, heads: Heads) -> NDArray[np.int64]:
        """The records that are neither the next of their transaction nor the first of the next."""
        version, order, count = (
            np.concatenate(([before], column[:-1])) if len(column) else column
            for before, column in zip(
                self._last, (heads.version, heads.order, heads.count), strict=True
            )
        )
        goes_on = (heads.version == version) & (heads.order == order + 1) & (heads.count == count)
        begins = (heads.version == version + 1) & (heads.order == 1) & (order == count)
        return np.flatnonzero(~(goes_on | begins))

    def _gap(self, before: Heads, wrong: Heads) -> str:
        was, comes = before.last if len(before) else self._last, wrong.last
        whole = was.version if was.order == was.size else was.version - 1
        return (
            f"after record {was.order} of version {was.version} comes record {comes.order} of"
            f" {comes.size} of version {comes.version}: what comes between is missing. If the topic"
            " lost it, recreate the view (remove its directory); if the publisher skipped it, let"
            f" it publish again from version {whole + 1}"
        )

    def _receive(self, chunks: Sequence[Chunk]) -> None:
        """Hands whole transactions on and remembers their offsets."""
        changes = {}
        for relation in self._relations:
            rows = [chunk.rows[relation] for chunk in chunks if relation in chunk.rows]
            if any(map(len, rows)):
                joined = pl.concat(rows) if len(rows) > 1 else rows[0]
                names = [name for name in joined.columns if name != RECORD]
                changes[relation] = picked(joined, names)
        for chunk in chunks:
            self._remember(chunk)
        self._receiver.receive(self.source, chunks[-1].heads.last.version, changes)

    def _remember(self, chunk: Chunk) -> None:
        heads = chunk.heads
        ends = heads.order == heads.count
        self._starts.frombytes(heads.offset[heads.order == 1].tobytes())
        self._ends.frombytes((heads.offset[ends] + 1).tobytes())
        self._times.frombytes(heads.ts_ms[ends].tobytes())
        self._digests.frombytes(heads.digest[ends].tobytes())
        if self._expected:
            self._confirm(heads.version[ends])
        if not chunk.parts:
            return
        for version in np.unique(heads.version).tolist():
            if version in chunk.parts and version not in self._parts:
                self._parts[version] = chunk.parts[version]
                self._part_versions.append(version)

    def _confirm(self, versions: Numbers) -> None:
        """Compares versions that have come with the digests that were expected of them."""
        for version in self._expected.keys() & set(versions.tolist()):
            if self._expected.pop(version) == self.digest_at(version):
                self.confirmed = max(self.confirmed, version)

    # -- one past ------------------------------------------------------------------------------

    def agrees(self, version: int, digest: int) -> bool:
        """Whether the history up to a version can have this digest, given by the source or a view.

        A version that has not come yet is compared when it comes.
        """
        if digest == UNKNOWN:
            return True
        if version > self._first + len(self._times) - 1:
            return not differ(self._expected.setdefault(version, digest), digest)
        known = self.digest_at(version)
        if known == digest:
            self.confirmed = max(self.confirmed, version)
        return not differ(known, digest)

    def digest_at(self, version: int) -> int:
        """The digest of the history up to a version; unknown if it is not remembered."""
        place = version - self._first + 1
        return self._digests[place] if 0 <= place < len(self._digests) else UNKNOWN

    # -- what lies where -----------------------------------------------------------------------

    def has_read_up_to(self, offset: int) -> bool:
        """Whether every record below this offset has been taken."""
        return self.next_offset >= offset

    def is_whole_up_to(self, offset: int) -> bool:
        """Whether every transaction that begins below this offset is complete."""
        if not self.has_read_up_to(offset):
            return False
        return not self._open or int(self._open[0].heads.offset[0]) >= offset

    def version_up_to(self, offset: int) -> int:
        """The last version that begins below this offset."""
        return self._first + bisect_left(self._starts, offset) - 1

    def committed_at(self, version: int) -> int:
        """The commit time of a received version, in milliseconds since the epoch."""
        return self._times[version - self._first]

    def times(self, after: int, upto: int) -> Numbers:
        """The times of commit of the received versions in (after, upto]."""
        return np.array(
            self._times[after + 1 - self._first : upto + 1 - self._first], dtype=np.int64
        )

    def sizes(self, after: int, upto: int) -> Numbers:
        """The numbers of records of the received versions in (after, upto], with repetitions."""
        span = slice(after + 1 - self._first, upto + 1 - self._first)
        return np.array(self._ends[span], np.int64) - np.array(self._starts[span], np.int64)

    def part_of(self, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        return self._parts.get(version)

    def has_parts(self, after: int, upto: int) -> bool:
        """Whether a received version in (after, upto] is a part of a global transaction."""
        versions = self._part_versions
        return bisect_right(versions, after) < bisect_right(versions, upto)

    def offset_behind(self, version: int) -> int:
        """The offset after the last record of a received version."""
        return self._ends[version - self._first]

    def forget(self, version: int) -> None:
        """Drops everything remembered about versions up to this one."""
        done = max(0, version - self._first + 1)
        del self._starts[:done], self._ends[:done], self._times[:done], self._digests[:done]
        self._first += done
        parts = bisect_right(self._part_versions, version)
        for part in self._part_versions[:parts]:
            del self._parts[part]
        del self._part_versions[:parts]
