"""Bounds on the work of a query server: per question, and for all questions together.

Anyone who can connect may send a question, so its cost to the server must be bounded. Each refusal
names its bound and the way out. The bounds are well above what viewsweep itself asks: the keys of a
batch of 100,000 updates are a few MB, and views have tens of conditions.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from protocols.errors import WrongUse

MB = 1 << 20

#: Lists and objects in the header of a question; a comparison is three of them. DuckDB's planner
#: takes 12 kB for each; no setting limits this, and an interrupt does not stop it.
MOST_PARTS = 20_000
#: How deep they may be nested; the code that walks them is recursive, here and in DuckDB.
DEEPEST = 300
MOST_KEY_SETS = 64
MOST_ATOMS = 32
#: Parts of the SQL of a joint question, which repeats the conditions for each group of terms.
MOST_JOINED = 50_000
#: The text of a question's header, in bytes.
LONGEST_HEADER = 4 * MB
#: Rows in a key set: without columns, or with NULLs only, rows take no bytes in the question.
MOST_ROWS = 10_000_000
#: Lists and objects in the body of a commit: each change is two.
MOST_COMMITTED = 2_500_000
#: Commas in the body of a commit: a number of one digit becomes 8 bytes.
MOST_VALUES = 20_000_000


@dataclass(frozen=True)
class Bounds:
    """Bounds that the owner of a source can set with options of `sources serve`."""

    #: Memory of DuckDB for tables and all questions together, in bytes; it spills nothing.
    memory: int = 2048 * MB
    #: The longest time for one question.
    seconds: float = 60.0
    #: One question, as received and unpacked, in bytes.
    question: int = 64 * MB
    #: The rows of one answer, in bytes.
    answer: int = 512 * MB
    #: Questions that may wait when all places are taken; the next one is refused as busy.
    waiting: int = 200
    #: The body of a commit, in bytes.
    commit: int = 128 * MB


def read_header(text: bytes, what: str) -> Any:
    """The JSON; WrongUse if it has too many lists and objects or is nested too deep."""
    if len(text) > LONGEST_HEADER:
        raise WrongUse(
            f"the JSON of the {what} has {len(text)} bytes, but the limit is {LONGEST_HEADER}; send"
            " values as keys, or split the question"
        )
    parts = _parts(text)
    if parts > MOST_PARTS:
        raise WrongUse(
            f"the JSON of the {what} has {parts} parts, but the limit is {MOST_PARTS}; send values"
            " as keys, or split the question"
        )
    form = loads(text, what)
    # Most questions have fewer parts than the depth allowed.
    if parts > DEEPEST and _depth(form) > DEEPEST:
        raise WrongUse(
            f"the {what} is nested more than {DEEPEST} levels deep; flatten its conditions"
        )
    return form


def loads(text: bytes, what: str) -> Any:
    """Parses JSON; WrongUse if the text is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WrongUse(f"the {what} is not JSON: {error}") from None


def check_commit(body: memoryview, most_bytes: int) -> bytes:
    """The body of a commit; WrongUse if reading it would take too much memory."""
    text = bytes(body) if len(body) <= most_bytes else b""
    if not text or _parts(text) > MOST_COMMITTED or text.count(b",") > MOST_VALUES:
        raise WrongUse(
            f"the commit has {len(body)} bytes, but at most {most_bytes} bytes, {MOST_COMMITTED}"
            f" lists and objects and {MOST_VALUES} values are accepted at once; split the commit,"
            " or raise --largest-commit"
        )
    return text


def _parts(text: bytes) -> int:
    """An upper bound on the number of lists and objects."""
    return text.count(b"[") + text.count(b"{")


def _depth(form: Any) -> int:
    """How deep lists and objects are nested, found level by level."""
    depth, level = 0, [form]
    while level:
        depth += 1
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for parts in inside for part in parts if isinstance(part, (dict, list))]
    return depth
