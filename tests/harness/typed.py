"""Values of all types of a database: as committed, as published, as answered."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import Frame
from protocols.exchange.questions import Page, Query
from protocols.views.catalog import Relation
from sources.kafka import Kafka
from sources.port import Source
from sources.topics import ends_of
from tests.conformance.reading import Reading, take
from tests.harness.databases import RealDatabase
from tests.harness.records import records


@dataclass(frozen=True)
class TypedColumn:
    """A column: its type at the database and in views, and its values: as SQL → as we show them."""

    stored: str
    shown: str
    values: Mapping[str, Any]


def create_table(columns: Mapping[str, TypedColumn]) -> str:
    """The statement that creates the table `typed` with a key and these columns."""
    names = ", ".join(f"{name} {column.stored}" for name, column in columns.items())
    return f"CREATE TABLE typed (id INT PRIMARY KEY, {names})"


def inserts(columns: Mapping[str, TypedColumn]) -> list[str]:
    """The statements that insert rows which between them have all values, and one of NULLs."""
    rows = [[list(each.values)[n % len(each.values)] for each in columns.values()]
            for n in range(_most(columns))]  # fmt: skip
    rows.append(["NULL"] * len(columns))
    return [f"INSERT INTO typed VALUES ({n}, {', '.join(row)})" for n, row in enumerate(rows)]


def _most(columns: Mapping[str, TypedColumn]) -> int:
    return max(len(each.values) for each in columns.values())


def expected(columns: Mapping[str, TypedColumn]) -> list[tuple[Any, ...]]:
    """The rows that the statements insert."""
    rows: list[tuple[Any, ...]] = [
        (n, *(list(each.values.values())[n % len(each.values)] for each in columns.values()))
        for n in range(_most(columns))
    ]
    return [*rows, (len(rows), *(None for _ in columns))]


def assert_types(
    source: Source, database: RealDatabase, columns: Mapping[str, TypedColumn]
) -> None:
    """Records, and answers to all rows, by keys and by pages, show the rows as expected."""
    relation = source.describe().relations["typed"]
    found = {name: relation.type_of(name).name for name in columns}
    assert found == {name: each.shown for name, each in columns.items()}
    rows = expected(columns)
    _assert_published(source, database, relation, rows)
    _assert_equal(_answered(source, Query(relation, relation.column_names)), rows)
    page: Query[Frame] = Query(relation, relation.column_names, None, None, Page((0,), 2))
    _assert_equal(_answered(source, page), rows[1:3])
    for place, name in enumerate(relation.column_names):
        values = [row[place] for row in rows if row[place] is not None]
        dtype = relation.type_of(name).dtype
        keys = pl.DataFrame([pl.Series(name, values, dtype).unique()])
        wanted = Frame(keys.with_columns(pl.lit(1, pl.Int64).alias(COUNT)))
        by_key = _answered(source, Query(relation, relation.column_names, None, (wanted,)))
        _assert_equal(by_key, [row for row in rows if row[place] is not None], name)


def _answered(source: Source, query: Query[Frame]) -> list[tuple[Any, ...]]:
    return source.ask(query).rows.data.select(*query.relation.column_names).rows()


def _assert_published(
    source: Source, database: RealDatabase, relation: Relation, rows: Sequence[tuple[Any, ...]]
) -> None:
    """The changes since the topic's first record add up to the rows."""
    [(partition, (low, _))] = ends_of(Kafka(database.bootstrap), {"": [database.topic]})[""].items()
    values = records(database.bootstrap, {partition: low})
    piece = list(values.select("offset", "value").iter_rows())
    reading = Reading(source, [relation], {partition: low})
    take(reading.changes, partition, piece)
    assert reading.changes.fault is None, reading.changes.fault
    held: Counter[tuple[Any, ...]] = Counter()
    for net in reading.kept.changes.values():
        for (_, row), count in net.items():
            held[row] += count
    _assert_equal([row for row, count in held.items() if count == 1], rows)
    assert len([row for row, count in held.items() if count]) == len(rows)


def _assert_equal(
    found: Sequence[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]], what: str = ""
) -> None:
    """Compares by `repr`, which tells 0.1 from its neighbour, and -0.0 from 0.0."""
    pairs = zip(sorted(found), sorted(rows), strict=True)
    wrong = [pair for pair in pairs if repr(pair[0]) != repr(pair[1])]
    assert not wrong, (what, wrong)
