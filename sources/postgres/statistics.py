"""The sizes of relations, as the database estimates them: nothing is counted for it."""

from collections.abc import Mapping

import psycopg

from protocols.views.catalog import Relation
from protocols.views.statistics import Statistics

_ROWS = """
SELECT t.relname, greatest(t.reltuples, 0)
FROM pg_class t JOIN pg_namespace s ON s.oid = t.relnamespace
WHERE s.nspname = %s AND t.relkind IN ('r', 'p') AND t.reltuples >= 0
"""
_DISTINCT = "SELECT tablename, attname, n_distinct FROM pg_stats WHERE schemaname = %s"


def statistics(
    cursor: psycopg.Cursor, schema: str, relations: Mapping[str, Relation]
) -> dict[str, Statistics]:
    """Relation → its size; of relations that were never analyzed nothing."""
    rows = {table: int(count) for table, count in cursor.execute(_ROWS, (schema,)).fetchall()}
    distinct: dict[str, dict[str, int]] = {}
    for table, column, number in cursor.execute(_DISTINCT, (schema,)).fetchall():
        if table in rows:
            # Below zero: a share of the rows.
            found = number if number >= 0 else -number * rows[table]
            distinct.setdefault(table, {})[column] = round(found)
    return {
        name: Statistics(rows[name], {c: n for c, n in distinct[name].items() if c in names})
        for name, relation in relations.items()
        if name in distinct and (names := set(relation.column_names))
    }
