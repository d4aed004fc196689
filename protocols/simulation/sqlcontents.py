"""A view of any shape at any vector: DuckDB evaluates its SQL over the contents of the sources.

This is the independent side of every test of the operators: the text goes to DuckDB as it is (with
other tables in the place of the relations), so neither our parser nor our operators are used.

Two parts are shared with the checker: how other tables are put into a text
(`checking/rewriting.py`) and how DuckDB makes its plans (`checking/plans.py`). A mistake there
would mislead both alike, so their agreement does not exclude one. Therefore the tests compare these
contents with the original text, over tables that have the names of the relations. Doing that here
would exclude sources that are called `system` or `temp`, which are databases to DuckDB.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from protocols.algebra.bag import Bag, Row
from protocols.algebra.types import ColumnType
from protocols.checking.plans import executed, judging
from protocols.checking.pythonfunctions import know_functions
from protocols.checking.rewriting import ViewText, view_text
from protocols.simulation.algebras import one_nan
from protocols.simulation.source import MemorySource
from protocols.views.catalog import Catalog, Relation
from protocols.views.tree import TreeView


class SqlContents:
    """The rows of a view at vectors of its sources."""

    def __init__(self, view: TreeView, sources: Mapping[str, MemorySource]) -> None:
        self._sources = sources
        self._schema: Mapping[str, ColumnType] = view.schema
        # The text may name relations that the view does not need.
        there = (relation for source in sources.values() for relation in source.relations)
        self._text: ViewText = view_text(view.sql, Catalog(tuple(there)), view.dialect)
        self._sql = self._text.over(_name)
        if self._text.calls_python:
            know_functions(_database())
        # Temporary tables belong to a cursor.
        self._db = _database().cursor()
        #: Relation → its contents at different versions, each with the table that holds them.
        self._tables: dict[Relation, list[tuple[Bag, str]]] = {}
        #: A statement over such tables → its rows.
        self._known: dict[str, dict[Row, int]] = {}

    def at(self, vector: Mapping[str, int]) -> dict[Row, int]:
        """The rows with their counts."""
        sql = self._sql
        for relation in self._text.relations:
            sql = sql.replace(_name(relation), self._table(relation, vector[relation.source]))
        if sql not in self._known:
            self._known[sql] = self._evaluated(sql)
        return self._known[sql]

    def _table(self, relation: Relation, version: int) -> str:
        """The table with the contents of a relation; unchanged contents are not written again."""
        held = self._sources[relation.source].held(relation, version)
        tables = self._tables.setdefault(relation, [])
        for known, name in tables:
            if known is held:
                return name
        name = f'"{relation} {len(tables)}"'
        rows = [row for row, count in held.counts.items() for _ in range(count)]
        self._db.execute(*_creating(name, relation, rows))
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


def _creating(name: str, relation: Relation, rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """The statement that makes a table of these rows, and its values."""
    numbers = [f"c{i}" for i in range(len(relation.columns))]
    columns = ", ".join(
        f"{number}::{type_.name} AS {_quoted(column)}"
        for number, (column, type_) in zip(numbers, relation.columns, strict=True)
    )
    # VALUES needs at least one row; WHERE false drops it again.
    values = rows or [(None,) * len(numbers)]
    marks = ", ".join([f"({', '.join('?' * len(numbers))})"] * len(values))
    sql = f"SELECT {columns} FROM (VALUES {marks}) AS v({', '.join(numbers)})"
    sql += "" if rows else " WHERE false"
    return f"CREATE TEMP TABLE {name} AS {sql}", [value for row in values for value in row]


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One database for all: opening one takes longer than most of these queries."""
    return judging(duckdb.connect(":memory:", config={"threads": 1}))


def _name(relation: Relation) -> str:
    return f'"{relation}"'
