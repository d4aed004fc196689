"""Look-ups in SQL against plain Python, and refused questions."""

import datetime
import decimal
import itertools
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import (
    COMPARISONS,
    And,
    Column,
    Comparison,
    Condition,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
)
from protocols.algebra.expressions_reference import holds
from protocols.algebra.frame import Frame
from protocols.algebra.types import ColumnType, column_type
from protocols.errors import WrongUse
from protocols.exchange.questions import Page, Query
from protocols.views.catalog import Relation, catalog_from_json
from sources.simulated.access import FEW_KEYS
from sources.simulated.database import SourceDatabase
from sources.simulated.lookup import lookup
from sources.transaction import RowChange, Transaction
from sources.wire.answers import fault, schema_fault
from sources.wire.messages import counted, decode_query, encode_query

COLUMNS = {
    "b": "BIGINT",
    "d": "DOUBLE",
    "p": "DECIMAL(12,2)",
    "s": "VARCHAR",
    "t": "BOOLEAN",
    "y": "DATE",
    "m": "TIMESTAMP",
}
CATALOG = catalog_from_json(
    {
        "a": {
            "relations": {
                "bag": {"columns": COLUMNS},
                "keyed": {"columns": COLUMNS, "key": ["s", "b"]},
                'odd "name"': {"columns": {'co"l; DROP TABLE x --': "BIGINT", "select": "BIGINT"}},
            }
        }
    }
)
BAG, KEYED, ODD = CATALOG.relations
#: Few values per type, so that keys and conditions match; awkward ones included.
VALUES: dict[str, list[Any]] = {
    "b": [0, 1, -1, 2**63 - 1, -(2**63)],
    "d": [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 1e308],
    "p": [decimal.Decimal(text) for text in ("0.00", "1.50", "-1.50", "9999999999.99")],
    "s": ["", "a", "A", "ä", "a\0b", "'; --", "𝄞", "�"],
    "t": [True, False],
    "y": [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)],
    "m": [
        datetime.datetime(1, 1, 1),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
}
Row = tuple[Any, ...]


def values(column: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([None, *VALUES[column]])


rows = st.lists(st.tuples(*(values(column) for column in COLUMNS)), max_size=12)


def frame(relation: Relation, columns: tuple[str, ...], content: list[Row]) -> Frame:
    schema = {name: relation.type_of(name).dtype for name in columns}
    data = pl.DataFrame(content, schema=schema, orient="row")
    return Frame(data.with_columns(pl.lit(1, pl.Int64).alias(COUNT)))


@st.composite
def key_sets(draw: st.DrawFn) -> Frame:
    columns = tuple(draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True)))
    columns = columns[:3]
    content = draw(st.lists(st.tuples(*(values(column) for column in columns)), max_size=4))
    return frame(BAG, columns, content)


@st.composite
def comparisons(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(list(COLUMNS)))
    type_ = column_type(COLUMNS[column])
    sides: list[Expression] = [Column(column), Literal(draw(values(column)), type_)]
    if draw(st.booleans()):
        sides.reverse()
    return Comparison(sides[0], draw(st.sampled_from(list(COMPARISONS))), sides[1])


conditions = st.recursive(
    comparisons() | st.builds(IsNull, st.sampled_from(list(COLUMNS)).map(Column)),
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=1, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=1, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


def same(value: Any) -> Any:
    """The value with a substitute for NaN that equals itself."""
    return "NaN" if value != value else value


def matches(keys: Frame, row: Mapping[str, Any]) -> bool:
    wanted = [row[column] for column in keys.columns]
    return None not in wanted and any(
        list(map(same, key)) == list(map(same, wanted))
        for key in keys.data.select(keys.columns).iter_rows()
    )


def expected(query: Query[Frame], stored: list[Row]) -> Counter[Row]:
    """The rows that the query asks for, by the definition of its parts."""
    found: Counter[Row] = Counter()
    for values_ in stored:
        row = dict(zip(COLUMNS, values_, strict=True))
        if query.condition is not None and holds(query.condition, row) is not True:
            continue
        if query.keys is not None and not any(matches(keys, row) for keys in query.keys):
            continue
        found[tuple(same(row[column]) for column in query.columns)] += 1
    return found


def found(database: SourceDatabase, query: Query[Frame]) -> Counter[Row]:
    """The answer, checked for faults like at a client."""
    table, _ = lookup(database, query)
    assert schema_fault(query, table.schema) is None
    assert fault(query, counted(table)) is None
    return Counter(tuple(map(same, row)) for row in zip(*table.to_pydict().values(), strict=True))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDatabase]:
    """One file for all examples: creating one takes longer than all the rest."""
    path = tmp_path_factory.mktemp("shared") / "a.db"
    with SourceDatabase.create(path, "a", CATALOG, {}) as made:
        yield made


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDatabase]:
    """The same source with an index on every column."""
    path = tmp_path_factory.mktemp("indexed") / "a.db"
    with SourceDatabase.create(path, "a", CATALOG, {}, indexes={"bag": list(COLUMNS)}) as made:
        yield made


