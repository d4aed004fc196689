"""Checks before a view goes on: source and topic must have the history that it has seen.

A topic that was recreated and filled again from the source's outbox has the same versions at other
offsets. It is read from its beginning then; versions that the view has seen are dropped as
repetitions.
"""

from collections.abc import Callable
from contextlib import ExitStack

from protocols.errors import SourceViolation
from sources.envelope.writing import head_of
from sources.history import UNKNOWN, differ, other_past, parting
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Partition, Token, offsets_in, token_of
from sources.topics import NoRecord, TopicReader

_PATIENCE = 15.0


class Resuming:
    """A view that has seen a version of a source, and the source's partitions as they are now."""

    def __init__(
        self, kafka: Kafka, source: str, ends: Ends, digest_at: Callable[[int], int]
    ) -> None:
        """`digest_at`: version → the digest of the source's history up to it now."""
        self._kafka = kafka
        self._source = source
        self._ends = ends
        self._digest_at = digest_at

    def token(self, version: int, token: Token, digest: int) -> Token:
        """The token at which the changes after a version begin.

        SourceViolation when the source has another history, or a partition lacks these changes.
        """
        known = offsets_in(token, self._ends)
        with ExitStack() as opened:
            readers = {
                partition: opened.enter_context(TopicReader(self._kafka, partition, _PATIENCE))
                for partition in self._ends
            }
            if digest != UNKNOWN and differ(digest, self._digest_at(version)):
                self._refuse_fork(version, known or {}, readers)
            if known is None:
                # Other partitions than before: what the view has seen comes as repetitions.
                self._refuse_unfilled(version, readers)
                return token_of({partition: low for partition, (low, _) in self._ends.items()})
            self._refuse_lost(known)
            offsets = {p: self._offset(version, p, known[p], readers[p]) for p in known}
            if None in offsets.values():
                self._refuse_unfilled(version, readers)
        return token_of(
            {p: self._ends[p][0] if offset is None else offset for p, offset in offsets.items()}
        )

    def _refuse_fork(
        self, version: int, known: Offsets, readers: dict[Partition, TopicReader]
    ) -> None:
        """Raises, with the version up to which both histories are the same."""
        agreed, differing = 0, version
        for partition, reader in readers.items():
            low, high = self._ends[partition]

            def same(offset: int, reader: TopicReader = reader) -> bool:
                head = _head_at(reader, offset)
                return head is None or not differ(head[1], self._digest_at(head[0]))

            last = min(known.get(partition, high), high) - 1
            # The topic may still hold the old history, which the view has seen, or the new one.
            if low <= last and not same(last):
                _, place = parting(same, low - 1, last)
                head = _head_at(reader, place)
                assert head is not None
                if agreed == 0 or head[0] < differing:
                    agreed, differing = head[0] - 1, head[0]
        raise SourceViolation(other_past(self._source, agreed, differing))

    def _refuse_lost(self, known: Offsets) -> None:
        for partition, offset in known.items():
            low, _ = self._ends[partition]
            if offset < low:
                raise SourceViolation(
                    f"source {self._source}: {partition} now begins at offset {low}, but the view"
                    f" has read only up to {offset}; the updates in between are lost. Remove the"
                    " view's directory to recreate it, and keep the topic longer (retention.ms)"
                )

    def _offset(
        self, version: int, partition: Partition, offset: int, reader: TopicReader
    ) -> int | None:
        """The known offset; None if the partition was filled again since."""
        low, high = self._ends[partition]
        if offset > high:
            return None
        before = _head_at(reader, offset - 1) if low < offset else None
        return offset if before is None or before[0] <= version else None

    def _refuse_unfilled(self, version: int, readers: dict[Partition, TopicReader]) -> None:
        """SourceViolation if no partition has a version that the view has seen."""
        found = [self._last_version(partition, readers[partition]) for partition in self._ends]
        if any(last is None or last >= version for last in found):
            return
        topic = next(iter(self._ends)).topic
        at = sum(high for _, high in self._ends.values())
        raise SourceViolation(
            f"source {self._source}: topic {topic!r} ends at offset {at} with version"
            f" {max(last or 0 for last in found)}, but the view has seen version {version}: either"
            " the topic was recreated and has not been refilled yet, or"
            f" sources.{self._source}.topic now names another topic. Correct the name, or start the"
            " source so that it fills its topic; then run the same command again"
        )

    def _last_version(self, partition: Partition, reader: TopicReader) -> int | None:
        """The version of the last record; 0 without records, None if it is not a record of ours."""
        low, high = self._ends[partition]
        if low == high:
            return 0
        head = _head_at(reader, high - 1)
        return None if head is None else head[0]


def _head_at(reader: TopicReader, offset: int) -> tuple[int, int] | None:
    """Version and digest of the record there; None if it is not a record of a source."""
    try:
        return head_of(reader.value_at(offset))
    except (NoRecord, ValueError, KeyError, TypeError, AttributeError):
        return None
