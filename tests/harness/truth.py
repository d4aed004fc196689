"""The truth about a view, from DuckDB.

It evaluates the view's SQL over the relations as the test committed them; no code of viewsweep
takes part in that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import duckdb
import polars as pl

from protocols.views.catalog import Catalog
from tests.cases.stories import Row
from warehouse.tables import ViewTables

#: (version, relation, row, change of its count).
Committed = tuple[int, str, Row, int]
Rows = Counter[tuple[Any, ...]]


class Committing(Protocol):
    """A source, as far as the truth needs it."""

    name: str
    catalog: Catalog
    history: list[Committed]


def plus(held: Rows, changes: Rows) -> Rows:
    held = held.copy()
    held.update(changes)
    return Counter({row: count for row, count in held.items() if count})


def counted(frame: pl.DataFrame) -> Rows:
    return Counter({tuple(row): count for *row, count in frame.iter_rows()})


#: Rows of one statement: a statement for each row takes four times as long.
_AT_ONCE = 500


class Oracle:
    """The view at any vector: its SQL in DuckDB over the rows that the sources committed."""

    def __init__(self, sources: Iterable[Committing], sql: str) -> None:
        self._sql = sql
        self._db = duckdb.connect(":memory:", config={"threads": 1})
        for source in sources:
            self._db.execute(f"CREATE SCHEMA {source.name}")
            for relation in source.catalog:
                self._load(source, relation.name, relation.columns)

    def _load(self, source: Committing, relation: str, columns: Sequence[tuple[str, Any]]) -> None:
        names = ", ".join(name for name, _ in columns)
        types = ", ".join(f"{name} {type_.name}" for name, type_ in columns)
        log = f"{source.name}.{relation}_log"
        self._db.execute(f"CREATE TABLE {log} ({types}, _version BIGINT, _n BIGINT)")
        rows = [(*row, v, n) for v, name, row, n in source.history if name == relation]
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            places = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
            self._db.execute(f"INSERT INTO {log} VALUES {places}", list(chain(*some)))
        self._db.execute(
            f"CREATE VIEW {source.name}.{relation} AS SELECT {names} FROM ("
            f"SELECT {names}, unnest(range(copies)) FROM (SELECT {names}, sum(_n)::BIGINT AS copies"
            f" FROM {log} WHERE _version <= getvariable('at_{source.name}') GROUP BY ALL))"
        )

    def at(self, vector: Mapping[str, int]) -> Rows:
        for source, version in vector.items():
            self._db.execute(f"SET VARIABLE at_{source} = {version}")
        return Counter(self._db.execute(self._sql).fetchall())


def assert_every_state(
    tables: ViewTables,
    oracle: Oracle,
    vector: dict[str, int],
    groups: Mapping[int, list[tuple[int, str, int, bool]]],
) -> None:
    """Checks every shown position; a group is what a position delivers."""
    changes: dict[int, Rows] = {}
    for *row, count, position in tables.changes().collect().iter_rows():
        changes.setdefault(position, Counter())[tuple(row)] += count
    held = changes.get(0, Counter())
    assert held == oracle.at(vector), "the first state"
    for position, group in groups.items():
        for _, source, version, _ in group:
            assert version == vector[source] + 1, f"position {position}"
            vector[source] = version
        held = plus(held, changes.get(position, Counter()))
        if group[0][-1]:
            assert held == oracle.at(vector), f"position {position}"
        else:
            assert position not in changes, f"position {position} is not shown"
