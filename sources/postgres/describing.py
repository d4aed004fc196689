"""The relations of a PostgreSQL schema, from the catalog of the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from protocols.views.catalog import Relation, relation_from_json
from sources.debezium.layout import TableLayout

_COLUMNS = """
SELECT t.relname, t.relreplident = 'f', a.attname, y.typname, y.typtype, a.atttypmod
FROM pg_class t JOIN pg_namespace s ON s.oid = t.relnamespace
     JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
     JOIN pg_type y ON y.oid = a.atttypid
WHERE s.nspname = %s AND t.relkind IN ('r', 'p') AND has_table_privilege(t.oid, 'SELECT')
ORDER BY t.relname, a.attnum
"""
_KEYS = """
SELECT t.relname, c.contype, c.conname,
       (SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(c.conkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number),
       (SELECT bool_and(a.attnotnull) FROM pg_attribute a
        WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)),
       f.relname,
       (SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(c.confkey) WITH ORDINALITY k(number, place)
             JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number)
FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid
     JOIN pg_namespace s ON s.oid = t.relnamespace LEFT JOIN pg_class f ON f.oid = c.confrelid
WHERE s.nspname = %s AND c.contype IN ('p', 'u', 'f') AND NOT c.condeferrable
ORDER BY t.relname, c.conname
"""
_INDEXES = """
SELECT t.relname, array_agg(DISTINCT a.attname::text)
FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid JOIN pg_namespace s ON s.oid = t.relnamespace
     JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = i.indkey[0]
WHERE s.nspname = %s AND i.indisvalid GROUP BY t.relname
"""
#: Type of the database → our type, and its form in Debezium's records.
_TYPES: Mapping[str, tuple[str, str]] = {
    "int2": ("BIGINT", "plain"),
    "int4": ("BIGINT", "plain"),
    "int8": ("BIGINT", "plain"),
    "float4": ("DOUBLE", "number"),
    "float8": ("DOUBLE", "number"),
    "text": ("VARCHAR", "plain"),
    "varchar": ("VARCHAR", "plain"),
    "bpchar": ("VARCHAR", "padded"),
    "bool": ("BOOLEAN", "plain"),
    "date": ("DATE", "days"),
    "timestamptz": ("TIMESTAMP", "instant"),
    "uuid": ("VARCHAR", "plain"),
    "json": ("VARCHAR", "plain"),
    "jsonb": ("VARCHAR", "plain"),
}
#: A timestamp of up to so many digits of a second comes in milliseconds.
_MILLISECONDS = 3
_MOST_DIGITS = 38
#: The first bits of the modifier of a NUMERIC are its digits, the last its digits after the point.
_HEADER, _SCALE_BITS = 4, 0x7FF


@dataclass(frozen=True)
class DescribedSchema:
    """The relations of a schema."""

    tables: Mapping[str, TableLayout]
    #: Relation → column → its type at the database.
    types: Mapping[str, Mapping[str, str]]
    indexes: Mapping[str, Sequence[str]]
    #: Tables that no view can be over, and columns that none can use, each with the reason.
    left_out: Mapping[str, str]

    @property
    def relations(self) -> dict[str, Relation]:
        """Name → relation."""
        return {name: layout.relation for name, layout in self.tables.items()}


def describe(cursor: psycopg.Cursor, source: str, schema: str) -> DescribedSchema:
    """The relations of a schema that the login may read."""
    columns: dict[str, dict[str, tuple[str, str, str]]] = {}
    left_out: dict[str, str] = {}
    for table, is_full, name, type_, kind, modifier in cursor.execute(_COLUMNS, (schema,)):
        if not is_full:
            left_out[table] = (
                f"its changes do not show whole rows: ALTER TABLE {schema}.{table} REPLICA IDENTITY"
                " FULL"
            )
            continue
        found = _type_of(type_, kind, modifier)
        if found is None:
            left_out[f"{table}.{name}"] = f"its type {type_} is not one that views can hold"
        else:
            columns.setdefault(table, {})[name] = (*found, type_)
    forms = _with_keys(
        {t: {"columns": {n: each[0] for n, each in of.items()}} for t, of in columns.items()},
        cursor.execute(_KEYS, (schema,)).fetchall(),
    )
    indexes: dict[str, list[str]] = dict(cursor.execute(_INDEXES, (schema,)).fetchall())
    return DescribedSchema(
        {
            table: TableLayout(
                relation_from_json(source, table, form),
                (schema, table),
                {name: each[1] for name, each in columns[table].items()},
            )
            for table, form in forms.items()
        },
        {t: {name: each[2] for name, each in of.items()} for t, of in columns.items()},
        {t: [name for name in indexes.get(t, ()) if name in of] for t, of in columns.items()},
        left_out,
    )


def _type_of(name: str, kind: str, modifier: int) -> tuple[str, str] | None:
    """Our type and the form in records; None if views cannot hold it."""
    if kind == "e":
        return "VARCHAR", "plain"
    if name == "timestamp":
        short = 0 <= modifier <= _MILLISECONDS
        return "TIMESTAMP", "milliseconds" if short else "microseconds"
    if name != "numeric":
        return _TYPES.get(name)
    if modifier < _HEADER:
        return None
    digits, scale = (modifier - _HEADER) >> 16, (modifier - _HEADER) & _SCALE_BITS
    if not 1 <= digits <= _MOST_DIGITS or scale > digits:
        return None
    return f"DECIMAL({digits},{scale})", "decimal"


def _with_keys(
    forms: dict[str, dict[str, Any]], constraints: Sequence[tuple[Any, ...]]
) -> dict[str, dict[str, Any]]:
    """The forms with keys and foreign keys, as far as their columns can be used."""
    for table, kind, _, columns, never_null, _, _ in constraints:
        if kind in "pu" and never_null and _has(forms, table, columns):
            if kind == "p":
                forms[table]["key"] = columns
            else:
                forms[table].setdefault("keys", []).append(columns)
    for form in forms.values():
        if "key" not in form and form.get("keys"):
            form["key"] = form["keys"].pop(0)
    for table, kind, _, columns, never_null, target, to in constraints:
        if kind == "f" and _has(forms, table, columns) and _has(forms, target, to):
            known = [forms[target].get("key"), *forms[target].get("keys", ())]
            if any(each and sorted(each) == sorted(to) for each in known):
                reference = {"columns": columns, "references": target}
                if to != forms[target].get("key"):
                    reference["to"] = to
                if never_null:
                    reference["mandatory"] = True
                forms[table].setdefault("foreign_keys", []).append(reference)
    return forms


def _has(forms: Mapping[str, Any], table: str, columns: Sequence[str]) -> bool:
    return table in forms and set(columns) <= set(forms[table]["columns"])
