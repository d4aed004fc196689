"""What a PostgreSQL database has committed, from its own log: decoded here, by no code of ours.

The format is that of the plugin pgoutput, protocol version 1 (PostgreSQL's manual, chapter
"Logical Replication Message Formats").
"""

import datetime
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg

from protocols.views.catalog import Relation

#: Relation, row (texts), change of its count.
TextChange = tuple[str, tuple[str | None, ...], int]


@dataclass
class Decoded:
    """One transaction: its number, the time of its commit (ms since the epoch), its changes."""

    number: int
    ts_ms: int
    changes: list[TextChange]

    def net(self) -> list[TextChange]:
        """Its changes, added up."""
        counts: Counter[tuple[str, tuple[str | None, ...]]] = Counter()
        for relation, row, count in self.changes:
            counts[relation, row] += count
        return [(*row, count) for row, count in counts.items() if count]


def history(connection: psycopg.Connection, slot: str) -> list[Decoded]:
    """The transactions since a slot of pgoutput was made; they stay in it."""
    found = connection.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'viewsweep')",
        (slot,),
    )
    return list(transactions(bytes(data) for (data,) in found))


def transactions(messages: Iterable[bytes]) -> Iterator[Decoded]:
    """The transactions that change a table, in the order of their commits."""
    names: dict[int, str] = {}
    changes: list[TextChange] = []
    number = ts_ms = 0
    for message in messages:
        kind, rest = message[:1], _Bytes(message[1:])
        if kind == b"B":
            changes = []
            rest.number("Q")
            ts_ms = _EPOCH_MS + rest.number("q") // 1000
            number = rest.number("I")
        elif kind == b"R":
            table = rest.number("I")
            rest.text()
            names[table] = rest.text()
        elif kind in (b"I", b"U", b"D"):
            changes += _rows(names[rest.number("I")], rest)
        elif kind == b"C" and changes:
            yield Decoded(number, ts_ms, changes)


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


#: 2000-01-01, from which PostgreSQL counts.
_EPOCH_MS = 946_684_800_000
#: Our type → the value of a text in which PostgreSQL writes it.
VALUES: dict[str, Callable[[str], Any]] = {
    "BIGINT": int,
    "DOUBLE": float,
    "DECIMAL": Decimal,
    "VARCHAR": str,
    "BOOLEAN": lambda text: text == "t",
    "DATE": datetime.date.fromisoformat,
    "TIMESTAMP": datetime.datetime.fromisoformat,
}


def row_of(texts: Sequence[str | None], relation: Relation) -> tuple[Any, ...]:
    """The values of a row."""
    pairs = zip(texts, relation.columns, strict=True)
    return tuple(None if text is None else VALUES[t.family](text) for text, (_, t) in pairs)
