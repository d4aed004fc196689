"""Spark's checkpoint, read before Spark does: how far it has fed us, or why it cannot be used.

It is a hint: Delta says where to go on, and a job without a checkpoint makes a new one. But Spark
trusts it. A file that is damaged, or is about other topics, would end every start, so all files
that Spark would read are checked first.

    metadata        {"id": …}
    sources/0/0     v1, then the offsets at which the first batch began, by topic
    offsets/N       v1, settings, then the end offsets of batch N: {"topic": {"0": 17, "1": 4}}
    commits/N       v1, then Spark's notes on batch N, which is done

Beside each lies a checksum, which Hadoop compares.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from protocols.errors import ViewsweepError
from sources.partitions import Ends, Offsets, Partition

_FORMAT = "v1"


class NotUsable(ViewsweepError):
    """The reason why Spark could not go on with a checkpoint."""


def fed_offsets(checkpoint: Path, ends: Ends) -> dict[Partition, int] | None:
    """Partition → the offset after the last one that Spark has fed; None before its first batch.

    `ends`: of the partitions that are read. NotUsable if the checkpoint is damaged or is about
    other ones.
    """
    if not checkpoint.exists():
        return None
    try:
        return _fed(checkpoint, ends)
    except OSError as error:
        raise NotUsable(f"{error.filename or checkpoint}: {error.strerror or error}") from None


def offsets_in(file: Path) -> dict[Partition, int]:
    """Partition → offset in a file of a checkpoint."""
    offsets = _json(file, _versioned(file)[-1])
    try:
        return {
            Partition(topic, int(number)): int(offset)
            for topic, partitions in offsets.items()
            for number, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise NotUsable(f"{file} has no offsets of topics") from None


def _fed(checkpoint: Path, ends: Ends) -> dict[Partition, int] | None:
    if not checkpoint.is_dir():
        raise NotUsable(f"{checkpoint} is not a directory")
    metadata = checkpoint / "metadata"
    if metadata.exists() and "id" not in _json(metadata, _lines(metadata)[0]):
        raise NotUsable(f"{metadata} has no id")
    for first in _numbered(checkpoint / "sources/0").values():
        offsets_in(first)
    done = _numbered(checkpoint / "commits")
    for file in done.values():
        _json(file, _versioned(file)[-1])
    begun = _numbered(checkpoint / "offsets")
    reached = {number: offsets_in(file) for number, file in begun.items()}
    newest = max(begun, default=-1)
    if max(done, default=-1) > newest or (newest > 0 and newest - 1 not in begun):
        raise NotUsable(f"{checkpoint / 'offsets'} lacks batches")
    if not begun:
        return None
    _refuse_others(begun[newest], reached[newest], ends)
    return reached[newest]


def _numbered(directory: Path) -> dict[int, Path]:
    """Number of a batch → its file."""
    if not directory.exists():
        return {}
    return {int(file.name): file for file in directory.iterdir() if file.name.isdecimal()}


def _refuse_others(file: Path, reached: Offsets, ends: Ends) -> None:
    """NotUsable when these are not offsets in the present partitions."""
    if reached.keys() != ends.keys():
        raise NotUsable(f"{file} lists {_names(reached)}, but the job reads {_names(ends)}")
    for partition, offset in reached.items():
        low, high = ends[partition]
        if not low <= offset <= high:
            raise NotUsable(
                f"{file} is at offset {offset} of {partition}, which has {low} to {high}"
            )


def _names(partitions: Iterable[Partition]) -> str:
    return " and ".join(map(str, sorted(partitions))) or "no topic"


def _versioned(file: Path) -> list[str]:
    """The lines after the format's version; NotUsable if there are none."""
    version, *lines = _lines(file)
    if version != _FORMAT or not lines:
        raise NotUsable(f"{file} is damaged")
    return lines


def _lines(file: Path) -> list[str]:
    """The lines of a file, at least one; NotUsable if the content is not what was written."""
    content = file.read_bytes()
    if not _checked(file, content):
        raise NotUsable(f"{file} is damaged: its checksum does not match")
    try:
        # A file of `sources` begins with a zero byte, for old readers.
        return content.removeprefix(b"\0").decode().splitlines() or [""]
    except UnicodeDecodeError:
        raise NotUsable(f"{file} is damaged") from None


def _json(file: Path, line: str) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise NotUsable(f"{file} is damaged") from None
    if not isinstance(value, dict):
        raise NotUsable(f"{file} is damaged")
    return value


def _checked(file: Path, content: bytes) -> bool:
    """Whether Hadoop would accept the file: the checksum beside it, if any, matches."""
    checksums = file.with_name(f".{file.name}.crc")
    if not checksums.exists():
        return True
    written = checksums.read_bytes()
    step = int.from_bytes(written[4:8])
    if not written.startswith(b"crc\0") or step <= 0:
        return False
    chunks = (content[at : at + step] for at in range(0, len(content), step))
    return written[8:] == b"".join(zlib.crc32(chunk).to_bytes(4) for chunk in chunks)
