"""The oracle: the transactions that a database has committed, and the relations that they make.

Plain Python counts rows, DuckDB evaluates SQL; no code of viewsweep takes part.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from sources.transaction import Transaction
from tests.conformance.story import Row, Story

#: (relation, row) → the change of its count.
Net: TypeAlias = Counter[tuple[str, Row]]
Rows: TypeAlias = Counter[Row]


@dataclass(frozen=True)
class Committed:
    """A committed transaction, and the times (ms since the epoch) between which it committed."""

    transaction: Transaction
    since: int
    until: int

    @property
    def net(self) -> Net:
        return net((each.relation, each.row, each.count) for each in self.transaction.changes)


def net(changes: Iterable[tuple[str, Row, int]]) -> Net:
    """The changes of counts, without zeroes."""
    found: Net = Counter()
    for relation, row, count in changes:
        found[relation, tuple(map(_comparable, row))] += count
    return Counter({each: count for each, count in found.items() if count})


def _comparable(value: Any) -> Any:
    """A value that equals the same value of another computation: NaN is not equal to itself."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Oracle:
    """The relations at any version, by SQL."""

    def __init__(self, story: Story, committed: Sequence[Committed]) -> None:
        self._db = duckdb.connect(":memory:", config={"threads": 1})
        for relation in story.catalog:
            names = ", ".join(relation.column_names)
            types = ", ".join(f"{name} {type_.name}" for name, type_ in relation.columns)
            self._db.execute(f"CREATE TABLE log_{relation.name} ({types}, _version BIGINT, _n INT)")
            self._db.execute(
                f"CREATE VIEW {relation.name} AS SELECT {names} FROM (SELECT {names},"
                f" unnest(range(_copies)) FROM (SELECT {names}, sum(_n)::INT AS _copies"
                f" FROM log_{relation.name} WHERE _version <= getvariable('version')"
                " GROUP BY ALL))"
            )
        for name, rows in story.rows.items():
            self._write(name, [(*row, 0, 1) for row in rows])
        for name in (relation.name for relation in story.catalog):
            self._write(
                name,
                [
                    (*change.row, version, change.count)
                    for version, each in enumerate(committed, 1)
                    for change in each.transaction.changes
                    if change.relation == name
                ],
            )

    def _write(self, relation: str, rows: Sequence[Row]) -> None:
        if rows:
            places = ", ".join(["(" + ", ".join("?" * len(rows[0])) + ")"] * len(rows))
            values = [value for row in rows for value in row]
            self._db.execute(f"INSERT INTO log_{relation} VALUES {places}", values)

    def at(self, version: int, sql: str) -> Rows:
        """The rows of a SELECT over the relations at a version."""
        self._db.execute(f"SET VARIABLE version = {version}")
        return counted((*row, 1) for row in self._db.execute(sql).fetchall())

    def sizes(self, version: int, relation: str, columns: Sequence[str]) -> list[int]:
        """The number of rows at a version, and of different values in each of these columns."""
        self._db.execute(f"SET VARIABLE version = {version}")
        counts = ", ".join(f"count(DISTINCT {column})" for column in columns)
        found = self._db.execute(f"SELECT count(*), {counts} FROM {relation}").fetchone()
        assert found is not None
        return list(found)

    def close(self) -> None:
        self._db.close()


def counted(rows: Iterable[Row]) -> Rows:
    """Rows whose last value is their count, added up, without zeroes."""
    found: Rows = Counter()
    for *row, count in rows:
        found[tuple(map(_comparable, row))] += count
    return Counter({row: count for row, count in found.items() if count})
