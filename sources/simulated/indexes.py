"""The plain indexes of a source.

The owner chooses them (access.py says when one is used): a source does not know which columns
others look up. With an index a question with a few keys reads only the rows that match, however
large the relation; without one it is a scan, 3.5 ms per million rows. An index on the key speeds up
the source's own commits in the same way.
"""

from collections.abc import Mapping, Sequence

import duckdb
import orjson

from protocols.errors import WrongUse
from protocols.views.catalog import Catalog
from sources.simulated.rows import all_rows, quoted, table_name


def make_indexes(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    catalog: Catalog,
    indexes: Mapping[str, Sequence[str]],
) -> None:
    """Creates a separate index on each of these columns of relations."""
    for name, columns in indexes.items():
        relation = catalog.find(source, name)
        if relation is None:
            raise WrongUse(f"an index on {name}: source {source} has no such relation")
        for column in dict.fromkeys(columns):
            if column not in relation.column_names:
                raise WrongUse(
                    f"an index on {relation}.{column}: there is no such column; choose one of:"
                    f" {', '.join(relation.column_names)}"
                )
            index, table = quoted(_index_name(name, column)), table_name(relation)
            connection.execute(f"CREATE INDEX {index} ON {table} ({quoted(column)})")


def _index_name(relation: str, column: str) -> str:
    """A name, unique within the source, that tells which column the index is on."""
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
