"""A transaction of a source: a net set of signed row changes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from protocols.exchange.holdback import GlobalPart


@dataclass(frozen=True)
class RowChange:
    """Adds `count` copies of one row to a relation (removes them if negative); values in column
    order."""

    relation: str
    row: tuple[Any, ...]
    count: int


@dataclass(frozen=True)
class Transaction:
    """Row changes that become visible together, under one version of the source."""

    changes: tuple[RowChange, ...]
    #: The global transaction that this transaction is part of, if any.
    part: GlobalPart | None = None

    def net(self) -> "Transaction":
        """The same effect with one change per row, in order of first mention, without zeroes."""
        return Transaction(net_changes(self.changes), self.part)


def net_changes(changes: Iterable[RowChange]) -> tuple[RowChange, ...]:
    counts: dict[tuple[str, tuple[Any, ...]], int] = {}
    for change in changes:
        row = (change.relation, change.row)
        counts[row] = counts.get(row, 0) + change.count
    return tuple(RowChange(relation, row, n) for (relation, row), n in counts.items() if n)
