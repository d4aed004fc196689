"""The ledger of a source's received versions: where their records are, when they were committed,
the digests of the source's history, and which of them are parts of global transactions.

Parallel arrays, since a backlog has millions of versions.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from sources.history import UNKNOWN, differ
from sources.partitions import Offsets, Partition


class Ledger:
    """The versions received after a first one."""

    def __init__(self, version: int, digest: int, offsets: Offsets) -> None:
        """`version` is the last one before these; `digest` is of the history up to it."""
        #: Arrays over the versions `_first, _first + 1, …`: the commit time (ms), and the number of
        #: records.
        self._first = version + 1
        self._times = array("q")
        self._sizes = array("q")
        #: The digests of the history up to the versions `_first - 1, _first, …`.
        self._digests = array("q", [digest])
        self._marks = {partition: _Marks(offset) for partition, offset in sorted(offsets.items())}
        #: Version → digest, learned from the source or a view before the version has come.
        self._expected: dict[int, int] = {}
        #: The last version at which the history was compared with another one and was the same.
        self.confirmed = version
        #: The versions that are parts of global transactions, and these in order.
        self._parts: dict[int, GlobalPart] = {}
        self._part_versions = array("q")

    @property
    def last(self) -> int:
        """The last version received."""
        return self._first + len(self._times) - 1

    # -- writing -------------------------------------------------------------------------------

    def add(self, times: Numbers, sizes: Numbers, digests: Numbers) -> None:
        """Adds the next versions."""
        first = self.last + 1
        self._times.frombytes(times.tobytes())
        self._sizes.frombytes(sizes.tobytes())
        self._digests.frombytes(digests.tobytes())
        for version in [each for each in self._expected if first <= each <= self.last]:
            if self._expected.pop(version) == self.digest_at(version):
                self.confirmed = max(self.confirmed, version)

    def mark(self, records: Iterable[tuple[Numbers, Numbers]]) -> None:
        """Notes new records: for each partition, ascending, their versions and offsets."""
        for marks, (versions, offsets) in zip(self._marks.values(), records, strict=True):
            marks.add(versions, offsets)

    def add_parts(self, parts: Mapping[int, GlobalPart]) -> None:
        """Adds versions that are parts of global transactions."""
        self._parts.update(parts)
        self._part_versions.extend(sorted(parts))

    def forget(self, version: int) -> None:
        """Drops everything about versions up to this one."""
        done = max(0, version - self._first + 1)
        del self._times[:done], self._sizes[:done], self._digests[:done]
        self._first += done
        for marks in self._marks.values():
            marks.forget(version)
        parts = bisect_right(self._part_versions, version)
        for part in self._part_versions[:parts]:
            del self._parts[part]
        del self._part_versions[:parts]

    # -- history -------------------------------------------------------------------------------

    def agrees(self, version: int, digest: int) -> bool:
        """Whether the history up to a version can have this digest.

        A version that has not come yet is compared when it comes.
        """
        if digest == UNKNOWN:
            return True
        if version > self.last:
            return not differ(self._expected.setdefault(version, digest), digest)
        known = self.digest_at(version)
        if known == digest:
            self.confirmed = max(self.confirmed, version)
        return not differ(known, digest)

    def digest_at(self, version: int) -> int:
        """The digest of the history up to a version; unknown if it is not remembered."""
        place = version - self._first + 1
        return self._digests[place] if 0 <= place < len(self._digests) else UNKNOWN

    def known_digests(self) -> tuple[Numbers, Numbers]:
        """The versions whose digests are remembered, ascending, and these."""
        versions = np.arange(self._first - 1, self._first - 1 + len(self._digests))
        return versions, np.array(self._digests, np.int64)

    def expected(self, versions: Numbers) -> dict[int, int]:
        """Those of these versions whose digests were learned before they came."""
        return {v: self._expected[v] for v in self._expected.keys() & set(versions.tolist())}

    # -- what lies where -----------------------------------------------------------------------

    def version_up_to(self, ends: Offsets) -> int:
        """The last version with a record below these offsets; the one before the first if none."""
        below = (marks.last_below(ends.get(p, 0)) for p, marks in self._marks.items())
        return max(self._first - 1, *below)

    def offsets_after(self, version: int) -> dict[Partition, int]:
        """The offsets for reading on after a version."""
        return {partition: marks.after(version) for partition, marks in self._marks.items()}

    def times(self, after: int, upto: int) -> Numbers:
        """The commit times of the versions in (after, upto]."""
        return np.array(self._times[self._span(after, upto)], np.int64)

    def sizes(self, after: int, upto: int) -> Numbers:
        """The numbers of records of the versions in (after, upto]."""
        return np.array(self._sizes[self._span(after, upto)], np.int64)

    def _span(self, after: int, upto: int) -> slice:
        return slice(after + 1 - self._first, upto + 1 - self._first)

    def part_of(self, version: int) -> GlobalPart | None:
        """The global transaction that a version is a part of."""
        return self._parts.get(version)

    def has_parts(self, after: int, upto: int) -> bool:
        """Whether a version in (after, upto] is a part of a global transaction."""
        versions = self._part_versions
        return bisect_right(versions, after) < bisect_right(versions, upto)


class _Marks:
    """Where the versions have their records in one partition."""

    def __init__(self, offset: int) -> None:
        #: Records of versions before the first of these arrays are below it.
        self._begin = offset
        #: Arrays over the versions with records here: the first one's offset, and that after the
        #: last one.
        self._versions = array("q")
        self._starts = array("q")
        self._ends = array("q")

    def add(self, versions: Numbers, offsets: Numbers) -> None:
        if not len(versions):
            return
        first: NDArray[np.bool_] = np.ones(len(versions), bool)
        first[1:] = versions[1:] != versions[:-1]
        last = np.append(first[1:], True)
        self._versions.frombytes(versions[first].tobytes())
        self._starts.frombytes(offsets[first].tobytes())
        self._ends.frombytes((offsets[last] + 1).tobytes())

    def last_below(self, offset: int) -> int:
        """The last version with a record below an offset; 0 if there is none."""
        at = bisect_left(self._starts, offset)
        return self._versions[at - 1] if at else 0

    def after(self, version: int) -> int:
        """The offset after the last record of the versions up to this one."""
        at = bisect_right(self._versions, version)
        return self._ends[at - 1] if at else self._begin

    def forget(self, version: int) -> None:
        at = bisect_right(self._versions, version)
        if at:
            self._begin = self._ends[at - 1]
            del self._versions[:at], self._starts[:at], self._ends[:at]
