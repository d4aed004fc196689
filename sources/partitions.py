"""The partitions in which a source publishes, and the token from which it is read on.

A token is a tuple of numbers, since Delta stores numbers beside a commit. The first tells which
partitions it is about, then come their offsets, then whatever the adapter adds. Kept with a vector,
it means: every record of a later transaction is at or after these offsets.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import orjson


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int = 0

    def __str__(self) -> str:
        return f"topic {self.topic!r}" + (f", partition {self.number}" if self.number else "")


#: Partition → an offset in it.
Offsets: TypeAlias = Mapping[Partition, int]
#: Partition → the first offset that is still there, and the next one to be written.
Ends: TypeAlias = Mapping[Partition, tuple[int, int]]
Token: TypeAlias = tuple[int, ...]


def token_of(offsets: Offsets, *more: int) -> Token:
    """The token for reading on at these offsets, with numbers of the adapter's own."""
    ordered = sorted(offsets)
    return (_names(ordered), *(offsets[partition] for partition in ordered), *more)


def offsets_in(token: Token, partitions: Iterable[Partition]) -> dict[Partition, int] | None:
    """The offsets of a token; None if it is about other partitions than these."""
    ordered = sorted(partitions)
    if len(token) == 1 and len(ordered) == 1:
        # The lakes of version 0.1 have the offset of a source's only partition.
        return {ordered[0]: token[0]}
    if len(token) <= len(ordered) or token[0] != _names(ordered):
        return None
    return dict(zip(ordered, token[1:], strict=False))


def more_in(token: Token, partitions: Iterable[Partition]) -> tuple[int, ...]:
    """The numbers that the adapter added to a token about these partitions."""
    return token[1 + len(list(partitions)) :]


def _names(partitions: Iterable[Partition]) -> int:
    """A number for a set of partitions."""
    return zlib.crc32(orjson.dumps([list(partition) for partition in partitions]))
