"""Checks before a view goes on: sources and topics must have the history that it has seen.

A topic that was recreated and filled again from the source's outbox has the same versions at other
offsets. It is read from its beginning then; versions that the view has seen are dropped as
repetitions.
"""

from collections.abc import Mapping
from dataclasses import replace

from protocols.errors import SourceViolation
from sources.envelope import head_of
from sources.history import UNKNOWN, differ, other_past, parting
from sources.topics import TopicReader
from streaming.intake.asking import Sources
from warehouse.standing import Standing

_PATIENCE = 15.0


class Resuming:
    """The sources and topics as they are when a job starts."""

    def __init__(
        self,
        bootstrap: str,
        topics: Mapping[str, str],
        ends: Mapping[str, tuple[int, int]],
        sources: Sources,
        digests: Mapping[str, int],
    ) -> None:
        self._bootstrap = bootstrap
        #: Source → topic, and the first and next offset there.
        self._topics, self._ends = topics, ends
        self._sources = sources
        #: Source → the digest of its history now; `UNKNOWN` if it keeps none.
        self._digests = digests

    def checked(self, standing: Standing) -> Standing:
        """The standing, with the offsets at which the updates after it begin.

        SourceViolation when a source has another history, or a topic lacks these updates.
        """
        offsets = {}
        for source, offset in standing.offsets.items():
            with TopicReader(self._bootstrap, self._topics[source], _PATIENCE) as reader:
                self._refuse_fork(source, standing, reader)
                version = standing.vector[source]
                offsets[source] = self._offset_behind(source, version, offset, reader)
        return replace(standing, offsets=offsets)

    def _refuse_fork(self, source: str, standing: Standing, reader: TopicReader) -> None:
        version, digest = standing.vector[source], standing.digests.get(source, UNKNOWN)
        if UNKNOWN in (digest, self._digests[source]) or not differ(
            digest, self._digest_at(source, version)
        ):
            return
        low, high = self._ends[source]

        def same(offset: int) -> bool:
            head = _head_at(reader, offset)
            return head is None or not differ(head[1], self._digest_at(source, head[0]))

        last = min(standing.offsets[source], high) - 1
        agreed, differing = 0, version
        # The topic may still hold the old history, which the view has seen, or already the new one.
        if low <= last and not same(last):
            _, place = parting(same, low - 1, last)
            head = _head_at(reader, place)
            assert head is not None
            agreed, differing = head[0] - 1, head[0]
        raise SourceViolation(other_past(source, agreed, differing))

    def _digest_at(self, source: str, version: int) -> int:
        return self._sources.digests(source, [version])[version]

    def _offset_behind(self, source: str, version: int, offset: int, reader: TopicReader) -> int:
        """The offset from which on the topic has all updates after a version."""
        topic, (low, high) = self._topics[source], self._ends[source]
        if offset < low:
            raise SourceViolation(
                f"source {source}: topic {topic!r} begins at offset {low} now, and the view has"
                f" read up to {offset}; the updates between are lost. Remove the view's directory"
                " to recreate it, and keep the topic longer (retention.ms)"
            )
        if offset <= high:
            before = _head_at(reader, offset - 1) if low < offset else None
            if before is None or before[0] <= version:
                return offset
        end = _head_at(reader, high - 1) if low < high else (0, UNKNOWN)
        if end is not None and end[0] < version:
            raise SourceViolation(
                f"source {source}: topic {topic!r} ends at offset {high} with version {end[0]}, and"
                f" the view has seen version {version}: the topic was recreated and is not filled"
                f" again yet, or sources.{source}.topic names another topic now. Correct that, or"
                " start the source, which fills its topic; then the same command goes on"
            )
        return low


def _head_at(reader: TopicReader, offset: int) -> tuple[int, int] | None:
    """Version and digest of the record there; None if it is not a record of a source."""
    try:
        return head_of(reader.value_at(offset))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
