"""The order of delivery of one commit, in a note of few bytes.

The note is JSON. It has each source's version before the commit, and the position before it, as
numbers; all else is steps from there, and steps are nearly always 1. So the note keeps, in effect,
only which source comes next: two bits per transaction with four sources, in base64 three.

    {"sources": ["a", "b"], "behind": [3, 5], "position_behind": 7,
     "source": …, "version_steps": …, "position_steps": …, "shown_steps": …}

Each step is stored less one. The parts of a global transaction have a position step of 0. Without
`shown_steps` the view has a state at every position.
"""

import base64
import zlib
from typing import Any

import numpy as np
import orjson

from protocols.errors import WrongUse
from protocols.exchange.deliveries import Deliveries, Numbers

#: The narrowest type that holds all numbers is used.
_WIDTHS = (np.int8, np.int16, np.int32, np.int64)


def order_to_note(order: Deliveries, shown: Numbers | None = None) -> str:
    """The note; `shown` has the ascending positions with a state if not all have one."""
    behind, version_steps = _version_steps(order)
    before = int(order.position[0]) - 1 if len(order) else 0
    note = {
        "sources": order.sources,
        "behind": behind,
        "position_behind": before,
        "source": _packed(order.source),
        "version_steps": _packed(version_steps),
        "position_steps": _packed(_steps(order.position, before)),
    }
    if shown is not None:
        note["shown_steps"] = _packed(_steps(shown, before))
    return orjson.dumps(note, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def order_from_note(text: str) -> tuple[Deliveries, Numbers | None]:
    """The inverse of `order_to_note`."""
    try:
        note: dict[str, Any] = orjson.loads(text)
        behind, before = np.array(note["behind"], np.int64), int(note["position_behind"])
        source = _unpacked(note["source"])
        order = Deliveries(
            tuple(note["sources"]),
            _summed(_unpacked(note["position_steps"]), before),
            source,
            _versions(source, behind, _unpacked(note["version_steps"])),
        )
        shown = note.get("shown_steps")
        return order, None if shown is None else _summed(_unpacked(shown), before)
    except (ValueError, KeyError, TypeError, IndexError, zlib.error):
        raise WrongUse(f"this is not an order of delivery: {text[:60]!r}") from None


def _version_steps(order: Deliveries) -> tuple[Numbers, Numbers]:
    """Each source's version before the order, and the version steps in the order of delivery."""
    grouped, begins = _by_source(order.source)
    source, version = order.source[grouped], order.version[grouped]
    behind = np.zeros(len(order.sources), np.int64)
    behind[source[begins]] = version[begins] - 1
    before = np.roll(version, 1)
    before[begins] = version[begins] - 1
    steps = np.empty_like(version)
    steps[grouped] = version - before - 1
    return behind, steps


def _versions(source: Numbers, behind: Numbers, steps: Numbers) -> Numbers:
    """The inverse of `_version_steps`."""
    grouped, begins = _by_source(source)
    total = np.cumsum(steps[grouped] + 1)
    lengths = np.diff(begins, append=len(source))
    before = (total - steps[grouped] - 1)[begins]
    versions = np.empty_like(source)
    versions[grouped] = total + np.repeat(behind[source[grouped][begins]] - before, lengths)
    return versions


def _by_source(source: Numbers) -> tuple[Numbers, Numbers]:
    """The transactions source by source, each in its order, and where each source begins."""
    # numpy sorts 16-bit numbers by radix, many times faster than longer ones.
    grouped = np.argsort(source.astype(np.uint16), kind="stable")
    return grouped, np.flatnonzero(np.diff(source[grouped], prepend=-1))


def _steps(numbers: Numbers, before: int) -> Numbers:
    return np.diff(numbers, prepend=before) - 1


def _summed(steps: Numbers, before: int) -> Numbers:
    return before + np.cumsum(steps + 1)


def _packed(numbers: Numbers) -> str:
    """The numbers in the narrowest type that holds them, compressed."""
    low, high = (numbers.min(), numbers.max()) if len(numbers) else (0, 0)
    fits = (w for w in _WIDTHS if np.iinfo(w).min <= low and high <= np.iinfo(w).max)
    narrow = numbers.astype(np.dtype(next(fits)).newbyteorder("<"))
    # Runs are all there is to compress; a search for more takes ten times as long.
    squeezing = zlib.compressobj(strategy=zlib.Z_RLE)
    squeezed = squeezing.compress(narrow.tobytes()) + squeezing.flush()
    return f"{narrow.itemsize}:{base64.b64encode(squeezed).decode()}"


def _unpacked(text: str) -> Numbers:
    width, _, squeezed = text.partition(":")
    plain = zlib.decompress(base64.b64decode(squeezed, validate=True))
    return np.frombuffer(plain, f"<i{int(width)}").astype(np.int64)
