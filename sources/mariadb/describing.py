"""The relations of a MariaDB database, from its information schema."""

from collections.abc import Mapping
from typing import Any

from pymysql.cursors import Cursor

from sources.debezium.schema import (
    DescribedSchema,
    FoundColumn,
    FoundKey,
    FoundReference,
    described,
)

_TABLES = """
SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE' AND TABLE_NAME <> %s ORDER BY TABLE_NAME
"""
_COLUMNS = """
SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE,
       DATETIME_PRECISION, CHARACTER_SET_NAME, COLLATION_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
#: Each index with its columns; those over the beginnings of texts are no keys.
_INDEXES = """
SELECT TABLE_NAME, INDEX_NAME, MAX(NON_UNIQUE) = 0, MAX(NULLABLE = 'YES') = 0,
       MAX(SUB_PART IS NOT NULL), GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX SEPARATOR '\\0')
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s
GROUP BY TABLE_NAME, INDEX_NAME ORDER BY TABLE_NAME, INDEX_NAME
"""
_REFERENCES = """
SELECT k.TABLE_NAME, k.CONSTRAINT_NAME, r.REFERENCED_TABLE_NAME, MAX(c.IS_NULLABLE = 'YES') = 0,
       GROUP_CONCAT(k.COLUMN_NAME ORDER BY k.ORDINAL_POSITION SEPARATOR '\\0'),
       GROUP_CONCAT(k.REFERENCED_COLUMN_NAME ORDER BY k.ORDINAL_POSITION SEPARATOR '\\0'),
       r.UPDATE_RULE, r.DELETE_RULE
FROM information_schema.KEY_COLUMN_USAGE k
     JOIN information_schema.REFERENTIAL_CONSTRAINTS r
       ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME
          AND r.TABLE_NAME = k.TABLE_NAME
     JOIN information_schema.COLUMNS c
       ON c.TABLE_SCHEMA = k.TABLE_SCHEMA AND c.TABLE_NAME = k.TABLE_NAME
          AND c.COLUMN_NAME = k.COLUMN_NAME
