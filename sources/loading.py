"""Relations from files: what DuckDB reads in Parquet or CSV, in the types that viewsweep has."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import polars as pl

from protocols.algebra.types import TYPES, ColumnType, column_type
from protocols.errors import WrongUse
from protocols.views.catalog import Relation, relation_from_json
from sources.database import quoted

_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
#: Types of files that lose nothing in one of ours.
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
    source: str, name: str, file: Path, key: Sequence[str] = ()
) -> tuple[Relation, pl.DataFrame]:
    """The relation that a file holds, and its rows."""
    where = f"relation {source}.{name}, file {file}"
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise WrongUse(f"{where}: needs one of the endings {', '.join(_READERS)}")
    if not file.is_file():
        raise WrongUse(f"{where}: there is no such file")
    connection = duckdb.connect()
    try:
        content = connection.sql(f"SELECT * FROM {reader}(?)", params=[str(file)])
        types = _types(where, dict(zip(content.columns, map(str, content.types), strict=True)))
        form = {
            "columns": {column: type_.name for column, type_ in types.items()},
            "key": list(key),
        }
        relation = relation_from_json(source, name, form)
        selected = ", ".join(f"{quoted(c)}::{t.name} AS {quoted(c)}" for c, t in types.items())
        rows = pl.DataFrame(pl.from_arrow(content.project(selected).to_arrow_table()))
    except duckdb.Error as error:
        raise WrongUse(f"{where}: cannot be read: {error}") from None
    finally:
        connection.close()
    return relation, rows


def _types(where: str, columns: Mapping[str, str]) -> dict[str, ColumnType]:
    types = {}
    for column, name in columns.items():
        try:
            types[column] = column_type(_WIDENED.get(name, name))
        except ValueError:
            raise WrongUse(
                f"{where}: column {column!r} is {name}, which has no counterpart here;"
                f" convert it to one of {TYPES}"
            ) from None
    return types
