"""What is missing or damaged is found, with its place; everything before it has come."""

import re
from collections.abc import Iterator, Sequence

from protocols.errors import SourceViolation
from sources.partitions import Partition
from tests.conformance.reading import Log, Reading
from tests.conformance.stage import Stage, Told


def lost_records(stage: Stage) -> Iterator[str]:
    """Each single record, and each whole transaction, is missed once the partitions are past it."""
    told = stage.told
    for place, version in told.versions.items():
        yield from _lost(told, {place}, version)
    for version in range(1, told.last):
        yield from _lost(told, {p for p, v in told.versions.items() if v == version}, version)


def _lost(told: Told, lost: set[tuple[Partition, int]], version: int) -> Iterator[str]:
    left = {
        partition: [record for record in each if (partition, record[0]) not in lost]
        for partition, each in told.log.items()
    }
    what = f"without {sorted(lost)} of version {version}"
    reading, is_past = told.reading(), True
    for partition, each in left.items():
        past = _past(told, partition, each, version)
        is_past = is_past and past is not None
        reading.take(partition, each[:past])
    if is_past and reading.changes.fault is None:
        yield f"{what}: no fault, though all partitions are past it"
    _take_the_rest(reading, left)
    for wrong in reading.kept.differences(told.database.committed, version - 1):
        yield f"{what}: {wrong}"
    if (fault := reading.changes.fault) is not None:
        yield from _unnamed(told, what, fault, version)


def _past(
    told: Told, partition: Partition, each: Sequence[tuple[int, bytes]], version: int
) -> int | None:
    """The number of records up to the first one after a version.

    If records do not have their versions, up to the END of the next one.
    """
    later = version if told.adapter.has_versions else version + 1
    for number, (offset, _) in enumerate(each, 1):
        if told.versions.get((partition, offset), 0) > later:
            return number
    return None


def _take_the_rest(reading: Reading, log: Log) -> None:
    for partition, each in log.items():
        reading.take(partition, [r for r in each if r[0] >= reading.changes.next[partition]])


def _unnamed(told: Told, what: str, fault: SourceViolation, version: int) -> Iterator[str]:
    """What the message lacks: the source, and the place of a record from which on it misses."""
    found = re.search(r"topic (\S+?),(?: partition (\d+),)? offset (\d+)", str(fault))
    named = 0
    if found is not None:
        place = Partition(found[1], int(found[2] or 0)), int(found[3])
        named = told.versions.get(place, 0)
    if told.source.name not in str(fault) or named < version:
        yield f"{what}: the fault names no place after it: {fault}"


def damaged_records(stage: Stage) -> Iterator[str]:
    """A record of which half is missing is the fault, and so is a loss that the broker reports."""
    told = stage.told
    for (partition, offset), version in list(told.versions.items())[::3]:
        what = f"{partition}, offset {offset}, version {version}, is damaged"
        damaged = {
            p: [(o, v[: len(v) // 2] if (p, o) == (partition, offset) else v) for o, v in each]
            for p, each in told.log.items()
        }
        reading = told.reading()
        for each in sorted(damaged, key=lambda each: each == partition):
            reading.take(each, damaged[each])
        yield from _stopped(told, reading, what, partition, offset, version)
    yield from _reported(told)


def _stopped(
    told: Told, reading: Reading, what: str, partition: Partition, offset: int, version: int
) -> Iterator[str]:
    fault = reading.changes.fault
    if fault is None:
        yield f"{what}: no fault"
    elif not all(str(each) in str(fault) for each in (told.source.name, partition.topic, offset)):
        yield f"{what}: the fault does not name it: {fault}"
    reading.take(partition, [r for r in told.log[partition] if r[0] > offset])
    for each in reading.kept.differences(told.database.committed, version - 1):
        yield f"{what}: {each}"


def _reported(told: Told) -> Iterator[str]:
    """The broker has deleted what lies after the first records of a partition."""
    for partition, each in told.log.items():
        reading, loss = told.reading(), SourceViolation("lost")
        half = len(each) // 2
        for other in told.log:
            reading.take(other, told.log[other] if other != partition else each[:half])
        reading.changes.take(reading.changes.lost(partition, loss))
        received = reading.kept.version
        reading.take(partition, each[half:])
        if reading.changes.fault is not loss or reading.kept.version != received:
            yield f"{partition} has lost records, and reading goes on: {reading.changes.fault}"