def fill(database: SourceDatabase, stored: list[Row]) -> None:
    there, _ = lookup(database, Query(BAG, tuple(COLUMNS)))
    old = [RowChange("bag", row, -1) for row in zip(*there.to_pydict().values(), strict=True)]
    new = [RowChange("bag", row, 1) for row in stored]
    database.commit(Transaction((*old, *new)))


queries = st.builds(
    Query,
    st.just(BAG),
    st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True).map(tuple),
    st.none() | conditions,
    st.none() | st.lists(key_sets(), max_size=3).map(tuple),
)


def said_often(query: Query[Frame], first: int) -> Query[Frame]:
    """The same question with so many keys, from key set `first` on, that they become tables."""
    if query.keys is None:
        return query
    often = [Frame(pl.concat([keys.data] * (FEW_KEYS + 1))) for keys in query.keys[first:]]
    return replace(query, keys=(*query.keys[:first], *often))


@settings(max_examples=150, deadline=None)
@given(stored=rows, asked=st.lists(queries, min_size=1, max_size=8))
def test_a_lookup_finds_what_the_definition_says(
    shared: SourceDatabase, indexed: SourceDatabase, stored: list[Row], asked: list[Query[Frame]]
) -> None:
    """With and without indexes, with few keys and with many."""
    fill(shared, stored)
    fill(indexed, stored)
    for query in asked:
        wanted = expected(query, stored)
        for database in (shared, indexed):
            assert found(database, query) == wanted
            for first in (0, 1):
                assert found(database, said_often(query, first)) == wanted


@settings(max_examples=100, deadline=None)
@given(query=queries)
def test_a_query_is_the_same_after_the_wire(query: Query[Frame]) -> None:
    arrived = decode_query(encode_query(query))
    assert repr(arrived) == repr(query)


key_parts = st.tuples(st.sampled_from(VALUES["s"]), st.sampled_from(VALUES["b"]))


@settings(max_examples=30, deadline=None)
@given(keys=st.sets(key_parts, max_size=20), limit=st.integers(1, 7), positive=st.booleans())
def test_pages_put_together_are_the_relation_in_key_order(
    shared: SourceDatabase, keys: set[Row], limit: int, positive: bool
) -> None:
    stored = [(b, None, None, s, None, None, None) for s, b in keys]
    shared.commit(Transaction(tuple(RowChange("keyed", row, 1) for row in stored)))
    condition = Comparison(Column("b"), ">=", Literal(0, column_type("BIGINT")))
    after: Row | None = None
    collected: list[Row] = []
    while True:
        page = Page(after, limit)
        query: Query[Frame] = Query(KEYED, ("s", "b"), condition if positive else None, None, page)
        table, _ = lookup(shared, query)
        assert fault(query, counted(table)) is None
        part = list(zip(*table.to_pydict().values(), strict=True))
        collected += part
        assert len(part) <= limit
        if len(part) < limit:
            break
        after = part[-1]
    shared.commit(Transaction(tuple(RowChange("keyed", row, -1) for row in stored)))
    assert collected == sorted(key for key in keys if not positive or key[1] >= 0)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SourceDatabase]:
    with SourceDatabase.create(tmp_path / "a.db", "a", CATALOG, {}) as made:
        yield made


def test_names_that_look_like_sql_are_only_names(database: SourceDatabase) -> None:
    database.commit(Transaction((RowChange(ODD.name, (1, 2), 1), RowChange(ODD.name, (3, 4), 1))))
    odd, plain = ODD.column_names
    condition = Comparison(Column(odd), "<", Column(plain))
    for content in ([(3,)], [(3,), (5,)]):
        query = Query(ODD, (plain, odd), condition, (frame(ODD, (odd,), content),))
        table, _ = lookup(database, query)
        assert table.to_pydict() == {plain: [4], odd: [3]}


