"""The sizes of relations, as the database estimates them: nothing is counted for it."""

from collections.abc import Mapping

from pymysql.cursors import Cursor

from protocols.views.catalog import Relation
from protocols.views.statistics import Statistics

_ROWS = """
SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_ROWS IS NOT NULL
"""
_DISTINCT = """
SELECT TABLE_NAME, COLUMN_NAME, CARDINALITY FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND SEQ_IN_INDEX = 1 AND CARDINALITY IS NOT NULL
"""


def statistics(
    cursor: Cursor, database: str, relations: Mapping[str, Relation]
) -> dict[str, Statistics]:
    """Relation → its rows, and the different values of its indexed columns."""
    cursor.execute(_ROWS, (database,))
    rows = {table: int(count) for table, count in cursor.fetchall()}
    distinct: dict[str, dict[str, int]] = {}
    cursor.execute(_DISTINCT, (database,))
    for table, column, number in cursor.fetchall():
        distinct.setdefault(table, {})[column] = min(int(number), rows.get(table, 0))
    return {
        name: Statistics(
            rows[name], {c: n for c, n in distinct.get(name, {}).items() if c in names}
        )
        for name, relation in relations.items()
        if name in rows and (names := set(relation.column_names))
    }
