"""A group of transactions replayed in memory on the stored rows that it touches.

No relation has a PRIMARY KEY: DuckDB's unique indexes refuse to delete and insert one key in one
transaction, which is what a modification does. So keys and foreign keys are checked here. One
semi-join each fetches the stored rows that a commit touches, the rows with a key that it adds, the
rows that it references, and the rows that reference what it deletes. The transactions are replayed
on them before anything is written; keys and foreign keys must hold at the end of each.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import duckdb

from protocols.views.catalog import Catalog, ForeignKey, Relation
from sources.simulated.admission import TransactionRefused
from sources.simulated.rows import Row, append, delete, shown, stored_rows, table_name, table_of
from sources.transaction import RowChange, Transaction


def replayed(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, transactions: Sequence[Transaction]
) -> Iterable["Touched"]:
    """Replays the group on the rows that it touches; refuses a transaction that breaks a rule."""
    group = _Group(catalog, [change for each in transactions for change in each.changes])
    group.load(connection)
    for index, transaction in enumerate(transactions):
        for change in transaction.changes:
            group.touched[change.relation].apply(index, change)
        for change in transaction.changes:
            group.touched[change.relation].check_keys(index, change.row)
        for key in group.foreign_keys:
            group.check(index, key, transaction.changes)
    return group.touched.values()


class _Group:
    """The rows that a group of transactions touches, by relation."""

    def __init__(self, catalog: Catalog, changes: Sequence[RowChange]) -> None:
        self._changes: dict[str, list[RowChange]] = {}
        for change in changes:
            self._changes.setdefault(change.relation, []).append(change)
        #: The foreign keys that the changes can break.
        self.foreign_keys = [
            key
            for key in catalog.foreign_keys
            if {key.child.name, key.parent.name} & self._changes.keys()
        ]
        watched: dict[str, list[tuple[str, ...]]] = {}
        for key in self.foreign_keys:
            watched.setdefault(key.child.name, []).append(key.columns)
            watched.setdefault(key.parent.name, []).append(key.parent_columns)
        self.touched = {
            relation.name: Touched(relation, watched.get(relation.name, ()))
            for relation in catalog
            if relation.name in self._changes or relation.name in watched
        }

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Fetches the stored rows that the changes concern."""
        for name, changes in self._changes.items():
            self.touched[name].load_changed(connection, changes)
        for key in self.foreign_keys:
            child, parent = self.touched[key.child.name], self.touched[key.parent.name]
            new = (c.row for c in self._changes.get(key.child.name, ()) if c.count > 0)
            parent.load(connection, key.parent_columns, child.values(key.columns, new))
            gone = (c.row for c in self._changes.get(key.parent.name, ()) if c.count < 0)
            child.load(connection, key.columns, parent.values(key.parent_columns, gone))

    def check(self, index: int, key: ForeignKey, changes: Iterable[RowChange]) -> None:
        """Checks after a whole transaction that rows which it added find the rows that they
        reference, and that no row references one that it deleted."""
        child, parent = self.touched[key.child.name], self.touched[key.parent.name]
        for change in changes:
            if change.relation == key.child.name and change.count > 0:
                for values in child.values(key.columns, [change.row]):
                    if not parent.number(key.parent_columns, values):
                        raise TransactionRefused(index, _orphan(key, change.row, values))
            if change.relation == key.parent.name and change.count < 0:
                [values] = parent.values(key.parent_columns, [change.row])
                if child.number(key.columns, values) and not parent.number(
                    key.parent_columns, values
                ):
                    left = child.row_with(key.columns, values)
                    raise TransactionRefused(index, _referenced(key, change.row, left))


def _orphan(key: ForeignKey, row: Row, values: Row) -> str:
    return (
        f"relation {key.child}: row {shown(row)}: by foreign key {key} it references"
        f" {shown(values)}, which does not exist; insert that first, or in the same transaction"
    )


def _referenced(key: ForeignKey, row: Row, child: Row) -> str:
    return (
        f"relation {key.parent}: cannot delete row {shown(row)}: by foreign key {key}"
        f" row {shown(child)} references it; delete that first, or in the same transaction"
    )