def test_decimals_of_38_places_are_asked_for_exactly(tmp_path: Path) -> None:
    """DuckDB binds one that begins with zeroes as a DOUBLE, which has 17 digits."""
    columns = {"id": "BIGINT", "x": "DECIMAL(38,38)"}
    catalog = catalog_from_json({"a": {"relations": {"r": {"columns": columns}}}})
    [r] = catalog.relations
    values = [decimal.Decimal(f"0.0{'1234567890' * 3}123456{last}") for last in (7, 8)]
    stored = pl.DataFrame({"id": [7, 8], "x": pl.Series(values, dtype=r.type_of("x").dtype)})
    second = Literal(values[1], r.type_of("x"))
    with SourceDatabase.create(tmp_path / "a.db", "a", catalog, {"r": stored}) as database:
        for query in (
            Query(r, ("id",), Comparison(Column("x"), "=", second)),
            Query(r, ("id",), In(Column("x"), (values[1],), r.type_of("x"))),
            Query(r, ("id",), None, (frame(r, ("x",), [(values[1],)]),)),
            Query(r, ("id",), None, (frame(r, ("x",), [(values[1],), (decimal.Decimal(0),)]),)),
        ):
            assert found(database, query) == {(8,): 1}


def test_no_columns_at_all_are_answered_with_the_number_of_rows(database: SourceDatabase) -> None:
    database.commit(Transaction((RowChange(ODD.name, (1, 2), 3),)))
    table, version = lookup(database, Query(ODD, ()))
    assert (table.to_pydict(), version) == ({COUNT: [1, 1, 1]}, 1)


def test_no_rows_keep_their_types(database: SourceDatabase) -> None:
    table, version = lookup(database, Query(BAG, tuple(COLUMNS)))
    data = pl.DataFrame(pl.from_arrow(table))
    assert version == 0
    assert dict(data.schema) == {name: type_.dtype for name, type_ in BAG.columns}


BIG = ColumnType("BIGINT")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Query(Relation("a", "none", BAG.columns), ("b",)), "no relation 'none'"),
        (Query(Relation("a", "bag", BAG.columns[1:]), ("b",)), "assumes the schema"),
        (Query(BAG, ("b", "zz")), "the question names an unknown column 'zz'"),
        (Query(BAG, ("rowid",)), "the question names an unknown column 'rowid'"),
        (Query(BAG, ("b",), IsNull(Column("zz"))), "the condition names an unknown column 'zz'"),
        (Query(BAG, ("b",), Comparison(Column("s"), "=", Literal(1, BIG))), "VARCHAR with BIGINT"),
        (Query(BAG, ("b",), None, (frame(BAG, (), []),)), "has no columns"),
        (Query(BAG, ("b",), None, (Frame(pl.DataFrame({"b": ["x"], COUNT: [1]})),)), "keys for"),
        (
            Query(BAG, ("b",), None, (Frame(pl.DataFrame({"zz": [1], COUNT: [1]})),)),
            "names an unknown column",
        ),
        (
            Query(BAG, ("b",), None, None, Page(None, 5)),
            "has no key and therefore cannot be read in pages",
        ),
        (Query(KEYED, ("b",), None, None, Page(None, 0)), "at least 1, not 0"),
        (Query(KEYED, ("b",), None, None, Page((1,), 5)), "the key has 2 parts"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_reason(
    database: SourceDatabase, query: Query[Frame], reason: str
) -> None:
    with pytest.raises(WrongUse, match=reason):
        lookup(database, query)


@contextmanager
def committing(database: SourceDatabase) -> Iterator[None]:
    """Commits in the background; version v inserts the row v."""
    stop = threading.Event()

    def commit() -> None:
        for n in itertools.count(1):
            if stop.is_set():
                return
            database.commit(Transaction((RowChange(ODD.name, (n, n % 3), 1),)))

    writer = threading.Thread(target=commit)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def test_rows_and_version_are_of_one_snapshot_while_a_writer_commits(
    database: SourceDatabase,
) -> None:
    seen: list[int] = []
    with committing(database):
        while len(set(seen)) < 100:
            table, version = lookup(database, Query(ODD, ODD.column_names))
            assert sorted(table.column(0).to_pylist()) == list(range(1, version + 1))
            seen.append(version)
    assert seen == sorted(seen)


def test_control_a_version_read_beside_the_rows_is_another_ones(database: SourceDatabase) -> None:
    """The purpose of the snapshot: without it the same check soon fails."""
    with committing(database):
        while True:
            version = database.version
            table, _ = lookup(database, Query(ODD, ODD.column_names))
            if table.num_rows != version:
                break
