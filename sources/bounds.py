"""How much a query server takes upon itself: per question, and for all of them together.

A question comes from anybody who can connect, so nothing that it makes the server do may grow
without end. Each refusal names its bound and the way out. The bounds lie well above what viewsweep
asks itself: keys of a batch of 100,000 updates are a few MB, views have tens of conditions.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from protocols.errors import WrongUse

MB = 1 << 20

#: Lists and objects in the header of a question; a comparison is three of them. DuckDB's planner
#: takes 12 kB for each, which no setting limits and no interruption ends.
MOST_PARTS = 20_000
#: How deep these may lie in each other; what walks them is recursive, here and in DuckDB.
DEEPEST = 300
MOST_KEY_SETS = 64
MOST_ATOMS = 32
#: Parts of the SQL of a joint question, in which conditions stand once per group of terms.
MOST_JOINED = 50_000
#: The text of a question's header, in bytes.
LONGEST_HEADER = 4 * MB
#: What a question without columns, or with columns of NULLs only, could repeat for nothing.
MOST_ROWS = 10_000_000
#: Lists and objects in the body of a commit: each change is two.
MOST_COMMITTED = 2_500_000
#: … and commas: a number of one digit becomes 8 bytes.
MOST_VALUES = 20_000_000


@dataclass(frozen=True)
class Bounds:
    """What an owner may want to set, by the options of `sources serve`."""

    #: What DuckDB may take for tables and all questions together, in bytes; it spills nothing.
    memory: int = 2048 * MB
    #: How long one question may take.
    seconds: float = 60.0
    #: One question, as it came and unpacked, in bytes.
    question: int = 64 * MB
    #: The rows of one answer, in bytes.
    answer: int = 512 * MB
    #: So many questions wait when all places are taken; the next one is told to come later.
    waiting: int = 200
    #: The body of a commit, in bytes.
    commit: int = 128 * MB


def read_header(text: bytes, what: str) -> Any:
    """The JSON, unless it has too many lists and objects or these lie too deep in each other."""
    if len(text) > LONGEST_HEADER:
        raise WrongUse(
            f"the {what} begins with {len(text)} bytes of JSON, at most {LONGEST_HEADER} are read;"
            " send values as keys, or ask in several"
        )
    parts = _parts(text)
    if parts > MOST_PARTS:
        raise WrongUse(
            f"the {what} has {parts} parts, at most {MOST_PARTS} are read; send values as keys, or"
            " ask in several"
        )
    form = loads(text, what)
    # Almost every question has fewer parts than may lie in each other.
    if parts > DEEPEST and _depth(form) > DEEPEST:
        raise WrongUse(
            f"the {what} is nested more than {DEEPEST} deep; write its conditions flatter"
        )
    return form


def loads(text: bytes, what: str) -> Any:
    """The JSON; WrongUse when it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WrongUse(f"the {what} is not JSON: {error}") from None


def check_commit(body: memoryview, most_bytes: int) -> bytes:
    """The body of a commit, unless it would take too much memory to read."""
    text = bytes(body) if len(body) <= most_bytes else b""
    if not text or _parts(text) > MOST_COMMITTED or text.count(b",") > MOST_VALUES:
        raise WrongUse(
            f"a commit of {len(body)} bytes: at most {most_bytes} bytes, {MOST_COMMITTED} lists and"
            f" objects and {MOST_VALUES} values are taken at once; commit in several, or raise"
            " --largest-commit"
        )
    return text


def _parts(text: bytes) -> int:
    """At least as many as there are lists and objects."""
    return text.count(b"[") + text.count(b"{")


def _depth(form: Any) -> int:
    """How deep lists and objects lie in each other, found level by level."""
    depth, level = 0, [form]
    while level:
        depth += 1
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for parts in inside for part in parts if isinstance(part, (dict, list))]
    return depth
