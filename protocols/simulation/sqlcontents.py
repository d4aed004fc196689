"""A view of any shape at any vector: DuckDB evaluates its SQL over what the sources held.

The independent side of every test of the operators: the text goes to DuckDB as it is (with other
tables in the place of the relations), so nothing of our reading of it, nor of our operators, takes
part.
"""

from collections.abc import Mapping

import duckdb
import polars as pl

from protocols.algebra.bag import Row
from protocols.algebra.types import ColumnType
from protocols.checking.rewriting import ViewText, view_text
from protocols.simulation.algebras import one_nan
from protocols.simulation.source import SimulatedSource
from protocols.views.catalog import Catalog, Relation
from protocols.views.tree import TreeView


class SqlContents:
    """The rows of a view at vectors of its sources."""

    def __init__(self, view: TreeView, sources: Mapping[str, SimulatedSource]) -> None:
        self._sources = sources
        self._schema: Mapping[str, ColumnType] = view.schema
        self._relations = view.relations
        self._text: ViewText = view_text(view.sql, Catalog(view.relations))
        self._sql = self._text.over(_table)
        self._db = duckdb.connect(":memory:", config={"threads": 1})
        #: Relation → the version that its table holds.
        self._held: dict[Relation, int] = {}
        self._known: dict[tuple[int, ...], dict[Row, int]] = {}

    def at(self, vector: Mapping[str, int]) -> dict[Row, int]:
        """The rows with their counts."""
        key = tuple(vector[source] for source in self._sources)
        if key not in self._known:
            for relation in self._relations:
                self._go_to(relation, vector[relation.source])
            self._known[key] = self._evaluated()
        return self._known[key]

    def _go_to(self, relation: Relation, version: int) -> None:
        if self._held.get(relation) == version:
            return
        held = self._sources[relation.source].held(relation, version)
        schema = {name: type_.dtype for name, type_ in relation.columns}
        rows = [row for row, count in held.counts.items() for _ in range(count)]
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        self._db.register("rows", frame.to_arrow())
        self._db.execute(f"CREATE OR REPLACE TABLE {_table(relation)} AS SELECT * FROM rows")
        self._held[relation] = version

    def _evaluated(self) -> dict[Row, int]:
        names = [f"c{i}" for i in range(len(self._schema))]
        casts = ", ".join(
            f"{name}::{type_.name}"
            for name, type_ in zip(names, self._schema.values(), strict=True)
        )
        found = self._db.execute(f"SELECT {casts} FROM ({self._sql}) AS v({', '.join(names)})")
        counted: dict[Row, int] = {}
        for cells in found.fetchall():
            row = tuple(map(one_nan, cells))
            counted[row] = counted.get(row, 0) + 1
        return counted


def _table(relation: Relation) -> str:
    return f'"{relation.source}.{relation.name}"'
