"""The relations of a PostgreSQL schema, from the catalog of the database."""

from collections.abc import Mapping

import psycopg

from sources.debezium.schema import (
    DescribedSchema,
    FoundColumn,
    FoundKey,
    FoundReference,
    described,
)

#: The name of a publication, if nobody gives another one.
PUBLICATION = "viewsweep"
_PUBLICATION = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s
"""
#: Whose filter, since version 15, would keep rows from the topic.
_PUBLISHED = """
SELECT p.tablename, to_jsonb(p) ->> 'rowfilter' FROM pg_publication_tables p
WHERE p.pubname = %s AND p.schemaname = %s
"""
_PARTITIONED = """
SELECT t.relname FROM pg_class t JOIN pg_namespace s ON s.oid = t.relnamespace
WHERE s.nspname = %s AND t.relkind = 'p'
"""
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
    "float4": ("DOUBLE", "single"),
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


def describe(
    cursor: psycopg.Cursor, source: str, schema: str, publication: str | None = PUBLICATION
) -> DescribedSchema:
    """The relations of a schema that the login may read, and whose changes are published.

    Without a `publication` it does not matter what is published.
    """
    columns: dict[str, dict[str, FoundColumn]] = {}
    left_out: dict[str, str] = {}
    published = None if publication is None else Published(cursor, schema, publication)
    for table, is_full, name, type_, kind, modifier in cursor.execute(_COLUMNS, (schema,)):
        lack = None
        if published is not None:
            lack = published.lack_of(table) if is_full else _no_whole_rows(schema, table)
        if lack is not None:
            left_out[table] = lack
            continue
        found = _type_of(type_, kind, modifier)
        if found is None:
            shown = f"{type_[1:]}[]" if type_.startswith("_") else type_
            left_out[f"{table}.{name}"] = f"its type {shown} is not one that views can hold"
        else:
            columns.setdefault(table, {})[name] = FoundColumn(*found, type_)
    keys, references = _keys(cursor, schema)
    indexes: dict[str, list[str]] = dict(cursor.execute(_INDEXES, (schema,)).fetchall())
    return described(source, schema, columns, keys, references, indexes, left_out)


def _no_whole_rows(schema: str, table: str) -> str:
    return f"its changes do not show whole rows: ALTER TABLE {schema}.{table} REPLICA IDENTITY FULL"


class Published:
    """The tables whose changes a publication shows: of any other, a view would miss them."""

    def __init__(self, cursor: psycopg.Cursor, schema: str, publication: str) -> None:
        self._schema, self._name = schema, publication
        found = cursor.execute(_PUBLICATION, (publication,)).fetchone()
        #: The fault of the publication itself.
        self.fault = None if found and found[0] else self._fault(found is not None)
        self._filters: dict[str, str | None] = dict(
            cursor.execute(_PUBLISHED, (publication, schema)).fetchall()
        )
        partitioned = cursor.execute(_PARTITIONED, (schema,)).fetchall()
        self._partitioned = {table for (table,) in partitioned}

    def _fault(self, is_there: bool) -> str:
        if not is_there:
            made = f"CREATE PUBLICATION {self._name} FOR ALL TABLES"
            return f"there is no publication {self._name}: {made}"
        every = "'insert, update, delete, truncate'"
        return (
            f"publication {self._name} leaves out some operations: ALTER PUBLICATION {self._name}"
            f" SET (publish = {every})"
        )

    def lack_of(self, table: str) -> str | None:
        """The reason why changes of a table do not all come, with the statement that mends it."""
        name = f"{self._schema}.{table}"
        if self.fault is not None:
            return self.fault
        if table not in self._filters:
            if table in self._partitioned:
                return (
                    f"publication {self._name} shows its partitions instead: ALTER PUBLICATION"
                    f" {self._name} SET (publish_via_partition_root = true)"
                )
            return (
                f"publication {self._name} does not have it: ALTER PUBLICATION {self._name} ADD"
                f" TABLE {name}"
            )
        if self._filters[table] is not None:
            return (
                f"publication {self._name} leaves out some of its rows: ALTER PUBLICATION"
                f" {self._name} DROP TABLE {name}, then ADD TABLE {name} without WHERE"
            )
        return None


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


def _keys(cursor: psycopg.Cursor, schema: str) -> tuple[list[FoundKey], list[FoundReference]]:
    keys, references = [], []
    for table, kind, _, columns, never_null, target, to in cursor.execute(_KEYS, (schema,)):
        if kind == "f":
            references.append(FoundReference(table, columns, target, to, never_null))
        else:
            keys.append(FoundKey(table, columns, kind == "p", never_null))
    return keys, references
