"""A question as one SELECT for PostgreSQL."""

from collections.abc import Sequence
from typing import Any

import polars as pl
from psycopg import sql

from protocols.algebra.frame import Frame
from protocols.algebra.types import ColumnType
from sources.debezium.lookup import Lookup, Parameters

#: Our type → the type of parameters.
_CASTS = {
    "BIGINT": "bigint",
    "DOUBLE": "float8",
    "DECIMAL": "numeric",
    "VARCHAR": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
#: Types of the database that are not compared as they are stored, and the form in which they are.
_FORMS = {
    "timestamptz": "({} AT TIME ZONE 'UTC')",
    "float4": "({}::float8)",
    "bpchar": "({}::text)",
    "uuid": "({}::text)",
    "json": "({}::text)",
    "jsonb": "({}::text)",
}


class PostgresLookup(Lookup):
    """Keys go as arrays, one for each column."""

    def quoted(self, name: str) -> str:
        """The name in quotes."""
        return '"{}"'.format(name.replace('"', '""')).replace("%", "%%")

    def _fetched(
        self, cursor: Any, statement: str, parameters: Parameters
    ) -> Sequence[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = cursor.execute(sql.SQL(statement), parameters).fetchall()
        return found

    def _cells(self, cells: Sequence[Any], type_: ColumnType) -> pl.Series:
        if type_.family == "DECIMAL":
            return pl.Series(cells, dtype=pl.String).cast(type_.dtype)
        return pl.Series(cells, dtype=type_.dtype)

    def _sent(self, name: str) -> str:
        """Numbers go as texts, which are read as a whole column."""
        is_number = self._relation.type_of(name).family == "DECIMAL"
        return self._form(name) + ("::text" if is_number else "")

    def _form(self, name: str) -> str:
        """A column, in the form in which it is compared, but for the order of texts."""
        form = _FORMS.get(self._types[name], "{}")
        if form == "{}" and self._is_text(name) and self._types[name] not in ("text", "varchar"):
            form = "({}::text)"
        return form.format(self._place(name))

    def _ordered(self, name: str) -> str:
        return self._form(name) + (' COLLATE "C"' if self._is_text(name) else "")

    def _matches(self, keys: Frame, parameters: Parameters) -> str:
        names = list(keys.columns)
        parameters += [_array(keys.data.get_column(name)) for name in names]
        arrays = [f"%s::{_cast(self._relation.type_of(name))}[]" for name in names]
        places = ", ".join(map(self._form, names))
        if len(names) == 1:
            return f"{places} = ANY ({arrays[0]})"
        return f"({places}) IN (SELECT * FROM unnest({', '.join(arrays)}))"

    def _after(self, after: Sequence[Any], parameters: Parameters) -> str:
        parameters += after
        key = self._relation.key
        values = ", ".join(f"%s::{_cast(self._relation.type_of(name))}" for name in key)
        return f"({', '.join(map(self._ordered, key))}) > ({values})"

    def _in(
        self, name: str, values: Sequence[Any], type_: ColumnType, parameters: Parameters
    ) -> str:
        parameters.append(list(values))
        return f"({self._ordered(name)} = ANY (%s::{_cast(type_)}[]))"

    def _compared(
        self, name: str, op: str, value: Any, type_: ColumnType, parameters: Parameters
    ) -> str:
        parameters.append(value)
        return f"({self._ordered(name)} {op} %s::{_cast(type_)})"


def _array(values: pl.Series) -> Any:
    """An array as a parameter; one of integers as a text, which is made at once."""
    if values.dtype != pl.Int64 or values.has_nulls():
        return values.to_list()
    return f"{{{values.cast(pl.String).str.join(',')[0] or ''}}}"


def _cast(type_: ColumnType) -> str:
    return _CASTS[type_.family]