class Touched:
    """The rows of one relation that a group of transactions touches, during the replay."""

    def __init__(self, relation: Relation, watched: Iterable[tuple[str, ...]]) -> None:
        self._relation = relation
        names = relation.column_names
        #: Column lists whose values are counted → their places in a row.
        self._places = {
            columns: tuple(names.index(column) for column in columns)
            for columns in (*relation.all_keys, *watched)
        }
        #: The stored rows that may be concerned → the rowids of all their copies.
        self._stored: dict[Row, list[int]] = {}
        self._rowids: set[int] = set()
        #: Row → its number of copies at this point of the replay.
        self._counts: dict[Row, int] = {}
        #: Column list → values → the number of rows with them at this point of the replay.
        self._numbers: dict[tuple[str, ...], dict[Row, int]] = {each: {} for each in self._places}

    def load_changed(
        self, connection: duckdb.DuckDBPyConnection, changes: Sequence[RowChange]
    ) -> None:
        """Fetches the rows that changes name, and those with a key that they add."""
        relation = self._relation
        if relation.key:
            rows = (change.row for change in changes)
            self.load(connection, relation.key, self.values(relation.key, rows))
        else:
            gone = dict.fromkeys(change.row for change in changes if change.count < 0)
            self.load(connection, relation.column_names, gone)
        for columns in relation.all_keys:
            if columns != relation.key:
                new = (change.row for change in changes if change.count > 0)
                self.load(connection, columns, self.values(columns, new))

    def load(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Sequence[str],
        wanted: Collection[Row],
    ) -> None:
        """Fetches the stored rows that have one of these value lists in these columns."""
        for rowid, *values in stored_rows(connection, self._relation, columns, list(wanted)):
            if rowid not in self._rowids:
                self._rowids.add(rowid)
                row = tuple([_one_nan(value) for value in values])
                self._stored.setdefault(row, []).append(rowid)
                self._add(row, 1)

    def values(self, columns: tuple[str, ...], rows: Iterable[Row]) -> Collection[Row]:
        """The distinct values of rows in these columns, without those that contain a NULL."""
        places = self._places[columns]
        found = dict.fromkeys(tuple([row[place] for place in places]) for row in rows)
        return [values for values in found if None not in values]

    def number(self, columns: tuple[str, ...], values: Row) -> int:
        """The number of fetched rows with these values at this point of the replay."""
        return self._numbers[columns].get(values, 0)

    def row_with(self, columns: tuple[str, ...], values: Row) -> Row:
        """One row with these values."""
        there = (row for row, count in self._counts.items() if count > 0)
        return next(row for row in there if values in self.values(columns, [row]))

    def apply(self, index: int, change: RowChange) -> None:
        """Replays one change."""
        there = self._counts.get(change.row, 0)
        if there + change.count < 0:
            raise TransactionRefused(
                index,
                f"relation {self._relation}: cannot delete row {shown(change.row)}"
                f" {-change.count} time(s), it exists {max(there, 0)} time(s)",
            )
        self._add(change.row, change.count)

    def check_keys(self, index: int, row: Row) -> None:
        """Checks after a whole transaction that no other row has a key of this row."""
        for columns in self._relation.all_keys:
            values = tuple([row[place] for place in self._places[columns]])
            if self._numbers[columns][values] > 1:
                raise TransactionRefused(
                    index,
                    f"relation {self._relation}: row {shown(row)}: a row with this key"
                    f" ({', '.join(columns)}) exists; delete it in the same transaction to"
                    " replace it",
                )

    def write(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Writes the result of the replay to the stored rows."""
        gone: list[int] = []
        new: list[Row] = []
        for row, count in self._counts.items():
            rowids = self._stored.get(row, [])
            gone += rowids[max(count, 0) :]
            new += [row] * (count - len(rowids))
        delete(connection, self._relation, gone)
        append(connection, table_name(self._relation), table_of(self._relation, new))

    def _add(self, row: Row, count: int) -> None:
        self._counts[row] = self._counts.get(row, 0) + count
        for columns, places in self._places.items():
            values = tuple([row[place] for place in places])
            numbers = self._numbers[columns]
            numbers[values] = numbers.get(values, 0) + count


def _one_nan(value: Any) -> Any:
    """Replaces any NaN with the single NaN object that `ColumnType.decode` uses.

    So equal rows have equal hashes.
    """
    return math.nan if value != value else value