WHERE k.TABLE_SCHEMA = %s GROUP BY k.TABLE_NAME, k.CONSTRAINT_NAME
ORDER BY k.TABLE_NAME, k.CONSTRAINT_NAME
"""
#: Type of the database → our type, and its form in Debezium's records.
_TYPES: Mapping[str, tuple[str, str]] = {
    "tinyint": ("BIGINT", "plain"),
    "smallint": ("BIGINT", "plain"),
    "mediumint": ("BIGINT", "plain"),
    "int": ("BIGINT", "plain"),
    "bigint": ("BIGINT", "plain"),
    "year": ("BIGINT", "plain"),
    "float": ("DOUBLE", "single"),
    "double": ("DOUBLE", "number"),
    "char": ("VARCHAR", "plain"),
    "varchar": ("VARCHAR", "plain"),
    "tinytext": ("VARCHAR", "plain"),
    "text": ("VARCHAR", "plain"),
    "mediumtext": ("VARCHAR", "plain"),
    "longtext": ("VARCHAR", "plain"),
    "enum": ("VARCHAR", "plain"),
    "set": ("VARCHAR", "plain"),
    "date": ("DATE", "days"),
    "timestamp": ("TIMESTAMP", "instant"),
}
#: A DATETIME of up to so many digits of a second comes in milliseconds.
_MILLISECONDS = 3
_MOST_DIGITS = 38
#: Actions that change the referencing rows without a word in the log.
_SILENT = {"CASCADE", "SET NULL", "SET DEFAULT"}
_BINARY = "utf8mb4_nopad_bin"


def describe(cursor: Cursor, source: str, database: str, marks: str) -> DescribedSchema:
    """The relations of a database that the login may read, all tables but that of the marks."""
    left_out: dict[str, str] = {}
    indexes, keys = _indexes(cursor, database)
    references = _references(cursor, database, left_out)
    cursor.execute(_TABLES, (database, marks))
    for table, engine in cursor.fetchall():
        if engine != "InnoDB":
            left_out[table] = (
                f"its engine {engine} has no transactions: ALTER TABLE {table} ENGINE = InnoDB"
            )
        elif not any(each.table == table and each.never_null for each in keys):
            left_out[table] = (
                "it has no key, by which rows are told apart: ALTER TABLE"
                f" {table} ADD PRIMARY KEY (…)"
            )
    columns: dict[str, dict[str, FoundColumn]] = {}
    texts: dict[tuple[str, str], str] = {}
    cursor.execute(_COLUMNS, (database,))
    for table, name, type_, *more, collation in cursor.fetchall():
        if table == marks or table in left_out:
            continue
        found = _column(type_, *more)
        if found is None:
            left_out[f"{table}.{name}"] = f"its type {type_} is not one that views can hold"
        else:
            columns.setdefault(table, {})[name] = found
            if found.type == "VARCHAR":
                texts[table, name] = collation
    # By another collation than ours, more texts are equal than views find equal.
    alike = [
        each
        for each in references
        if all(texts.get((each.table, name), _BINARY) == _BINARY for name in each.columns)
    ]
    for table in [table for table in columns if not _has_key(table, columns, keys)]:
        del columns[table]
        left_out[table] = "its key has a column that views cannot hold: leave it out of views"
    return described(source, database, columns, keys, alike, indexes, left_out)


def _has_key(
    table: str, columns: Mapping[str, Mapping[str, FoundColumn]], keys: list[FoundKey]
) -> bool:
    known = columns[table]
    own = [each for each in keys if each.table == table and each.never_null]
    return any(set(each.columns) <= set(known) for each in own)


def _column(
    type_: str,
    whole: str,
    digits: int | None,
    scale: int | None,
    second_digits: int | None,
    charset: str | None,
) -> FoundColumn | None:
    """A column; None if views cannot hold its values."""
    is_unsigned = "unsigned" in whole
    if type_ == "bigint" and is_unsigned:
        return FoundColumn("DECIMAL(20,0)", "unsigned", "bigint unsigned")
    if type_ == "bit" and digits == 1:
        return FoundColumn("BOOLEAN", "plain", "bit")
    if type_ == "datetime":
        short = (second_digits or 0) <= _MILLISECONDS
        return FoundColumn("TIMESTAMP", "milliseconds" if short else "microseconds", type_)
    if type_ == "decimal":
        if digits is None or scale is None or digits > _MOST_DIGITS:
            return None
        return FoundColumn(f"DECIMAL({digits},{scale})", "decimal", type_)
    known = _TYPES.get(type_)
    if known is None:
        return None
    foreign = charset not in (None, "utf8mb4")
    return FoundColumn(*known, f"{type_} of another character set" if foreign else type_)


def _indexes(cursor: Cursor, database: str) -> tuple[dict[str, list[str]], list[FoundKey]]:
    """Table → its columns with an index; and the keys."""
    indexes: dict[str, list[str]] = {}
    keys = []
    cursor.execute(_INDEXES, (database,))
    for table, name, is_unique, never_null, is_partial, columns in cursor.fetchall():
        names = columns.split("\0")
        indexes.setdefault(table, []).append(names[0])
        if is_unique and not is_partial:
            keys.append(FoundKey(table, names, name == "PRIMARY", bool(never_null)))
    return {table: sorted(set(names)) for table, names in indexes.items()}, keys


def _references(cursor: Cursor, database: str, left_out: dict[str, str]) -> list[FoundReference]:
    """The foreign keys; a table whose rows they change in silence is left out."""
    found = []
    cursor.execute(_REFERENCES, (database,))
    for row in cursor.fetchall():
        table, name, target, never_null, columns, to, on_update, on_delete = row
        silent = _silent(on_update, on_delete)
        if silent:
            left_out[table] = (
                f"the log does not tell what {name} changes {silent}: ALTER TABLE {table} DROP"
                f" FOREIGN KEY {name}, and add it without that"
            )
        else:
            pair = columns.split("\0"), to.split("\0")
            found.append(FoundReference(table, pair[0], target, pair[1], bool(never_null)))
    return found


def _silent(on_update: Any, on_delete: Any) -> str:
    rules = (("ON UPDATE", on_update), ("ON DELETE", on_delete))
    return " and ".join(f"{event} {action}" for event, action in rules if action in _SILENT)
