"""From the records of a source's partitions to whole transactions: the port's `Changes`.

A source publishes every record at least once and, in each partition, in the order of commits. So a
record at or before the last one taken is a repetition and is dropped. A record that is neither a
repetition nor the next one shows a gap, and the feed stops there.

    partition 0   5/1 5/3     6/2 …   ─┐
                                       ├─ in the order of places: 5/1 5/2 5/3 6/1 6/2 …
    partition 1       5/2 6/1     7/1 ─┘

With several partitions, records wait until those before them have come from the others. What is
missing is a gap as soon as every partition has a record after it.

Decoding and taking are two steps, because the lookahead decodes in a thread of its own while the
job processes a batch.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.frame import picked
from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.envelope.byrecord import other_global
from sources.envelope.chunks import (
    Chunk,
    Decoded,
    Heads,
    heads_of,
    interleaved,
    joined,
    no_heads,
    of_two_globals,
)
from sources.envelope.decoding import decode
from sources.envelope.form import RECORD, BadRecord, Place
from sources.history import UNKNOWN, other_past
from sources.ledger import Ledger
from sources.partitions import Offsets, Partition, Token, token_of
from sources.port import Receiver

#: (version, order) as one number; orders stay far below this.
_ORDERS = 1 << 32
#: A version so far ahead is a gap in any case, and its product with `_ORDERS` fits into 64 bits.
_FAR = 1 << 30


class Feed:
    """One source's records, from offsets and a version on."""

    def __init__(
        self,
        source: str,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        digest: int = UNKNOWN,
    ) -> None:
        """`digest`: of the source's history up to the last version that the receiver has."""
        self.source = source
        self._relations = tuple(relations)
        self._receiver = receiver
        version = receiver.received(source)
        self._ledger = Ledger(version, digest, offsets)
        self._partitions = tuple(sorted(offsets))
        #: Partition → its next offset; all records below it have been taken.
        self.next = dict(offsets)
        #: The reason why a record at `next` cannot be taken; none after it is taken.
        self.fault: SourceViolation | None = None
        #: The last record taken, in the order of places.
        self._last = Place(version, 0, 0)
        #: The last record read from each partition that was not a repetition.
        self._read = [self._last] * len(self._partitions)
        #: The records of a transaction whose end has not come yet.
        self._open: list[Chunk] = []
        #: Records after one that another partition has to bring.
        self._ahead: list[Chunk] = []

    # -- taking records in ---------------------------------------------------------------------

    def decode(self, partition: Partition, offsets: Numbers, values: pl.Series) -> Decoded:
        """Decodes records with ascending offsets into columns, up to the first bad one."""
        fault, end = None, int(offsets[-1]) + 1
        try:
            records = decode(values, self._relations)
        except BadRecord as bad:
            end = int(offsets[bad.record])
            fault = self._fault_at(partition, end, bad.reason)
            records = decode(values[: bad.record], self._relations)
        rows = {r: records.rows[r.name] for r in self._relations if len(records.rows[r.name])}
        heads = heads_of(records, offsets, self._partitions.index(partition))
        return Decoded(Chunk(heads, rows, records.parts), partition, end, fault)

    def lost(self, partition: Partition, loss: SourceViolation) -> Decoded:
        """Stands for records that a partition has lost."""
        return Decoded(Chunk(no_heads(), {}, {}), partition, 0, loss)

    def take(self, decoded: Decoded) -> None:
        """Takes in the next records; whole transactions go on to the receiver."""
        if self.fault is not None:
            return
        partition = decoded.partition
        self.next[partition] = max(self.next[partition], decoded.next_offset)
        self.fault = decoded.fault
        fresh = self._fresh(decoded)
        if not len(fresh.heads):
            return
        if len(self._partitions) > 1:
            fresh = self._in_order(fresh)
        fresh = self._up_to_a_gap(fresh)
        if not len(fresh.heads):
            return
        self._last = fresh.heads.last
        ends = np.flatnonzero(fresh.heads.order == fresh.heads.count)
        if len(ends):
            whole = int(ends[-1]) + 1
            self._receive(joined([*self._open, fresh.where(slice(0, whole))]))
            self._open, fresh = [], fresh.where(slice(whole, None))
        self._keep_open(fresh)

    def _keep_open(self, fresh: Chunk) -> None:
        """Keeps the beginning of a transaction until its end comes."""
        if len(fresh.heads):
            self._open.append(fresh)

    def _fault_at(self, partition: Partition, offset: int, reason: str) -> SourceViolation:
        number = f", partition {partition.number}" if len(self._partitions) > 1 else ""
        place = f"topic {partition.topic}{number}, offset {offset}"
        return SourceViolation(f"source {self.source}, {place}: {reason}")

    def _fault_of(self, heads: Heads, record: int, reason: str) -> SourceViolation:
        """The fault of one of these records, before which its partition stops."""
        partition = self._partitions[int(heads.partition[record])]
        self.next[partition] = int(heads.offset[record])
        return self._fault_at(partition, self.next[partition], reason)

    def _fresh(self, decoded: Decoded) -> Chunk:
        """The records that are not repetitions, up to one of another past."""
        number = self._partitions.index(decoded.partition)
        which = self._not_repeated(decoded.chunk.heads, self._read[number])
        chunk = self._of_one_past(decoded.chunk, which)
        fresh = chunk.where(which[: len(chunk.heads)])
        if len(fresh.heads):
            self._read[number] = fresh.heads.last
        return fresh

    def _not_repeated(self, heads: Heads, last: Place) -> NDArray[np.bool_]:
        """Marks the records after `last`; snapshot records (version 0) count as repetitions."""
        version = np.clip(heads.version - last.version, -1, _FAR)
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
        reason = other_past(self.source, self.confirmed, int(heads.version[first]))
        self.fault = self._fault_of(heads, first, reason)
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
            earlier, remembered = self._ledger.known_digests()
            versions = np.concatenate([earlier, [version], heads.version[fresh]])
            digests = np.concatenate([remembered, [digest], heads.digest[fresh]])
            places = np.minimum(np.searchsorted(versions, heads.version), len(versions) - 1)
            known = np.where(versions[places] == heads.version, digests[places], UNKNOWN)
        for each, expected in self._ledger.expected(heads.version).items():
            known[heads.version == each] = expected
        return known

    @property
    def _last_digest(self) -> int:
        """The digest of the last record taken."""
        if self._open:
            return int(self._open[-1].heads.digest[-1])
        return self._ledger.digest_at(self._ledger.last)

    def _in_order(self, fresh: Chunk) -> Chunk:
        """Fresh records of a partition, and those that waited for them, in the order of places."""
        chunks = [*self._ahead, fresh]
        everything = interleaved(chunks, self._last)
        version = of_two_globals(chunks)
        if version is not None:
            good = int(np.searchsorted(everything.heads.version, version))
            self.fault = self._fault_of(everything.heads, good, other_global(version))
            everything = everything.where(slice(0, good))
        return self._of_one_past(everything, np.ones(len(everything.heads), bool))

    def _up_to_a_gap(self, fresh: Chunk) -> Chunk:
        """The records before the first that does not follow the one before it.

        The others wait if a partition may still bring those that are missing.
        """
        self._ahead = []
        heads, reason = fresh.heads, self._other_global(fresh)
        good = 0
        if reason is None:
            wrong = self._gaps(heads)
            if not len(wrong):
                return fresh
            good = int(wrong[0])
            if self._may_come(heads, good):
                self._ahead = [fresh.where(slice(good, None))]
                return fresh.where(slice(0, good))
            reason = self._gap(heads.where(slice(0, good)), heads.where(slice(good, good + 1)))
        self.fault = self._fault_of(heads, good, reason)
        return fresh.where(slice(0, good))

    def _may_come(self, heads: Heads, record: int) -> bool:
        """Whether a partition may still bring records before this one."""
        place = int(heads.version[record]), int(heads.order[record])
        return any(read[:2] < place for read in self._read)

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

    def _receive(self, whole: Chunk) -> None:
        """Hands whole transactions on and remembers their offsets."""
        changes = {
            relation: picked(rows, [name for name in rows.columns if name != RECORD])
            for relation, rows in whole.rows.items()
            if len(rows)
        }
        heads = whole.heads
        ends = heads.order == heads.count
        self._ledger.mark(self._by_partition(heads))
        self._ledger.add(heads.ts_ms[ends], heads.count[ends], heads.digest[ends])
        if whole.parts:
            versions = set(heads.version[ends].tolist())
            self._ledger.add_parts({v: part for v, part in whole.parts.items() if v in versions})
        self._receiver.receive(self.source, heads.last.version, changes)

    def _by_partition(self, heads: Heads) -> list[tuple[Numbers, Numbers]]:
        """The versions and offsets of the records of each partition."""
        if len(self._partitions) == 1:
            return [(heads.version, heads.offset)]
        mine = [heads.partition == number for number in range(len(self._partitions))]
        return [(heads.version[which], heads.offset[which]) for which in mine]

    # -- what is known of received versions ----------------------------------------------------

    def is_whole_up_to(self, ends: Offsets) -> bool:
        """Whether every transaction with a record below these offsets is complete."""
        if any(self.next[partition] < end for partition, end in ends.items()):
            return False
        limits = np.array([ends.get(partition, 0) for partition in self._partitions])
        waiting = (chunk.heads for chunk in (*self._open, *self._ahead))
        return not any((heads.offset < limits[heads.partition]).any() for heads in waiting)

    def version_up_to(self, ends: Offsets) -> int:
        """The last received version with a record below these offsets."""
        return self._ledger.version_up_to(ends)

    def token_after(self, version: int) -> Token:
        """The token for reading on after a received version."""
        return token_of(self._ledger.offsets_after(version))

    def times(self, after: int, upto: int) -> Numbers:
        """The commit times (ms since the epoch) of the received versions in (after, upto]."""
        return self._ledger.times(after, upto)

    def sizes(self, after: int, upto: int) -> Numbers:
        """The numbers of records of the received versions in (after, upto]."""
        return self._ledger.sizes(after, upto)

    def part_of(self, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        return self._ledger.part_of(version)

    def has_parts(self, after: int, upto: int) -> bool:
        """Whether a received version in (after, upto] is a part of a global transaction."""
        return self._ledger.has_parts(after, upto)

    @property
    def confirmed(self) -> int:
        """The last version at which the history was compared with another one and was the same."""
        return self._ledger.confirmed

    def agrees(self, version: int, digest: int) -> bool:
        """Whether the history up to a version can have this digest, of the source or of a view."""
        return self._ledger.agrees(version, digest)

    def digest_at(self, version: int) -> int:
        """The digest of the history up to a version; unknown if it is not remembered."""
        return self._ledger.digest_at(version)

    def forget(self, version: int) -> None:
        """Drops everything remembered about versions up to this one."""
        self._ledger.forget(version)
