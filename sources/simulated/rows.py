"""Reads and writes rows of a source's DuckDB file."""

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
    """Quotes an identifier for SQL text."""
    return '"' + identifier.replace('"', '""') + '"'


def table_name(relation: Relation) -> str:
    """The table of the relation, quoted."""
    return f"relations.{quoted(relation.name)}"


def stored_rows(
    connection: duckdb.DuckDBPyConnection,
    relation: Relation,
    columns: Sequence[str],
    wanted: list[Row],
) -> list[Row]:
    """(rowid, *row) of the rows that have one of these value lists in these columns."""
    # Most lists have no NULL, and "=" is faster.
    equal = "=" if not any(None in values for values in wanted) else "IS NOT DISTINCT FROM"
    on = " AND ".join(f"r.{quoted(name)} {equal} w.{quoted(name)}" for name in columns)
    stored = f"SELECT r.rowid, r.* FROM {table_name(relation)} r SEMI JOIN given w ON {on}"
    return _with(connection, stored, table_of(relation, wanted, columns))


def table_of(relation: Relation, rows: list[Row], columns: Sequence[str] = ()) -> pa.Table:
    """Rows of the relation, or of some of its columns, as an Arrow table."""
    schema = {name: relation.type_of(name).dtype for name in columns or relation.column_names}
    return pl.DataFrame(rows, schema=schema, orient="row").to_arrow()


def outbox_rows(entries: list[Records], first: int) -> pa.Table:
    """(version, record) per record of consecutive versions."""
    rows = [(version, r) for version, records in enumerate(entries, first) for r in records]
    return pl.DataFrame(rows, {"version": pl.Int64, "record": pl.Binary}, orient="row").to_arrow()


def append(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    """Adds rows to a table."""
    _with(connection, f"INSERT INTO {table} SELECT * FROM given", rows)


def delete(connection: duckdb.DuckDBPyConnection, relation: Relation, rowids: list[int]) -> None:
    """Deletes the rows with these rowids."""
    gone = f"DELETE FROM {table_name(relation)} WHERE rowid IN (SELECT id FROM given)"
    _with(connection, gone, pl.DataFrame({"id": rowids}, {"id": pl.Int64}).to_arrow())


def _with(connection: duckdb.DuckDBPyConnection, sql: str, given: pa.Table) -> list[Any]:
    """Runs SQL over the table `given`; without rows there is nothing to do.

    DuckDB finds the table by the name of the local variable. Registering it creates a view, which
    with its removal costs as much as a small statement itself.
    """
    return connection.execute(sql).fetchall() if given.num_rows else []


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """Registers the table under a name that only this connection sees."""
    connection.register(name, table)
    try:
        yield
    except BaseException:
        # An SQL error may have aborted the transaction, which then refuses this as well.
        with suppress(duckdb.Error):
            connection.unregister(name)
        raise
    connection.unregister(name)


def all_rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None) -> list[Any]:
    """All rows of a query."""
    return connection.execute(sql, parameters).fetchall()


def roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    """Rolls the transaction back."""
    try:
        connection.rollback()
    except duckdb.Error:
        # The first error has also ended the transaction; that error is the one to show.
        return


def shown(row: Row) -> str:
    """Formats a row for messages."""
    text = "(" + ", ".join(repr(value) if isinstance(value, str) else str(value) for value in row)
    return (text if len(text) < 200 else text[:200] + " …") + ")"
