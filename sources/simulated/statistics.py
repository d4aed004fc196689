"""The statistics of a source: sizes that help to estimate the cost of keeping a view."""

from typing import Any

from protocols.views.catalog import Relation
from sources.simulated.database import SourceDatabase
from sources.simulated.rows import all_rows, quoted, table_name


def statistics(database: SourceDatabase) -> dict[str, dict[str, Any]]:
    """Relation → its number of rows, and about how many different values each column has."""
    return {relation.name: _of(database, relation) for relation in database.catalog}


def _of(database: SourceDatabase, relation: Relation) -> dict[str, Any]:
    counts = ", ".join(f"approx_count_distinct({quoted(n)})" for n in relation.column_names)
    with database.snapshot() as (cursor, _):
        [(rows, *distinct)] = all_rows(
            cursor, f"SELECT count(*), {counts} FROM {table_name(relation)}"
        )
    # The approximation may say more than there are rows.
    counted = (min(rows, number) for number in distinct)
    return {"rows": rows, "distinct": dict(zip(relation.column_names, counted, strict=True))}
