"""From Debezium's records to whole, numbered transactions: the port's `Changes`.

The topic has one partition. A transaction that changes a table gets the next number at its END,
unless the topic had it already: its commit then lies at or before the last one in the database's
log.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from protocols.algebra.framelog import VERSION
from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.debezium.decoding import (
    BEGIN,
    END,
    EVENT,
    BadEvent,
    Events,
    decode,
    no_events,
)
from sources.debezium.layout import TableLayout
from sources.debezium.logform import LogForm
from sources.debezium.merging import is_torn, merged, with_silent_ends
from sources.history import UNKNOWN
from sources.ledger import Ledger
from sources.partitions import Offsets, Partition, Token, token_of
from sources.port import Receiver


@dataclass(frozen=True, eq=False)
class DecodedEvents:
    """Consecutive records of the partition."""

    events: Events
    #: All records below this offset are in this piece or in an earlier one.
    next_offset: int
    #: The reason why the record at `next_offset` cannot be taken.
    fault: SourceViolation | None = None


class DebeziumFeed:
    """One database's records, from an offset and a number on."""

    def __init__(
        self,
        source: str,
        tables: Sequence[TableLayout],
        form: LogForm,
        receiver: Receiver,
        offsets: Offsets,
        committed: int = 0,
    ) -> None:
        """`committed`: the place in the database's log of the last commit before the offsets."""
        self.source = source
        self.next = dict(offsets)
        self.fault: SourceViolation | None = None
        self._tables, self._form = tuple(tables), form
        self._receiver = receiver
        self._last = receiver.received(source)
        self._ledger = Ledger(self._last, UNKNOWN, offsets)
        #: The place of the last commit of all that was read.
        self._committed = committed
        #: The place of the commit that was read last, which may be a repetition.
        self._end = committed
        #: The places of the commits of the versions `_first, _first + 1, …`, and of the one before.
        self._first = self._last + 1
        self._commits = array("q", [committed])
        #: The events of transactions that have not ended.
        self._open = no_events()

    # -- taking records in ---------------------------------------------------------------------

    def decode(self, _partition: Partition, offsets: Numbers, values: pl.Series) -> DecodedEvents:
        """Decodes records with ascending offsets, up to the first bad one."""
        try:
            events = decode(values, offsets, self._tables, self._form)
        except BadEvent as bad:
            good = decode(values[: bad.record], offsets, self._tables, self._form)
            end = int(offsets[bad.record])
            return DecodedEvents(good, end, self._fault_at(end, bad.reason))
        return DecodedEvents(events, int(offsets[-1]) + 1)

    def lost(self, _partition: Partition, loss: SourceViolation) -> DecodedEvents:
        """Stands for records that the partition has lost."""
        return DecodedEvents(no_events(), 0, loss)

    def take(self, decoded: DecodedEvents) -> None:
        """Takes in the next records; whole transactions go on to the receiver."""
        if self.fault is not None:
            return
        [partition] = self.next
        known = self.next[partition]
        self.next[partition] = max(known, decoded.next_offset)
        self.fault = decoded.fault
        fresh = decoded.events
        if len(fresh) and fresh["offset"][0] < known:
            fresh = fresh.at(np.flatnonzero(fresh["offset"] >= known))
        events = self._open.then(fresh)
        if self._form.has_silent_ends:
            events = with_silent_ends(events)
        ends = np.flatnonzero(events["kind"] == END)
        if not len(ends):
            self._open = events
            return
        self._take_whole(events, int(ends[-1]) + 1)

    def _take_whole(self, events: Events, stop: int) -> None:
        """Takes the transactions that have ended; the last END stands before `stop`."""
        open_ = np.arange(stop, len(events))
        whole = events if not len(open_) else events.at(np.arange(stop))
        if is_torn(whole):
            whole, torn = merged(whole)
            if len(torn):
                whole = self._up_to_a_lost_end(whole, int(events["offset"][torn[0]]))
            open_ = np.concatenate([torn, open_])
        self._open = events.at(open_)
        if len(whole):
            whole = self._up_to_a_gap(whole)
        if len(whole):
            self._receive(whole)

    def _up_to_a_lost_end(self, events: Events, begin: int) -> Events:
        """The transactions before the first new one after a BEGIN without END, at this offset.

        A connector that was killed there goes on with that transaction, or with earlier ones.
        """
        ends = np.flatnonzero(events["kind"] == END)
        later = self._new(events["lsn"][ends]) & (events["offset"][ends] > begin)
        if not later.any():
            return events
        self._stop_at(
            begin,
            "the transaction that begins there has no END, and a later one has:"
            f" {self._form.without_end}records are lost, or somebody else writes to this topic."
            " Recreate the views over this source (remove their directories)",
        )
        first = int(np.flatnonzero(later)[0])
        return events.at(np.arange(int(ends[first - 1]) + 1 if first else 0))

    def _up_to_a_gap(self, events: Events) -> Events:
        """The transactions before the first that lacks changes, or has no BEGIN."""
        starts, ends = _spans(events)
        same = events["tx"] == np.repeat(events["tx"][ends], ends + 1 - starts)
        wrong = (events["kind"][starts] != BEGIN) | (ends - starts - 1 != events["count"][ends])
        wrong |= ~np.logical_and.reduceat(same, starts)
        if not wrong.any():
            return self._up_to_another_past(events, starts, ends)
        first = int(np.flatnonzero(wrong)[0])
        start, end = int(starts[first]), int(ends[first])
        self._stop_at(
            int(events["offset"][start]),
            f"transaction {events['tx'][end]} ends with {events['count'][end]} changes, and the"
            f" topic has {end - start - 1} of them from a BEGIN on: records are lost, or somebody"
            " else writes to this topic. Recreate the views over this source (remove their"
            " directories)",
        )
        return events.at(np.arange(start))

    def _up_to_another_past(self, events: Events, starts: Numbers, ends: Numbers) -> Events:
        """The transactions before the first that follows another commit than the last one known.

        A connector says which commit it processed before. One that was just started does not, and
        repeats what it may have published, up to the last commit that is known.
        """
        commits = events["lsn"][ends]
        known = self._known_before(commits)
        before = np.concatenate([[self._end], commits])[:-1]
        said = np.where(ends > starts + 1, events["before"][starts + 1], 0)
        wrong = (commits > known) & (known > 0) & ((said > known) | (before < known))
        if not wrong.any():
            self._end = int(commits[-1])
            return events
        first = int(np.flatnonzero(wrong)[0])
        self._stop_at(
            int(events["offset"][starts[first]]),
            f"the transaction that begins there does not follow the commit at {known[first]} of the"
            " database's log, the last one that is known: transactions between them are missing, or"
            " the database has another past (it was restored or recreated). Recreate the views over"
            " this source (remove their directories)",
        )
        return events.at(np.arange(int(starts[first])))

    def _stop_at(self, offset: int, reason: str) -> None:
        """Takes nothing from this offset on."""
        [partition] = self.next
        self.next[partition] = offset
        self.fault = self._fault_at(offset, reason)

    def _fault_at(self, offset: int, reason: str) -> SourceViolation:
        [partition] = self.next
        return SourceViolation(
            f"source {self.source}, topic {partition.topic}, offset {offset}: {reason}"
        )

    def _receive(self, events: Events) -> None:
        """Numbers whole transactions and hands them on."""
        starts, ends = _spans(events)
        new = self._new(events["lsn"][ends]) & events["has_rows"][ends]
        versions = np.where(new, self._last + np.cumsum(new), 0)
        self._committed = max(self._committed, int(events["lsn"][ends].max()))
        if not new.any():
            return
        of_events = np.repeat(versions, ends + 1 - starts)
        numbers, starts, ends = versions[new], starts[new], ends[new]
        self._last = int(numbers[-1])
        offsets = np.column_stack([events["offset"][starts], events["offset"][ends]]).ravel()
        self._ledger.mark([(np.repeat(numbers, 2), offsets)])
        self._ledger.add(
            events["ts_ms"][ends], events["count"][ends], np.full(len(ends), UNKNOWN, np.int64)
        )
        self._commits.frombytes(events["lsn"][ends].tobytes())
        self._receiver.receive(self.source, self._last, _numbered(events, of_events))

    def _new(self, commits: Numbers) -> NDArray[np.bool_]:
        """Which of these commits, in the order of the topic, it has not had before."""
        return np.asarray(commits > self._known_before(commits))

    def _known_before(self, commits: Numbers) -> Numbers:
        """The last commit in the database's log that is known before each of these."""
        return np.maximum.accumulate(np.concatenate([[self._committed], commits]))[:-1]

    # -- what is known of received versions ----------------------------------------------------

    def is_whole_up_to(self, ends: Offsets) -> bool:
        """Whether every transaction with a record below these offsets is complete."""
        [(partition, taken)] = self.next.items()
        end = ends.get(partition, 0)
        return taken >= end and not bool((self._open["offset"] < end).any())

    def version_up_to(self, ends: Offsets) -> int:
        """The last received version with a record below these offsets."""
        return self._ledger.version_up_to(ends)

    def token_after(self, version: int) -> Token:
        """The token for reading on after a received version."""
        [(partition, offset)] = self._ledger.offsets_after(version).items()
        committed = self._commits[version - self._first + 1]
        return token_of({partition: offset}, committed)

    def times(self, after: int, upto: int) -> Numbers:
        """The commit times (ms since the epoch) of the received versions in (after, upto]."""
        return self._ledger.times(after, upto)

    def sizes(self, after: int, upto: int) -> Numbers:
        """The numbers of records of the received versions in (after, upto]."""
        return self._ledger.sizes(after, upto)

    def part_of(self, _version: int) -> GlobalPart | None:
        """No transaction is a part of a global one."""
        return None

    def has_parts(self, _after: int, _upto: int) -> bool:
        """No transaction is a part of a global one."""
        return False

    @property
    def confirmed(self) -> int:
        """The last version: databases keep no digests of their history."""
        return self._last

    def agrees(self, _version: int, _digest: int) -> bool:
        """Nothing can be compared."""
        return True

    def digest_at(self, _version: int) -> int:
        """Nothing is known."""
        return UNKNOWN

    def forget(self, version: int) -> None:
        """Drops everything remembered about versions up to this one."""
        self._ledger.forget(version)
        done = max(0, version - self._first + 1)
        del self._commits[:done]
        self._first += done


def _spans(events: Events) -> tuple[Numbers, Numbers]:
    """The places of the first event and of the END of each transaction."""
    ends = np.flatnonzero(events["kind"] == END)
    return np.concatenate([[0], ends[:-1] + 1]), ends


def _numbered(events: Events, versions: Numbers) -> dict[Relation, pl.DataFrame]:
    """Relation → its rows with their versions, those of repeated transactions left out."""
    found = {}
    for relation, rows in events.rows.items():
        numbers = versions[rows.get_column(EVENT).to_numpy()]
        placed = rows.drop(EVENT).with_columns(pl.Series(VERSION, numbers))
        if not numbers.all():
            placed = placed.filter(pl.col(VERSION) > 0)
        if len(placed):
            found[relation] = placed
    return found
