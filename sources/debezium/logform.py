"""The form in which one kind of database names transactions and places in its log."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Place(NamedTuple):
    """Where a change stands in the database's log."""

    #: The number of its transaction at the database.
    tx: int
    lsn: int
    #: The place of the commit that the connector processed before it; 0 if the record names none.
    before: int
    #: With table, operation and rows it tells a change from another one of its transaction.
    within: tuple[Any, ...]


class LogForm(Protocol):
    """How records are read; ValueError or KeyError for one that is not of this form."""

    #: The bytes that every record of a mark has.
    of_marks: bytes
    #: Whether a transaction may have a BEGIN and nothing else, such as a CREATE TABLE.
    has_silent_ends: bool
    #: What a transaction may be that has changes and no END, besides records that are lost.
    without_end: str

    def transaction(self, name: str) -> tuple[int, int]:
        """The number of a transaction, and the place of its commit if this is from its END."""
        ...

    def place(self, source: Mapping[str, Any]) -> Place:
        """The place of a change, from its field `source`."""
        ...

    def table(self, source: Mapping[str, Any]) -> tuple[str, str]:
        """The table of a change: its schema or database, and its name."""
        ...

    def mark(self, record: Mapping[str, Any]) -> str | None:
        """The content of the mark that a question has left in the log; None if it is none."""
        ...

    def is_ours(self, collection: str) -> bool:
        """Whether these changes, as an END names them, are the marks of questions."""
        ...
