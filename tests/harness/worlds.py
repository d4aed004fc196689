"""Many small databases ("worlds") over one catalog, with a view evaluated in all of them at once.

Every table gets a column for the world, and every pair of tables is joined on it; DuckDB evaluates
the text of the view once.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, TypeAlias

import duckdb
import polars as pl
import sqlglot
from sqlglot import exp

from protocols.algebra.types import ColumnType
from protocols.views.catalog import Catalog, Relation
from tests.harness.possibletransactions import Contents, Possible
from tests.harness.selfmaintained import Row, Transaction

#: The rows of a view in one world.
Rows: TypeAlias = frozenset[tuple[Row, int]]

_TYPES = {"BIGINT": pl.Int64, "VARCHAR": pl.String}


class Worlds:
    """A database of worlds, by number."""

    def __init__(self, catalog: Catalog) -> None:
        self._database = duckdb.connect(config={"threads": 1})
        self._catalog = catalog
        self._count = 0
        for source in catalog.sources:
            self._database.execute(f'CREATE SCHEMA "{source}"')

    def hold(self, contents: Sequence[Contents]) -> None:
        """Replaces the contents of all worlds."""
        self._count = len(contents)
        for relation in self._catalog:
            schema: dict[str, Any] = {"_world": pl.Int64}
            schema.update({name: _type(type_) for name, type_ in relation.columns})
            rows = [(n, *row) for n, held in enumerate(contents) for row in held[relation].values()]
            table = pl.DataFrame(rows, schema, orient="row")
            self._database.register("given", table.to_arrow())
            self._database.execute(f"CREATE OR REPLACE TABLE {relation} AS SELECT * FROM given")

    def rows(self, sql: str) -> list[Rows]:
        """The rows of a SELECT over relations in each world."""
        found: dict[int, Counter[Row]] = defaultdict(Counter)
        for world, *row in self._database.execute(_in_each_world(sql)).fetchall():
            found[world][tuple(row)] += 1
        return [frozenset(found[world].items()) for world in range(self._count)]


def without(rows: Rows, places: Collection[int]) -> Rows:
    """The rows without some of their columns, with duplicates."""
    kept: Counter[Row] = Counter()
    for row, count in rows:
        kept[tuple(value for place, value in enumerate(row) if place not in places)] += count
    return frozenset(kept.items())


def neighbours(contents: Contents, possible: Possible) -> Iterator[Contents]:
    """Contents that could be there and differ in one row, in one column of two, or in two keys."""
    for relation, rows in contents.items():
        for ours, theirs in combinations(range(1, possible.keys + 1), 2):
            if len(relation.key) == 1:
                yield _exchanged(contents, relation, {ours: theirs, theirs: ours}, possible)
        for key, row in rows.items():
            yield from _if_possible(possible, contents, relation, {key: None})
            for new in _with_other_parents(relation, row, possible):
                yield from _if_possible(possible, contents, relation, {key: new})
            for place, column in enumerate(relation.column_names):
                for value in possible.values(relation, column):
                    yield from _if_possible(
                        possible, contents, relation, {key: _with(row, place, value)}
                    )
                for other_key, other in rows.items():
                    swapped = {key: _with(row, place, other[place])}
                    swapped[other_key] = _with(other, place, row[place])
                    yield from _if_possible(possible, contents, relation, swapped)


def after(contents: Contents, transaction: Transaction) -> Contents | None:
    """The contents after a transaction that changes exactly these rows; None if it cannot."""
    found = {relation: dict(rows) for relation, rows in contents.items()}
    for relation, net in transaction.items():
        rows = found[relation]
        for old, new in [*((row, None) for row in net.deleted), *net.updated]:
            if rows.get(_key(relation, old)) != old:
                return None
            del rows[_key(relation, old)]
            if new is not None:
                rows[_key(relation, old)] = new
        for new in net.inserted:
            if _key(relation, new) in rows:
                return None
            rows[_key(relation, new)] = new
    return found


def _with_other_parents(relation: Relation, row: Row, possible: Possible) -> Iterator[Row]:
    """The row with other values in its foreign keys, in all combinations."""
    columns = {column for key in possible.references(relation) for column in key.columns}
    values = [
        [*possible.values(relation, column)] if column in columns - {*relation.key} else [value]
        for column, value in zip(relation.column_names, row, strict=True)
    ]
    return product(*values)


def _if_possible(
    possible: Possible, contents: Contents, relation: Relation, new: Mapping[Row, Row | None]
) -> Iterator[Contents]:
    rows = {**contents[relation], **new}
    held = {key: row for key, row in rows.items() if row is not None}
    found = {**contents, relation: held}
    same_keys = all(_key(relation, row) == key for key, row in held.items())
    if found != contents and same_keys and possible.allows(found):
        yield found


def _exchanged(
    contents: Contents, relation: Relation, names: Mapping[int, int], possible: Possible
) -> Contents:
    """The contents in which rows of a relation exchange their keys, wherever these stand."""
    found = {}
    for each, rows in contents.items():
        places = {
            each.column_names.index(column)
            for key in possible.references(each)
            if (key.parent, key.parent_columns) == (relation, relation.key)
            for column in key.columns
        }
        if each == relation:
            places.add(each.column_names.index(each.key[0]))
        renamed = [
            tuple(names.get(v, v) if place in places else v for place, v in enumerate(row))
            for row in rows.values()
        ]
        found[each] = {_key(each, row): row for row in renamed}
    return found


def _key(relation: Relation, row: Row) -> Row:
    return tuple(row[relation.column_names.index(column)] for column in relation.key)


def _with(row: Row, place: int, value: Any) -> Row:
    return (*row[:place], value, *row[place + 1 :])


def _type(type_: ColumnType) -> Any:
    return _TYPES[type_.name]


def _in_each_world(sql: str) -> str:
    select = sqlglot.parse_one(sql, dialect="duckdb")
    assert isinstance(select, exp.Select)
    names = [table.alias_or_name for table in select.find_all(exp.Table)]
    select.set(
        "expressions",
        [exp.column("_world", table=names[0], quoted=True), *select.expressions],
    )
    for other in names[1:]:
        select = select.where(f'"{names[0]}"."_world" = "{other}"."_world"', dialect="duckdb")
    return select.sql("duckdb")
