"""Keeps the newest records of the outbox in memory.

The publisher asks for each record within milliseconds of its commit. Reading it back from the
database took about as much work as a small commit, so the latest records are kept, up to a fixed
size. A publisher that lags further behind reads the outbox.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice

#: Bytes of records to keep; about 12,000 records of usual length.
_KEPT = 4 * 1024 * 1024


class RecentRecords:
    """The records of the last versions, as many as fit. Not thread-safe; its owner guards it."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        #: The records of the consecutive versions after `_before`.
        self._entries: deque[Sequence[bytes]] = deque()
        #: None until the first commit: earlier versions are not here.
        self._before: int | None = None
        self._size = 0

    def extend(self, before: int, entries: Sequence[Sequence[bytes]]) -> None:
        """Adds the records of the versions after `before`, the last version added."""
        if self._before is None:
            self._before = before
        self._entries.extend(entries)
        self._size += sum(map(_size, entries))
        while self._size > self._kept:
            self._size -= _size(self._entries.popleft())
            self._before += 1

    def after(self, version: int, limit: int) -> list[tuple[int, bytes]] | None:
        """Whole versions after this one with at least `limit` records, if there are that many;
        None if some of them are no longer here."""
        if self._before is None or version < self._before:
            return None
        found: list[tuple[int, bytes]] = []
        for records in islice(self._entries, version - self._before, None):
            if len(found) >= limit:
                break
            version += 1
            found += [(version, record) for record in records]
        return found


def _size(records: Sequence[bytes]) -> int:
    return sum(map(len, records))
