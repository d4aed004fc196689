"""The columns that DuckDB gives a view's text, over empty relations."""

import duckdb

from protocols.views.catalog import Catalog

#: DuckDB's types for sums of whole numbers and for whole numbers in the text → ours.
_KEPT_AS = {"HUGEINT": "DECIMAL(38,0)", "INTEGER": "BIGINT"}


class EmptyTables:
    """The relations of a catalogue in DuckDB, without rows."""

    def __init__(self, catalog: Catalog) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        for relation in catalog:
            columns = ", ".join(f'"{name}" {type_.name}' for name, type_ in relation.columns)
            self._database.execute(f'CREATE SCHEMA IF NOT EXISTS "{relation.source}"')
            self._database.execute(f"CREATE TABLE {relation} ({columns})")

    def columns(self, sql: str) -> list[tuple[str, str]]:
        """Names, in lower case, and types of the columns of the text, which also runs."""
        found = self._database.sql(sql)
        found.fetchall()
        types = (str(type_) for type_ in found.types)
        return [
            (name.lower(), _KEPT_AS.get(type_, type_))
            for name, type_ in zip(found.columns, types, strict=True)
        ]
