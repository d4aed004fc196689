"""What a PostgreSQL database has committed, from its own log: decoded here, by no code of ours.

The format is that of the plugin pgoutput, protocol version 1 (PostgreSQL's manual, chapter
"Logical Replication Message Formats").
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: Relation, row (texts), change of its count.
TextChange = tuple[str, tuple[str | None, ...], int]


@dataclass
class Decoded:
    """One transaction."""

    changes: list[TextChange]

    def net(self) -> list[TextChange]:
        """Its changes, added up."""
        counts: Counter[tuple[str, tuple[str | None, ...]]] = Counter()
        for relation, row, count in self.changes:
            counts[relation, row] += count
        return [(*row, count) for row, count in counts.items() if count]


def transactions(messages: Iterator[bytes]) -> Iterator[Decoded]:
    """The transactions that change a table, in the order of their commits."""
    names: dict[int, str] = {}
    changes: list[TextChange] = []
    for message in messages:
        kind, rest = message[:1], _Bytes(message[1:])
        if kind == b"B":
            changes = []
        elif kind == b"R":
            number = rest.number("I")
            rest.text()
            names[number] = rest.text()
        elif kind in (b"I", b"U", b"D"):
            changes += _rows(names[rest.number("I")], rest)
        elif kind == b"C" and changes:
            yield Decoded(changes)


def _rows(name: str, rest: "_Bytes") -> Iterator[TextChange]:
    before: tuple[str | None, ...] | None = None
    while rest.left:
        mark = rest.take(1)
        row = tuple(rest.row())
        if mark == b"O":
            before = row
            yield name, row, -1
        else:
            # A large value that did not change is left out.
            pairs = zip(row, before or row, strict=True)
            yield name, tuple(old if new is _UNCHANGED else new for new, old in pairs), 1


_UNCHANGED: Any = object()


class _Bytes:
    """The rest of a message."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def left(self) -> bool:
        return self._at < len(self._content)

    def take(self, count: int) -> bytes:
        self._at += count
        return self._content[self._at - count : self._at]

    def number(self, form: str) -> int:
        return int(struct.unpack(f">{form}", self.take(struct.calcsize(f">{form}")))[0])

    def text(self) -> str:
        end = self._content.index(b"\0", self._at)
        found = self._content[self._at : end].decode()
        self._at = end + 1
        return found

    def row(self) -> Iterator[str | None]:
        for _ in range(self.number("H")):
            kind = self.take(1)
            if kind == b"n":
                yield None
            elif kind == b"u":
                yield _UNCHANGED
            else:
                yield self.take(self.number("I")).decode()


#: Our type → the value of a text in which PostgreSQL writes it.
VALUES: dict[str, Callable[[str], Any]] = {
    "BIGINT": int,
    "DOUBLE": float,
    "VARCHAR": str,
    "BOOLEAN": lambda text: text == "t",
}
