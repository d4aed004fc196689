"""Which questions use an index: the answer of `access`, compared with DuckDB's profiles."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import orjson
import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.expressions import Column, Comparison, Condition, Literal
from protocols.algebra.frame import Frame
from protocols.algebra.types import column_type
from protocols.errors import WrongUse
from protocols.exchange.questions import Query
from protocols.views.catalog import catalog_from_json
from sources.simulated.access import FEW_KEYS, Access, access
from sources.simulated.database import SourceDatabase
from sources.simulated.lookup import lookup, select
from sources.simulated.queryserver import status_of
from sources.transaction import RowChange, Transaction

NUMBERS = {"id": "BIGINT", "k": "BIGINT", "v": "BIGINT"}
CATALOG = catalog_from_json({"a": {"relations": {"r": {"columns": NUMBERS, "key": ["id"]}}}})
[R] = CATALOG.relations
#: Above this share of the rows DuckDB would rather scan than use an index.
ROWS = 200_000


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceDatabase]:
    ids = pl.int_range(ROWS, eager=True)
    rows = pl.DataFrame({"id": ids, "k": ids * 7919 % ROWS, "v": ids % 10})
    path = tmp_path_factory.mktemp("access") / "a.db"
    indexes = {"r": ["id", "k"]}
    with SourceDatabase.create(path, "a", CATALOG, {"r": rows}, indexes=indexes) as made:
        yield made


def keys(columns: tuple[str, ...], number: int) -> Frame:
    """Keys of rows spread over the relation."""
    ids = pl.int_range(0, ROWS, ROWS // number, eager=True).head(number)
    cells = pl.DataFrame({"id": ids, "k": ids * 7919 % ROWS, "v": ids % 10}).select(columns)
    return Frame(cells.with_columns(pl.lit(1, pl.Int64).alias(COUNT)))


def rows_scanned(database: SourceDatabase, query: Query[Frame], directory: Path) -> int:
    """The number of base rows that DuckDB read, from its profile."""
    sql, parameters = select(query, database.indexes["r"])
    profile = directory / "profile.json"
    with database.snapshot() as (cursor, _):
        cursor.execute("SET enable_profiling = 'json'")
        cursor.execute(f"SET profiling_output = '{profile}'")
        cursor.execute(sql, parameters).fetchall()
        cursor.execute("PRAGMA disable_profiling")
    found = list(_scans(orjson.loads(profile.read_bytes())))
    assert found, "a profile without a scan shows nothing"
    return sum(found)


def _scans(node: object) -> Iterator[int]:
    if isinstance(node, dict):
        if node.get("type") == "TABLE_SCAN" and ".r" in node["extra_info"].get("Table", ""):
            yield node["rows_scanned"]
        for inner in node.values():
            yield from _scans(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _scans(inner)


SMALL = Comparison(Column("v"), "<", Literal(5, column_type("BIGINT")))
SHAPES = [
    (("id",),),
    (("k",),),
    (("k", "v"),),
    (("v", "k"),),
    (("id",), ("k",)),
    (("k", "v"), ("id",)),
]


@pytest.mark.parametrize("condition", [None, SMALL])
@pytest.mark.parametrize("number", [1, 10, FEW_KEYS])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_few_keys_of_indexed_columns_are_not_looked_for_in_the_whole_relation(
    database: SourceDatabase,
    tmp_path: Path,
    shape: tuple[tuple[str, ...], ...],
    number: int,
    condition: Condition | None,
) -> None:
    assert access(shape, database.indexes["r"]) == Access(FEW_KEYS, ())
    query = Query(R, ("id",), condition, tuple(keys(columns, number) for columns in shape))
    assert rows_scanned(database, query, tmp_path) <= len(shape) * number


@pytest.mark.parametrize("shape", [(("v",),), (("id",), ("v",))])
def test_control_a_key_set_without_an_index_is_a_scan_and_access_says_of_what(
    database: SourceDatabase, tmp_path: Path, shape: tuple[tuple[str, ...], ...]
) -> None:
    assert access(shape, database.indexes["r"]) == Access(0, (("v",),))
    query = Query(R, ("id",), None, tuple(keys(columns, 10) for columns in shape))
    assert rows_scanned(database, query, tmp_path) >= ROWS


def test_a_question_without_keys_is_a_scan_that_no_index_would_help() -> None:
    assert access((), ["id"]) == Access(0, ())


def test_indexes_follow_commits_and_survive_the_process(tmp_path: Path) -> None:
    """Rows change again and again, also back and forth within a group."""
    path, seen = tmp_path / "a.db", dict[int, int]()
    SourceDatabase.create(path, "a", CATALOG, {}, indexes={"r": ["k", "id", "k"]}).close()
    for round_ in range(3):
        with SourceDatabase.open(path) as database:
            assert database.indexes == {"r": ("id", "k")}
            assert status_of(database)["indexes"] == database.indexes
            for step, n in itertools.product(range(5), range(20)):
                new = (round_ * 5 + step) % 4
                old = [RowChange("r", (n, seen[n], 0), -1)] if n in seen else []
                back = [Transaction((*old, RowChange("r", (n, 9, 0), 1)))]
                back += [
                    Transaction((RowChange("r", (n, 9, 0), -1), RowChange("r", (n, new, 0), 1)))
                ]
                database.commit_many(back)
                seen[n] = new
            for k in range(10):
                wanted = Frame(pl.DataFrame({"k": [k], COUNT: [1]}))
                table, _ = lookup(database, Query(R, ("id",), None, (wanted,)))
                assert sorted(table["id"].to_pylist()) == [n for n in seen if seen[n] == k]


@pytest.mark.parametrize(
    ("indexes", "reason"),
    [
        ({"none": ["id"]}, "no such relation"),
        ({"r": ["zz"]}, "no such column; choose one of: id, k, v"),
    ],
)
def test_an_index_on_what_is_not_there_is_refused_and_leaves_nothing(
    tmp_path: Path, indexes: dict[str, list[str]], reason: str
) -> None:
    with pytest.raises(WrongUse, match=reason):
        SourceDatabase.create(tmp_path / "a.db", "a", CATALOG, {}, indexes=indexes)
    assert list(tmp_path.iterdir()) == []
