"""From the records of a topic to whole transactions in the mailbox, in columns.

A source publishes every record at least once and in order. So whatever stands at or below the
last record taken is a repetition and is dropped, and whatever is neither a repetition nor the
next one in line is a gap, with which nothing can go on. Records come from two readers, the
micro-batch and the lookahead; each record is decoded once, by whichever brings it first.
"""

from bisect import bisect_left
from collections.abc import Sequence

import polars as pl

from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation
from protocols.maintenance.mailbox import Mailbox
from protocols.views.catalog import Relation
from sources.envelope import RECORD, BadRecord, decode

#: (version, order) as one number; orders stay far below this.
_ORDERS = 1 << 32


class Feed:
    """One source's topic, from an offset and a version on."""

    def __init__(
        self,
        source: str,
        topic: str,
        relations: Sequence[Relation],
        mailbox: Mailbox[Frame],
        offset: int,
    ) -> None:
        self.source = source
        self.topic = topic
        self._relations = tuple(relations)
        self._mailbox = mailbox
        #: All records below this offset have been taken.
        self.next_offset = offset
        #: The records of a transaction whose end has not come yet, with their offsets.
        self._pending = pl.Series("value", [], dtype=pl.Binary)
        self._pending_offsets = pl.Series("offset", [], dtype=pl.Int64)
        #: Parallel lists over the received versions `_first, _first + 1, …`: the offsets of the
        #: first record and behind the last one, and the time of the commit (milliseconds).
        self._first = mailbox.received(source) + 1
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._times: list[int] = []

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
        heads = self._new_heads(records.heads)
        self._refuse_gaps(heads, offsets)
        whole = heads.filter(pl.col("order") == pl.col("count"))
        last = int(whole["version"][-1]) if whole.height else None
        self._keep_pending(heads, last, offsets, values)
        if last is not None:
            self._receive(heads, last, records.rows)
            self._remember(heads.filter(pl.col("version") <= last), offsets)

    def _new_heads(self, heads: pl.DataFrame) -> pl.DataFrame:
        """Without snapshot records and repetitions."""
        line = (pl.col("version") * _ORDERS + pl.col("order")).alias("_line")
        seen = self._mailbox.received(self.source) * _ORDERS + _ORDERS - 1
        before = pl.col("_line").cum_max().shift(1, fill_value=seen).clip(lower_bound=seen)
        fresh = heads.filter(pl.col("op") != "r").with_columns(line)
        return fresh.filter(pl.col("_line") > before).drop("_line")

    def _refuse_gaps(self, heads: pl.DataFrame, offsets: pl.Series) -> None:
        """Each record has to be the next of its transaction, or the first of the next one."""
        version, order, count = pl.col("version"), pl.col("order"), pl.col("count")
        received = self._mailbox.received(self.source)
        was_version = version.shift(1, fill_value=received)
        was_order, was_count = order.shift(1, fill_value=0), count.shift(1, fill_value=0)
        goes_on = (version == was_version) & (order == was_order + 1) & (count == was_count)
        begins = (version == was_version + 1) & (order == 1) & (was_order == was_count)
        wrong = heads.with_columns(was_version.alias("_was"), was_order.alias("_was_order")).filter(
            ~(goes_on | begins)
        )
        if wrong.height:
            row = wrong.row(0, named=True)
            raise SourceViolation(
                f"source {self.source}, topic {self.topic}, offset {offsets[row['record']]}:"
                f" after record {row['_was_order']} of version {row['_was']} comes record"
                f" {row['order']} of {row['count']} of version {row['version']}: what lies between"
                " is missing. If the topic lost it, the view has to be made anew (remove its"
                " directory); if the publisher skipped it, let it publish again from"
                f" version {received + 1}"
            )

    def _keep_pending(
        self, heads: pl.DataFrame, last: int | None, offsets: pl.Series, values: pl.Series
    ) -> None:
        rest = heads if last is None else heads.filter(pl.col("version") > last)
        start = int(rest["record"][0]) if rest.height else len(values)
        self._pending, self._pending_offsets = values[start:], offsets[start:]

    def _receive(self, heads: pl.DataFrame, last: int, rows: dict[str, pl.DataFrame]) -> None:
        kept = heads.filter(pl.col("version") <= last).select("record")
        changes = {}
        for relation in self._relations:
            part = rows.get(relation.name)
            if part is not None and part.height:
                fresh = part.join(kept, left_on=RECORD, right_on="record", how="semi")
                changes[relation] = fresh.drop(RECORD)
        self._mailbox.receive(self.source, last, changes)

    def _remember(self, heads: pl.DataFrame, offsets: pl.Series) -> None:
        places = heads.with_columns(offsets.gather(heads["record"]).alias("_offset"))
        self._starts += places.filter(pl.col("order") == 1)["_offset"].to_list()
        last = places.filter(pl.col("order") == pl.col("count"))
        self._ends += (last["_offset"] + 1).to_list()
        self._times += last["ts_ms"].to_list()

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

    def offset_behind(self, version: int) -> int:
        """The offset behind the last record of a received version."""
        return self._ends[version - self._first]

    def forget(self, version: int) -> None:
        """Drops what was remembered of versions up to this one."""
        done = max(0, version - self._first + 1)
        del self._starts[:done], self._ends[:done], self._times[:done]
        self._first += done


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
