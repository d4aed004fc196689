"""Committed transactions come whole, with their times, sizes and global transactions."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from protocols.exchange.holdback import GlobalPart
from sources.kafka import Kafka
from sources.port import Parts
from tests.conformance.reading import Log, Piece, ends_at
from tests.conformance.stage import Stage, Told

_PIECE = 5


def come_whole(stage: Stage) -> Iterator[str]:
    """Each transaction comes once, in the order of versions, with the rows that it changed."""
    told = stage.told
    reading = told.reading().take_all(told.log)
    if reading.changes.fault is not None:
        yield f"a fault: {reading.changes.fault}"
    yield from reading.kept.differences(told.database.committed, told.last)
    if (now := reading.changes.next) != told.ends:
        yield f"everything was read up to {told.ends}, and `next` is {now}"


def times_and_sizes(stage: Stage) -> Iterator[str]:
    """The commit time of each version, and its number of records."""
    told = stage.told
    changes = told.reading().take_all(told.log).changes
    times, sizes = (each(0, told.last).tolist() for each in (changes.times, changes.sizes))
    for version, each in enumerate(told.database.committed, 1):
        if not each.since <= times[version - 1] <= each.until:
            yield f"version {version} committed at {times[version - 1]}, it was {each}"
    found = sum(map(len, told.log.values()))
    if min(sizes) < 1 or sum(sizes) > found:
        yield f"the sizes {sizes} of {found} records"
    for forgotten in (0, told.last // 2):
        changes.forget(forgotten)
        for after, upto in combinations(range(forgotten, told.last + 1), 2):
            if changes.times(after, upto).tolist() != times[after:upto]:
                yield f"the times of versions {after + 1} to {upto}, {forgotten} are forgotten"
            if changes.sizes(after, upto).tolist() != sizes[after:upto]:
                yield f"the sizes of versions {after + 1} to {upto}, {forgotten} are forgotten"


def parts(stage: Stage) -> Iterator[str]:
    """The parts of global transactions: of received versions, and in partitions read for them."""
    told = stage.told
    expected = {
        version: each.transaction.part
        for version, each in enumerate(told.database.committed, 1)
        if each.transaction.part is not None
    }
    yield from _received_parts(told, expected)
    known = told.source.describe().last_global
    last = max(expected, default=0)
    if known is not None and known < last:
        yield f"the description says that {known} is the last part, it is {last}"
    for upto in (last, told.last) if expected else ():
        found = told.source.parts(Kafka(told.database.bootstrap), ends_at(told.database), upto)
        yield from _read_parts(told, found, {v: p for v, p in expected.items() if v <= upto})


def _received_parts(told: Told, expected: Mapping[int, GlobalPart]) -> Iterator[str]:
    changes = told.reading().take_all(told.log).changes
    for forgotten in (0, min(expected, default=1), told.last):
        changes.forget(forgotten)
        for version in range(forgotten + 1, told.last + 1):
            if changes.part_of(version) != expected.get(version):
                yield f"version {version} is said to be a part of {changes.part_of(version)}"
        for after, upto in combinations(range(forgotten, told.last + 1), 2):
            has = any(after < version <= upto for version in expected)
            if changes.has_parts(after, upto) != has:
                yield f"whether there are parts in versions {after + 1} to {upto}: not {has}"


def _read_parts(told: Told, found: Parts, expected: Mapping[int, GlobalPart]) -> Iterator[str]:
    if found.is_read:
        yield "the parts are said to be known before anything was read"
    for partition, piece in _pieces(told.log):
        found.take(partition, piece)
    if not found.is_read or found.is_cut:
        yield f"everything was read: is_read {found.is_read}, is_cut {found.is_cut}"
    if {v: part for v, part in found.parts.items() if v <= found.upto} != expected:
        yield f"the parts up to {found.upto} are {found.parts}"
        return
    for version in expected:
        reading = told.reading_after(version - 1, found.token_before(version)).take_all(told.log)
        yield from reading.kept.differences(told.database.committed, told.last)
    first = min(expected)
    found.forget(first)
    if first in found.parts:
        yield f"part {first} was forgotten and is still there"


def _pieces(log: Log) -> Iterator[Piece]:
    """The partitions in pieces, by turns."""
    longest = max(map(len, log.values()))
    for begin in range(0, longest, _PIECE):
        for partition, each in log.items():
            if piece := list(each[begin : begin + _PIECE]):
                yield partition, piece
