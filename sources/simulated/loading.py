"""Loads relations from Parquet and CSV files that DuckDB reads, in viewsweep's types."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from protocols.algebra.types import TYPES, ColumnType, column_type, declared_type
from protocols.errors import WrongUse
from protocols.views.catalog import Relation, relation_from_json
from sources.simulated.rows import quoted

#: DuckDB reads all lines and skips none before the header.
_CSV = "read_csv(?, skip = 0, types = {})"
_READERS = {".parquet": "read_parquet(?)", ".csv": _CSV, ".tsv": _CSV}
#: The names that DuckDB gives to columns without one.
_NAMELESS = re.compile(r"column\d+")
_SEPARATORS = ",;|\t"
_MOST_DIGITS = 38
#: Types of files that convert to one of ours without loss.
_WIDENED = {
    "TINYINT": "BIGINT",
    "SMALLINT": "BIGINT",
    "INTEGER": "BIGINT",
    "UTINYINT": "BIGINT",
    "USMALLINT": "BIGINT",
    "UINTEGER": "BIGINT",
    "FLOAT": "DOUBLE",
    "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP",
}


def load_relation(
    source: str,
    name: str,
    file: Path,
    declared: Mapping[str, Any] | None = None,
    types: Mapping[str, str] | None = None,
) -> tuple[Relation, pl.DataFrame]:
    """Reads a relation and its rows from a file; `types` gives types that DuckDB must not guess.

    `declared` holds the fields of the relation's JSON form besides the columns. WrongUse if a value
    would change in its given type.
    """
    where = f"relation {source}.{name}, file {file}"
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise WrongUse(f"{where}: the name must end in one of {', '.join(_READERS)}")
    if not file.is_file():
        raise WrongUse(f"{where}: there is no such file")
    connection = duckdb.connect()
    try:
        content = _content(connection, reader, file)
        if reader is _CSV:
            _refuse_without_header(where, content.columns)
        found = dict(zip(content.columns, map(str, content.types), strict=True))
        given = _given(where, types or {}, found)
        if reader is _CSV:
            content = _content(connection, reader, file, list(given))
        _refuse_changed(where, content, given)
        typed = _types(where, {**found, **{c: t.name for c, t in given.items()}})
        columns = {column: type_.name for column, type_ in typed.items()}
        relation = relation_from_json(source, name, {"columns": columns, **(declared or {})})
        selected = ", ".join(f"{quoted(c)}::{t.name} AS {quoted(c)}" for c, t in typed.items())
        rows = pl.DataFrame(pl.from_arrow(content.project(selected).to_arrow_table()))
    except duckdb.Error as error:
        raise WrongUse(f"{where}: cannot be read: {error}") from None
    finally:
        connection.close()
    return relation, rows


def _content(
    connection: duckdb.DuckDBPyConnection, reader: str, file: Path, texts: Sequence[str] = ()
) -> duckdb.DuckDBPyRelation:
    """The file; the columns `texts` as text, since a guess of DOUBLE would round their values."""
    types = ", ".join(f"{_literal(column)}: 'VARCHAR'" for column in texts)
    return connection.sql(f"SELECT * FROM {reader.format(f'{{{types}}}')}", params=[str(file)])


def _refuse_without_header(where: str, columns: Sequence[str]) -> None:
    """Refuses files without a header or with uneven lines: DuckDB reads even these."""
    if all(map(_NAMELESS.fullmatch, columns)):
        raise WrongUse(
            f"{where}: the first line must name the columns, and every other line must have as many"
            " values"
        )
    if len(columns) == 1 and any(separator in columns[0] for separator in _SEPARATORS):
        raise WrongUse(
            f"{where}: the file would be read as a single column {columns[0]!r}, because some lines"
            " do not have as many values as the first line has names"
        )


def _given(where: str, types: Mapping[str, str], found: Mapping[str, str]) -> dict[str, ColumnType]:
    for column in types:
        if column not in found:
            raise WrongUse(
                f"{where}: there is no column {column!r}; choose one of: {', '.join(found)}"
            )
    try:
        return {column: declared_type(name) for column, name in types.items()}
    except ValueError as error:
        raise WrongUse(f"{where}: {error}") from None


def _refuse_changed(
    where: str, content: duckdb.DuckDBPyRelation, given: Mapping[str, ColumnType]
) -> None:
    for column, type_ in given.items():
        changed = content.filter(_changes(quoted(column), type_)).project(quoted(column)).limit(1)
        for (value,) in changed.fetchall():
            raise WrongUse(f"{where}: column {column!r}: {value!r} is not a {type_.name}")


def _changes(column: str, type_: ColumnType) -> str:
    """SQL that tells whether a value does not fit this type without rounding."""
    fitted = f"try_cast({column} AS {type_.name})"
    none = f"({column} IS NOT NULL AND {fitted} IS NULL)"
    if type_.family != "DECIMAL":
        return none
    precision, scale = type_.precision_and_scale
    exact = f"DECIMAL({_MOST_DIGITS},{min(_MOST_DIGITS - (precision - scale), scale + 10)})"
    return f"{none} OR {fitted}::{exact} <> try_cast({column} AS {exact})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _types(where: str, columns: Mapping[str, str]) -> dict[str, ColumnType]:
    types = {}
    for column, name in columns.items():
        try:
            types[column] = column_type(_WIDENED.get(name, name))
        except ValueError:
            raise WrongUse(
                f"{where}: column {column!r} is {name}, which is not supported;"
                f" convert it to one of {TYPES}"
            ) from None
    return types
