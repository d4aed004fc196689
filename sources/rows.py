"""Rows into a source's DuckDB file and out of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from protocols.views.catalog import Relation

Row = tuple[Any, ...]
#: The records of one version.
Records = list[bytes]


def quoted(identifier: str) -> str:
    """An identifier for SQL text."""
    return '"' + identifier.replace('"', '""') + '"'


def table_name(relation: Relation) -> str:
    """Where the relation's rows are."""
    return f"relations.{quoted(relation.name)}"


def stored_rows(
    connection: duckdb.DuckDBPyConnection,
    relation: Relation,
    columns: Sequence[str],
    wanted: list[Row],
) -> list[Row]:
    """(rowid, *row) of the rows that have one of these lists of values in these columns."""
    # Most have no NULL, and this is quicker.
    equal = "=" if not any(None in values for values in wanted) else "IS NOT DISTINCT FROM"
    on = " AND ".join(f"r.{quoted(name)} {equal} w.{quoted(name)}" for name in columns)
    stored = f"SELECT r.rowid, r.* FROM {table_name(relation)} r SEMI JOIN given w ON {on}"
    return _with(connection, stored, table_of(relation, wanted, columns))


def table_of(relation: Relation, rows: list[Row], columns: Sequence[str] = ()) -> pa.Table:
    """Rows of the relation, or of some of its columns."""
    schema = {name: relation.type_of(name).dtype for name in columns or relation.column_names}
    return pl.DataFrame(rows, schema=schema, orient="row").to_arrow()


def outbox_rows(entries: list[Records], first: int) -> pa.Table:
    """(version, record) per record of versions that follow each other."""
    rows = [(version, r) for version, records in enumerate(entries, first) for r in records]
    return pl.DataFrame(rows, {"version": pl.Int64, "record": pl.Binary}, orient="row").to_arrow()


def append(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Adds rows to a table."""
    _with(connection, f"INSERT INTO {table} SELECT * FROM given", rows)


def delete(connection: duckdb.DuckDBPyConnection, relation: Relation, rowids: list[int]) -> None:
    """Takes out the rows with these rowids."""
    gone = f"DELETE FROM {table_name(relation)} WHERE rowid IN (SELECT id FROM given)"
    _with(connection, gone, pl.DataFrame({"id": rowids}, {"id": pl.Int64}).to_arrow())


def _with(connection: duckdb.DuckDBPyConnection, sql: str, given: pa.Table) -> list[Any]:
    """Runs SQL over the table `given`; without rows there is nothing to do.

    DuckDB finds the table by the name of the local variable. To register it under a name, which is
    to create a view, and to drop that again costs as much as a small statement itself.
    """
    return connection.execute(sql).fetchall() if given.num_rows else []


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """The table under a name that this connection alone can see."""
    connection.register(name, table)
    try:
        yield
    except BaseException:
        # An error in SQL may have aborted the transaction, which then refuses this as well.
        with suppress(duckdb.Error):
            connection.unregister(name)
        raise
    connection.unregister(name)


def all_rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None) -> list[Any]:
    """All that a query finds."""
    return connection.execute(sql, parameters).fetchall()


def roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    """Undoes what the transaction has done so far."""
    try:
        connection.rollback()
    except duckdb.Error:
        # What broke the transaction has ended it as well; that error is the one to show.
        return


def shown(row: Row) -> str:
    """A row as messages have it."""
    text = "(" + ", ".join(repr(value) if isinstance(value, str) else str(value) for value in row)
    return (text if len(text) < 200 else text[:200] + " …") + ")"
