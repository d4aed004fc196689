"""How Debezium names MariaDB's transactions and places in its log."""

from collections.abc import Mapping
from typing import Any

from sources.debezium.logform import Place


class MariaDBLogForm:
    """Transactions are named "domain-server-number", the GTID.

    The numbers of a domain have no gaps, so each tells the one before it. An ALTER TABLE has a
    number too, and a BEGIN, but no END.
    """

    has_silent_ends = True
    without_end = "it is a prepared XA transaction, whose end the log does not tell, or "

    def __init__(self, database: str, marks: str) -> None:
        """`marks`: the table in which questions leave their marks."""
        self._marks = database, marks
        self.of_marks = f'"table":"{marks}"'.encode()

    def transaction(self, name: str) -> tuple[int, int]:
        """The number of a transaction, which is its place as well."""
        return (number := number_of(name)), number

    def place(self, source: Mapping[str, Any]) -> Place:
        """The place of a change: a file of the log, an event in it, a row of that."""
        number = number_of(source["gtid"])
        return Place(number, number, number - 1, (source["file"], source["pos"], source["row"]))

    def table(self, source: Mapping[str, Any]) -> tuple[str, str]:
        """Database and name."""
        return source["db"], source["table"]

    def mark(self, record: Mapping[str, Any]) -> str | None:
        """The number in a row of the table of marks."""
        is_one = record.get("op") in ("c", "u") and self.table(record["source"]) == self._marks
        return str(record["after"]["n"]) if is_one else None

    def is_ours(self, collection: str) -> bool:
        """Whether they are of the table of marks."""
        return collection == ".".join(self._marks)


def number_of(gtid: str) -> int:
    """The number in a GTID."""
    _, _, number = gtid.split("-")
    return int(number)
