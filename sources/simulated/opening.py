"""Opens the file of a source; refuses other files, and sources whose tables were altered."""

import os
from collections.abc import Mapping
from pathlib import Path

import duckdb
import orjson

from protocols.errors import SourceViolation, WrongUse
from sources.simulated.creating import FORMAT, begin_history, refuse_name_of_schema
from sources.simulated.rows import all_rows, roll_back

#: The formats before sources had a history, and before they recorded their last part of a global
#: transaction. A file of these formats is upgraded when it is opened.
_WITHOUT_HISTORY, _WITHOUT_GLOBALS = 1, 2


def connect(path: Path) -> duckdb.DuckDBPyConnection:
    """Opens a connection to the file, which is locked until the connection is closed."""
    if not path.is_file():
        raise WrongUse(f"there is no source database at {path}; create one with 'sources init'")
    refuse_name_of_schema(path)
    try:
        return duckdb.connect(str(path))
    except duckdb.Error as error:
        raise _not_opened(path, error) from error


def self_description(path: Path, connection: duckdb.DuckDBPyConnection) -> tuple[str, str, str]:
    """The source's name, its catalog and its origin, as stored in the file."""
    try:
        [(format_, *description)] = all_rows(connection, "SELECT * FROM source.self")
    except duckdb.CatalogException:
        raise WrongUse(
            f"{path} is a DuckDB database but not a source; create one with 'sources init'"
        ) from None
    if format_ in (_WITHOUT_HISTORY, _WITHOUT_GLOBALS):
        _upgrade(connection, format_)
    elif format_ != FORMAT:
        raise WrongUse(
            f"{path} has format {format_}, but this version of viewsweep reads format {FORMAT}"
        )
    name, catalog, origin = description
    return name, catalog, origin


def _upgrade(connection: duckdb.DuckDBPyConnection, format_: int) -> None:
    """Upgrades a file of an earlier format, completely or not at all."""
    connection.begin()
    try:
        if format_ == _WITHOUT_HISTORY:
            _give_history(connection)
        _remember_globals(connection)
        connection.execute("UPDATE source.self SET format = ?", [FORMAT])
        connection.commit()
    except BaseException:
        roll_back(connection)
        raise


def _give_history(connection: duckdb.DuckDBPyConnection) -> None:
    [(version, driven)] = all_rows(connection, "SELECT version, driven FROM source.committed")
    connection.execute("DROP TABLE source.committed")
    begin_history(connection, version, driven)


def _remember_globals(connection: duckdb.DuckDBPyConnection) -> None:
    # Inside a value the quotation marks are escaped.
    connection.execute(
        "CREATE TABLE source.globals AS SELECT coalesce(max(version), 0)::BIGINT AS last"
        " FROM source.outbox WHERE contains(decode(record), '\"global\":')"
    )


def refuse_altered(
    path: Path, connection: duckdb.DuckDBPyConnection, source: str, catalog: str
) -> None:
    """SourceViolation if a table differs from the source's catalog."""
    found: dict[str, dict[str, str]] = {}
    for table, column, type_ in all_rows(
        connection,
        "SELECT table_name, column_name, data_type FROM duckdb_columns()"
        " WHERE schema_name = 'relations' ORDER BY table_name, column_index",
    ):
        found.setdefault(table, {})[column] = type_
    for name, form in orjson.loads(catalog).items():
        if found.get(name) != form["columns"]:
            raise SourceViolation(
                f"source {source}: relation {name} was altered in {path}: it now has the columns"
                f" {_columns(found.get(name, {}))}, but the source was created with"
                f" {_columns(form['columns'])}. Restore the original columns, or create a new"
                " source with 'sources init' and recreate the views over it"
            )


def _columns(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in types.items()) or "none"


def altered(error: duckdb.Error) -> str:
    """The message if DuckDB does not find a table or column of the catalog."""
    first = str(error).partition("\n")[0]
    return (
        f"its tables have changed since it was started ({first}). Restore the columns of the"
        " relation and start the source again; it then lists the present columns"
    )


def _not_opened(path: Path, error: duckdb.Error) -> Exception:
    text = str(error)
    if "lock" in text.lower():
        return WrongUse(
            f"{path} is in use by another process; stop its 'sources serve',"
            f" or talk to it with --address ({text})"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        return WrongUse(f"{path} is not both readable and writable: {text}")
    return WrongUse(f"{path} cannot be opened as a source database: {text}")
