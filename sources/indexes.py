"""The plain indexes of a source.

They are the owner's choice (access.py says when one is used): which columns others look up is not
for a source to know. With an index a question of a few keys looks at the rows that match and at no
others, however large the relation; without one it is a scan, 3.5 ms per million rows. One on the
key serves the source's own commits in the same way.
"""

from collections.abc import Mapping, Sequence

import duckdb
import orjson

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog
from sources.rows import all_rows, quoted, table_name


def make_indexes(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    catalog: Catalog,
    indexes: Mapping[str, Sequence[str]],
) -> None:
    """An index of its own on each of these columns of relations."""
    for name, columns in indexes.items():
        relation = catalog.find(source, name)
        if relation is None:
            raise WrongUse(f"an index on {name}: source {source} has no such relation")
        for column in dict.fromkeys(columns):
            if column not in relation.column_names:
                raise WrongUse(
                    f"an index on {relation}.{column}: there is no such column, there are"
                    f" {', '.join(relation.column_names)}"
                )
            index, table = quoted(_index_name(name, column)), table_name(relation)
            connection.execute(f"CREATE INDEX {index} ON {table} ({quoted(column)})")


def _index_name(relation: str, column: str) -> str:
    """Says what the index is on, in a form that no other index of the source has."""
    return orjson.dumps([relation, column]).decode()


def indexed(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    """Relation → its columns that have an index."""
    names = {name for (name,) in all_rows(connection, "SELECT index_name FROM duckdb_indexes()")}
    return {
        relation.name: tuple(
            column
            for column in relation.column_names
            if _index_name(relation.name, column) in names
        )
        for relation in catalog
    }
