"""A view of any shape at any vector: DuckDB evaluates its SQL over what the sources held.

The independent side of every test of the operators: the text goes to DuckDB as it is (with other
tables in the place of the relations), so nothing of our reading of it, nor of our operators, takes
part.

How other tables come into a text (`checking/rewriting.py`) and how DuckDB makes its plans
(`checking/plans.py`) is shared with the checker. What that costs: a slip there fools both alike, so
that the one agrees with the other says nothing about it. Therefore the tests hold these contents to
the text as it was written, over tables that have the names of the relations. To do so here would
leave out sources that are called `system` or `temp`, which are databases to DuckDB.
"""

from collections.abc import Mapping
from functools import cache

import duckdb
import polars as pl

from protocols.algebra.bag import Bag, Row
from protocols.algebra.types import ColumnType
from protocols.checking.plans import executed, judging
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
        # The text may name relations that the view needs nothing of.
        there = (relation for source in sources.values() for relation in source.relations)
        self._text: ViewText = view_text(view.sql, Catalog(tuple(there)))
        self._sql = self._text.over(_name)
        # Temporary tables belong to a cursor.
        self._db = _database().cursor()
        #: Per relation what it held, each with the table that holds it.
        self._tables: dict[Relation, list[tuple[Bag, str]]] = {}
        self._known: dict[tuple[int, ...], dict[Row, int]] = {}

    def at(self, vector: Mapping[str, int]) -> dict[Row, int]:
        """The rows with their counts."""
        key = tuple(vector[source] for source in self._sources)
        if key not in self._known:
            sql = self._sql
            for relation in self._text.relations:
                sql = sql.replace(_name(relation), self._table(relation, vector[relation.source]))
            self._known[key] = self._evaluated(sql)
        return self._known[key]

    def _table(self, relation: Relation, version: int) -> str:
        """The table with what a relation held; what did not change is not written again."""
        held = self._sources[relation.source].held(relation, version)
        tables = self._tables.setdefault(relation, [])
        for known, name in tables:
            if known is held:
                return name
        name = f'"{relation} {len(tables)}"'
        schema = {column: type_.dtype for column, type_ in relation.columns}
        rows = [row for row, count in held.counts.items() for _ in range(count)]
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        self._db.register("rows", frame.to_arrow())
        self._db.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM rows")
        tables.append((held, name))
        return name

    def _evaluated(self, sql: str) -> dict[Row, int]:
        names = [f"c{i}" for i in range(len(self._schema))]
        casts = ", ".join(
            f"{name}::{type_.name}"
            for name, type_ in zip(names, self._schema.values(), strict=True)
        )
        found = executed(self._db, f"SELECT {casts} FROM ({sql}) AS v({', '.join(names)})")
        counted: dict[Row, int] = {}
        for cells in found.fetchall():
            row = tuple(map(one_nan, cells))
            counted[row] = counted.get(row, 0) + 1
        return counted


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all: to open a database takes longer than most of these questions."""
    return judging(duckdb.connect(":memory:", config={"threads": 1}))


def _name(relation: Relation) -> str:
    return f'"{relation}"'
