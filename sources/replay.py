"""A group of transactions replayed in memory on the stored rows that it touches.

No relation has a PRIMARY KEY. DuckDB's unique indexes refuse the deletion and insertion of one key
in one transaction, which is what a modification is. So keys are checked here: the stored rows that
a commit touches are fetched with one semi-join per relation, and the transactions are replayed on
them before anything is written.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from protocols.views.catalog import Relation
from sources.admission import TransactionRefused
from sources.rows import Row, append, delete, shown, stored_rows, table_name, table_of
from sources.transaction import RowChange, Transaction


def replayed(
    connection: duckdb.DuckDBPyConnection,
    relations: Mapping[str, Relation],
    transactions: Sequence[Transaction],
) -> Iterable["Touched"]:
    """What the group leaves of the rows it touches; refuses what breaks a rule on the way."""
    changes: dict[str, list[RowChange]] = {}
    for transaction in transactions:
        for change in transaction.changes:
            changes.setdefault(change.relation, []).append(change)
    touched = {
        name: Touched(connection, relations[name], of_relation)
        for name, of_relation in changes.items()
    }
    for index, transaction in enumerate(transactions):
        for change in transaction.changes:
            touched[change.relation].apply(index, change)
        for change in transaction.changes:
            touched[change.relation].check_key(index, change.row)
    return touched.values()


class Touched:
    """The rows of one relation that a group of transactions touches, as they are replayed."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        relation: Relation,
        changes: Sequence[RowChange],
    ) -> None:
        self._relation = relation
        self._places = tuple(relation.column_names.index(column) for column in relation.key)
        #: Stored rows that may be concerned, with the rowids of all their copies.
        self._stored: dict[Row, list[int]] = {}
        #: How many there are of each row, at the point the replay has reached.
        self._counts: dict[Row, int] = {}
        #: … and of each key.
        self._keys: dict[Row, int] = {}
        for rowid, *values in stored_rows(connection, relation, self._wanted(changes)):
            row = tuple([_one_nan(value) for value in values])
            self._stored.setdefault(row, []).append(rowid)
            self._add(row, 1)

    def _wanted(self, changes: Sequence[RowChange]) -> list[Row]:
        """What to look for: all keys that occur; in a bag only rows that are deleted."""
        if self._relation.key:
            return list(dict.fromkeys(self._key(change.row) for change in changes))
        return list(dict.fromkeys(change.row for change in changes if change.count < 0))

    def apply(self, index: int, change: RowChange) -> None:
        """One step of the replay."""
        there = self._counts.get(change.row, 0)
        if there + change.count < 0:
            raise TransactionRefused(
                index,
                f"relation {self._relation}: cannot delete row {shown(change.row)}"
                f" {-change.count} time(s), it is there {max(there, 0)} time(s)",
            )
        self._add(change.row, change.count)

    def check_key(self, index: int, row: Row) -> None:
        """After a whole transaction: no two rows have this row's key."""
        if self._relation.key and self._keys[self._key(row)] > 1:
            key = ", ".join(self._relation.key)
            raise TransactionRefused(
                index,
                f"relation {self._relation}: row {shown(row)}: there is a row with this key"
                f" ({key}) already; delete it in the same transaction to replace it",
            )

    def write(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes the stored rows what the replay arrived at."""
        gone: list[int] = []
        new: list[Row] = []
        for row, count in self._counts.items():
            rowids = self._stored.get(row, [])
            gone += rowids[max(count, 0) :]
            new += [row] * (count - len(rowids))
        delete(connection, self._relation, gone)
        append(connection, table_name(self._relation), table_of(self._relation, new))

    def _key(self, row: Row) -> Row:
        return tuple([row[place] for place in self._places])

    def _add(self, row: Row, count: int) -> None:
        self._counts[row] = self._counts.get(row, 0) + count
        if self._relation.key:
            key = self._key(row)
            self._keys[key] = self._keys.get(key, 0) + count


def _one_nan(value: Any) -> Any:
    """NaN as the one object that `ColumnType.decode` yields, so that rows are equal as keys."""
    return math.nan if value != value else value
