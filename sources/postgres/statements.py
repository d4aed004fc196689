"""The SQL that creates and changes a source's tables in PostgreSQL."""

from collections.abc import Iterator

from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation
from sources.debezium.statements import Row, Statement, Statements

_TYPES = {"VARCHAR": "text", "DOUBLE": "float8"}


class PostgresStatements(Statements):
    """Relations may be without keys."""

    def prepare(self) -> Iterator[str]:
        """Full records, and a publication."""
        for name in self._relations:
            yield f"ALTER TABLE {name} REPLICA IDENTITY FULL"
        yield "CREATE PUBLICATION viewsweep FOR ALL TABLES"

    def type_of(self, type_: ColumnType, is_key: bool) -> str:  # noqa: ARG002
        """The type, in keys as elsewhere."""
        return _TYPES.get(type_.name, type_.name)

    def without_key(self, relation: Relation, row: Row) -> Statement:
        """Deletes one of the rows that are equal to this one."""
        same = " AND ".join(f"{name} IS NOT DISTINCT FROM %s" for name in relation.column_names)
        one = f"SELECT ctid FROM {relation.name} WHERE {same} LIMIT 1"
        return f"DELETE FROM {relation.name} WHERE ctid = ({one})", row
