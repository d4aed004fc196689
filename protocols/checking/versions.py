"""All versions of the relations that a view reads, as tables of DuckDB."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import numpy as np
import polars as pl

from protocols.checking.changes import Ints
from protocols.checking.order import DeliveryOrder
from protocols.checking.plans import NotEvaluated, executed, judging
from protocols.checking.pythonfunctions import forget_functions, know_functions
from protocols.checking.rewriting import ViewText
from protocols.checking.trace import Row, Trace, shown_row
from protocols.errors import WrongUse
from protocols.views.catalog import Relation

# The end of a life that is still going on.
FOREVER = 2**62


class Versions:
    """All versions of each relation; the i-th has the tables

    history_i  signed rows, each tagged with the version that brought it (initial rows: 0)
    life_i     rows with their count, and the versions from which and until which it holds
    copy_i     lives, each as often as its row is there
    """

    def __init__(self, trace: Trace, text: ViewText, order: DeliveryOrder) -> None:
        self._number = {relation: i for i, relation in enumerate(text.relations)}
        #: The number of a source in vectors.
        self.source = {source: i for i, source in enumerate(order.sources)}
        # In memory; nothing is spilled.
        self._db = judging(duckdb.connect(":memory:"))
        self._db.execute("SET preserve_insertion_order = false")
        if text.calls_python:
            know_functions(self._db)
        self._load(trace)

    def close(self) -> None:
        forget_functions(self._db)
        self._db.close()

    # Loading

    def _load(self, trace: Trace) -> None:
        rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
        versions: dict[tuple[str, str], list[int]] = defaultdict(list)
        counts: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place, initial in trace.run.initial.items():
            rows[place].extend(initial)
            versions[place].extend([0] * len(initial))
            counts[place].extend([1] * len(initial))
        for commit in trace.commits:
            for change in commit.changes:
                place = (commit.source, change.relation)
                rows[place].append(change.row)
                versions[place].append(commit.version)
                counts[place].append(change.count)
        for relation, i in self._number.items():
            place = (relation.source, relation.name)
            schema = {name: type_.dtype for name, type_ in relation.columns}
            frame = pl.DataFrame(rows[place], schema=schema, orient="row").with_columns(
                pl.Series("_version", versions[place], pl.Int64),
                pl.Series("_count", counts[place], pl.Int64),
            )
            self._load_relation(relation, i, frame)

    def _load_relation(self, relation: Relation, i: int, frame: pl.DataFrame) -> None:
        columns = _column_list(relation)
        self.register("loaded", frame)
        self.run(
            f"CREATE TABLE history_{i} AS SELECT {columns}, _version, sum(_count)::BIGINT AS _count"
            f" FROM loaded GROUP BY ALL HAVING sum(_count) <> 0"
        )
        versioned = f"(SELECT *, _version AS _at FROM history_{i})"
        self.run(f"CREATE TABLE life_{i} AS {lives(relation, versioned)}")
        below = self.run(
            f"SELECT _from, row({columns}) FROM life_{i} WHERE _count < 0 ORDER BY _from LIMIT 1"
        ).fetchone()
        if below:
            version, row = below
            raise WrongUse(
                f"version {version} of {relation.source} deletes row "
                f"{shown_row(cells(row))} from {relation}, which does not contain it"
            )
        self.run(
            f"CREATE TABLE copy_{i} AS SELECT {columns}, _from, _to FROM ("
            f"SELECT *, unnest(range(_count)) AS _copy FROM life_{i})"
        )

    # Contents

    def table(self, kind: str) -> Callable[[Relation], str]:
        """The tables of a kind: history, life, copy, or one made from them."""
        return lambda relation: f"{kind}_{self._number[relation]}"

    def alive(self, version: Callable[[int], object]) -> Callable[[Relation], str]:
        """The rows of relations, for FROM, at a version of each source (by its number)."""

        def rows(relation: Relation) -> str:
            at = version(self.source[relation.source])
            return (
                f"(SELECT {_column_list(relation)} FROM copy_{self._number[relation]} "
                f"WHERE _from <= {at} AND {at} < _to)"
            )

        return rows

    def copies(self) -> int:
        """The number of rows of all versions together, each counted as often as it is there."""
        counts = (self.run(f"SELECT count(*) FROM copy_{i}") for i in self._number.values())
        return int(sum(count.fetchall()[0][0] for count in counts))

    # The database

    def register(self, name: str, frame: pl.DataFrame) -> None:
        """Makes the frame a table, replacing any of that name."""
        self._db.register("arriving", frame.to_arrow())
        self.run(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM arriving")
        self._db.unregister("arriving")

    def fetched(self, sql: str) -> dict[str, Ints]:
        """The integer columns that a query yields."""
        return {name: np.asarray(v, np.int64) for name, v in self.run(sql).fetchnumpy().items()}

    def run(self, sql: str, values: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Runs a statement; NotEvaluated says why DuckDB cannot."""
        try:
            return executed(self._db, sql, values)
        except duckdb.Error as error:
            words = f"DuckDB cannot evaluate the view: {_first_line(error)}"
            raise NotEvaluated(words) from None


def lives(relation: Relation, table: str) -> str:
    """The intervals of `_at` in which a row's multiplicity is constant and not zero."""
    columns = _column_list(relation)
    return (
        f"SELECT * FROM (SELECT {columns}, _at AS _from, "
        f"lead(_at, 1, {FOREVER}) OVER alive AS _to, (sum(_n) OVER alive)::BIGINT AS _count "
        f"FROM (SELECT {columns}, _at, sum(_count) AS _n FROM {table} "
        f"GROUP BY {columns}, _at HAVING sum(_count) <> 0) "
        f"WINDOW alive AS (PARTITION BY {columns} ORDER BY _at)) WHERE _count <> 0"
    )


def cells(row: Any) -> Sequence[Any]:
    """The values of a `row(…)` of SQL."""
    return list(row.values()) if isinstance(row, dict) else list(row)


def _column_list(relation: Relation) -> str:
    return ", ".join(quoted(column) for column in relation.column_names)


def quoted(name: str) -> str:
    """The name in quotes, for SQL text."""
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
