"""The parts of global transactions in a source's topic, read from its beginning on.

Of other records only the version is read, and not even that of each, so a long topic takes seconds.
"""

import re
from collections.abc import Iterable, Sequence

from protocols.exchange.holdback import GlobalPart
from sources.envelope.byrecord import place_of
from sources.envelope.form import Place
from sources.partitions import Ends, Offsets, Partition, Token, token_of

#: The record of a part contains this; names may also be written with escapes.
_MAY_BE_PART = re.compile(rb'"global"|\\u')


class PartsOfTopic:
    """The parts in one source's partitions."""

    def __init__(self, source: str, ends: Ends, upto: int) -> None:
        """With several partitions, everything up to `upto` has to be below the ends."""
        self.source = source
        #: Partition → the offset where the reading begins.
        self.begin: Offsets = {partition: low for partition, (low, _) in ends.items()}
        #: The last version that matters; 0 if none does.
        self.upto = upto
        #: The last version that was read.
        self.read = 0
        #: Version → the global transaction that it is part of, and the offset of its first record.
        self.parts: dict[int, GlobalPart] = {}
        self._offsets: dict[int, int] = {}
        #: Whether the topic has lost the source's first records.
        self.is_cut = False
        self._begun = False
        #: A part at or before this version is a repetition, or is not needed any more.
        self._last = 0
        #: The partitions that are not read to their ends yet, and these.
        self._unread = {p: high for p, (low, high) in ends.items() if low < high}

    @property
    def is_read(self) -> bool:
        """Whether all parts up to the last version that matters are known."""
        done = self.read >= self.upto if len(self.begin) == 1 else not self._unread
        return done or not self.upto

    def take(self, partition: Partition, records: Sequence[tuple[int, bytes]]) -> None:
        """Takes the next records of a partition, each with its offset.

        A record that cannot be read is skipped: the feed reports it if the view needs it.
        """
        for offset, record in records:
            if _MAY_BE_PART.search(record):
                self._note(offset, record)
        if not self._begun:
            self._begin(records)
        if last := self._first_place(reversed(records)):
            self.read = max(self.read, last.version)
        if records and records[-1][0] + 1 >= self._unread.get(partition, 0):
            self._unread.pop(partition, None)

    def _begin(self, records: Sequence[tuple[int, bytes]]) -> None:
        if len(self.begin) > 1:
            self._begun, self.is_cut = True, any(self.begin.values())
        elif first := self._first_place(records):
            self._begun = True
            self.is_cut = (first.version, first.order) > (1, 1)

    def _first_place(self, records: Iterable[tuple[int, bytes]]) -> Place | None:
        """The place of the first of these records that can be read."""
        found = (place_of(record, self.source) for _, record in records)
        return next((place for place, _ in filter(None, found)), None)

    def _note(self, offset: int, record: bytes) -> None:
        place, part = place_of(record, self.source) or (None, None)
        if place is None or part is None or place.version <= self._last:
            return
        if len(self.begin) == 1:
            if place.order != 1:
                # A part whose first records are lost is as good as lost.
                return
            self._last = place.version
        self.parts[place.version] = part
        self._offsets[place.version] = offset

    def token_before(self, version: int) -> Token:
        """The token for reading on from a version that is a part.

        With several partitions all of them are read again, and what came before is repetition.
        """
        if len(self.begin) > 1:
            return token_of(self.begin)
        return token_of(dict.fromkeys(self.begin, self._offsets[version]))

    def forget(self, version: int) -> None:
        """Drops the parts of versions up to this one."""
        self._last = max(self._last, version)
        self.parts = {v: part for v, part in self.parts.items() if v > version}
        self._offsets = {v: offset for v, offset in self._offsets.items() if v > version}
