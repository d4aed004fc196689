"""Reads the partitions of a source through the port, as a job does, and keeps what comes."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION
from protocols.errors import SourceViolation, Unreachable
from protocols.views.catalog import Relation
from sources.history import UNKNOWN, other_past
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Partition, Token, more_in, offsets_in
from sources.port import Changes, Source
from sources.topics import ends_of
from streaming.intake.asking import refuse_reset
from tests.conformance.adapter import Database
from tests.conformance.committed import Committed, Net, net
from tests.harness.records import records
from tests.harness.waiting import patience

#: Partition → its records in order: (offset, value).
Log: TypeAlias = Mapping[Partition, Sequence[tuple[int, bytes]]]
#: A piece of a partition: consecutive records.
Piece: TypeAlias = tuple[Partition, Sequence[tuple[int, bytes]]]


class Kept:
    """A receiver that keeps every version's changes, and notes what no receiver should get."""

    def __init__(self, version: int) -> None:
        self.first = version
        self.version = version
        self.changes: dict[int, Net] = {}
        self.wrong: list[str] = []

    def received(self, _source: str) -> int:
        return self.version

    def receive(self, _source: str, version: int, changes: Mapping[Relation, pl.DataFrame]) -> None:
        if version <= self.version:
            self.wrong.append(f"version {version} is received after version {self.version}")
        found: dict[int, list[tuple[str, Any, int]]] = {}
        for relation, rows in changes.items():
            ordered = rows.select(*relation.column_names, COUNT, VERSION)
            for *row, count, number in ordered.iter_rows():
                found.setdefault(number, []).append((relation.name, tuple(row), count))
        if outside := [each for each in found if not self.version < each <= version]:
            self.wrong.append(f"versions {self.version + 1} to {version} bring rows of {outside}")
        for number, each in found.items():
            self.changes[number] = net(each)
        self.version = max(self.version, version)

    def differences(self, committed: Sequence[Committed], upto: int) -> Iterator[str]:
        """What is not exactly the committed versions from the first one up to this one."""
        yield from self.wrong
        if self.version != upto:
            yield f"version {self.version} is the last one received, not {upto}"
        for version in range(self.first + 1, min(self.version, len(committed)) + 1):
            expected, found = committed[version - 1].net, self.changes.get(version, Counter())
            if found != expected:
                yield f"version {version}: received is {dict(found)}, committed {dict(expected)}"


class Reading:
    """The changes of a source after a version, and what they have brought."""

    def __init__(
        self,
        source: Source,
        relations: Iterable[Relation],
        offsets: Offsets,
        version: int = 0,
        digest: int = UNKNOWN,
        more: Sequence[int] = (),
    ) -> None:
        self.kept = Kept(version)
        self.changes: Changes = source.changes(tuple(relations), self.kept, offsets, more, digest)

    def take(self, partition: Partition, piece: Sequence[tuple[int, bytes]]) -> None:
        """Takes consecutive records of a partition."""
        take(self.changes, partition, piece)

    def take_all(self, log: Log) -> "Reading":
        """Takes what the partitions hold from its offsets on, one partition after the other."""
        take_all(self.changes, log)
        return self


def take(changes: Changes, partition: Partition, piece: Sequence[tuple[int, bytes]]) -> None:
    """Takes consecutive records of a partition."""
    if piece:
        offsets = np.array([offset for offset, _ in piece], np.int64)
        values = pl.Series("value", [value for _, value in piece], pl.Binary)
        changes.take(changes.decode(partition, offsets, values))


def take_all(changes: Changes, log: Log) -> None:
    """Takes what the partitions hold and is not taken, one partition after the other."""
    for partition, begin in dict(changes.next).items():
        take(changes, partition, [each for each in log[partition] if each[0] >= begin])


def beginning(log: Log) -> dict[Partition, int]:
    """The first offset of each partition."""
    return {partition: each[0][0] if each else 0 for partition, each in log.items()}


def ends_at(database: Database) -> Ends:
    """The ends of the partitions as they are now."""
    source = database.source
    return ends_of(Kafka(database.bootstrap), {source.name: source.topics})[source.name]


def log_of(database: Database) -> Log:
    """What the partitions hold now."""
    lows = {partition: low for partition, (low, _) in ends_at(database).items()}
    found: dict[Partition, list[tuple[int, bytes]]] = {partition: [] for partition in lows}
    rows = records(database.bootstrap, lows).sort("topic", "partition", "offset")
    for topic, number, offset, value in rows.iter_rows():
        found[Partition(topic, number)].append((offset, value))
    return found


#: What has to become of a reader, if only one of the two will do.
Expected: TypeAlias = Literal["goes on", "refused"] | None
#: A message with a way out has one of these.
_WAY_OUT = re.compile(r"\b(remove|recreate|restore|start|put|correct|delete|let)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Mark:
    """Where a view stands at a source."""

    version: int
    token: Token
    digest: int


def marks_of(
    database: Database, relations: Iterable[Relation], versions: Iterable[int]
) -> list[Mark]:
    """Where views stand that have read from the beginning up to these versions."""
    source, log = database.source, log_of(database)
    changes = Reading(source, relations, beginning(log)).take_all(log).changes
    return [Mark(v, changes.token_after(v), source.digests([v])[v]) for v in versions]


def continued(database: Database, relations: Iterable[Relation], mark: Mark) -> Reading:
    """Goes on after a mark, as a job does that starts again; raises what a job would."""
    source, ends = database.source, ends_at(database)
    source.begin(Kafka(database.bootstrap), ends, (mark.version, mark.token))
    described = source.describe()
    refuse_reset({source.name: mark.version}, {source.name: described.version})
    token = source.resumed(Kafka(database.bootstrap), ends, mark.version, mark.token, mark.digest)
    offsets = offsets_in(token, ends)
    assert offsets is not None, f"the token {token} is not about {sorted(ends)}"
    more = more_in(token, ends)
    reading = Reading(source, relations, offsets, mark.version, mark.digest, more)
    reading.changes.agrees(described.version, described.digest)
    reading.take_all(log_of(database))
    if reading.changes.fault is not None:
        raise reading.changes.fault
    last = reading.kept.version
    if not reading.changes.agrees(last, source.digests([last])[last]):
        raise SourceViolation(other_past(source.name, reading.changes.confirmed, last))
    return reading


def _insisted(database: Database, relations: Iterable[Relation], mark: Mark) -> Reading:
    """Goes on after a mark. On a busy machine an answer may come too late: then it asks again.

    A database whose answers come through its topic cannot be asked while it does not publish.
    """
    until = time.monotonic() + patience()
    while True:
        try:
            return continued(database, relations, mark)
        except Unreachable:
            if database.is_asked_through_its_topic or time.monotonic() > until:
                raise


def outcome(
    database: Database,
    relations: Iterable[Relation],
    mark: Mark,
    expected: Expected = None,
) -> Iterator[str]:
    """What is wrong after a mark: it goes on with other than the rest, or is refused without a
    reason and a way out; or it is not what is expected."""
    try:
        reading = _insisted(database, relations, mark)
    except (SourceViolation, Unreachable) as refusal:
        if expected == "goes on":
            yield f"refused: {refusal}"
        elif database.source.name not in str(refusal) or not _WAY_OUT.search(str(refusal)):
            yield f"refused without the source's name and a way out: {refusal}"
        return
    if expected == "refused":
        yield f"it goes on, up to version {reading.kept.version}"
    yield from reading.kept.differences(database.committed, len(database.committed))
