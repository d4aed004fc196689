"""Workloads for measurements: valid, mixed as announced, the same for the same seed."""

from collections import Counter
from itertools import islice
from typing import Any

import duckdb
import polars as pl
import pytest

from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION
from protocols.errors import WrongUse
from protocols.views.jointree import join_tree
from protocols.views.sql import parse_view
from sources.simulated.workloads import workload
from sources.simulated.workloads.linked import LinkedSource

NAMES = ("chain4", "star3", "tree5")
SOURCES = [(name, source) for name in NAMES for source in workload(name).sources]
every_source = pytest.mark.parametrize(("name", "source"), SOURCES)


def _made(name: str, source: str, scale: int, seed: int = 0) -> LinkedSource:
    made = workload(name).source(source, scale, seed)
    assert isinstance(made, LinkedSource)
    return made


def _rows(made: LinkedSource) -> list[tuple[Any, ...]]:
    return made.initial_rows()[made.relation.name].rows()


@every_source
@pytest.mark.parametrize("scale", [10, 1_000, 20_000])
def test_every_transaction_is_valid_after_those_before_it(
    name: str, source: str, scale: int
) -> None:
    made = _made(name, source, scale)
    rows = {row[0]: row for row in _rows(made)}
    assert list(rows) == list(range(1, len(rows) + 1))
    revision = made.relation.column_names.index("revision")
    for version, transaction in enumerate(islice(made.transactions(), 5_000), 1):
        for change in transaction.changes:
            if change.count < 0:
                assert rows.pop(change.row[0]) == change.row
            else:
                assert change.row[0] not in rows
                assert change.row[revision] == version
                rows[change.row[0]] = change.row


@every_source
def test_all_transactions_are_of_one_row_and_seven_in_ten_insert(name: str, source: str) -> None:
    kinds: Counter[tuple[int, ...]] = Counter()
    for transaction in islice(_made(name, source, 50_000).transactions(), 10_000):
        assert len({change.row[0] for change in transaction.changes}) == 1
        kinds[tuple(change.count for change in transaction.changes)] += 1
    assert set(kinds) == {(1,), (-1, 1), (-1,)}
    assert 6_800 < kinds[1,] < 7_200
    assert 1_850 < kinds[-1, 1] < 2_150


@every_source
def test_the_columns_of_changes_are_the_transactions(name: str, source: str) -> None:
    made = _made(name, source, 3_000)
    expected = [
        (*change.row, change.count, version)
        for version, transaction in enumerate(islice(made.transactions(), 2_345), 1)
        for change in transaction.changes
    ]
    assert made.changes(2_345).rows() == expected
    assert made.changes(0).columns == [*made.relation.column_names, COUNT, VERSION]


@every_source
def test_the_same_seed_makes_the_same_source(name: str, source: str) -> None:
    one, same, other = (_made(name, source, 500, seed) for seed in (3, 3, 4))
    assert _rows(one) == _rows(same) != _rows(other)
    assert one.changes(1_500).equals(same.changes(1_500))
    assert not one.changes(1_500).equals(other.changes(1_500))


def test_a_seed_means_the_same_everywhere() -> None:
    """Figures from another machine and numpy: a change here breaks comparisons over time."""
    made = _made("chain4", "sales", 10_000, seed=1)
    assert made.changes(4).select("number", "contract_id", COUNT, VERSION).rows() == PINNED


PINNED = [
    (2711, 1951, 1, 1),
    (2712, 679, 1, 2),
    (2713, 686, 1, 3),
    (2714, 1088, 1, 4),
]


@pytest.mark.parametrize(
    "name", [f"{shape}{n}" for shape in ("chain", "star", "tree") for n in (2, 8)]
)
def test_the_scale_is_the_number_of_base_rows_altogether(name: str) -> None:
    found = workload(name)
    sizes = [len(_rows(_made(name, source, 5_000))) for source in found.sources]
    assert sum(sizes) == 5_000
    assert len(sizes) == int(name[-1])
    assert min(sizes) * 10 > max(sizes)


def test_a_tree_has_inner_atoms_where_its_name_says_so() -> None:
    inner = {
        name: len(join_tree(parse_view("v", found.view, found.catalog)).inner)
        for name in ("chain5", "star5", "tree5")
        for found in (workload(name),)
    }
    assert inner == {"chain5": 3, "star5": 1, "tree5": 2}


def _view_rows(name: str, scale: int, changed: str | None = None) -> Counter[tuple[Any, ...]]:
    """The view in DuckDB, optionally after the first 1,000 transactions of one source."""
    found = workload(name)
    with duckdb.connect() as database:
        for source in found.sources:
            made = _made(name, source, scale)
            rows = made.initial_rows()[made.relation.name]
            if source == changed:
                signed = [rows.with_columns(pl.lit(1, pl.Int64).alias(COUNT))]
                signed.append(made.changes(1_000).drop(VERSION))
                summed = pl.concat(signed).group_by(rows.columns).agg(pl.col(COUNT).sum())
                rows = summed.filter(pl.col(COUNT) > 0).drop(COUNT)
            database.register("_rows", rows.to_arrow())
            database.execute(f"CREATE SCHEMA {source}")
            database.execute(f"CREATE TABLE {source}.{made.relation.name} AS FROM _rows")
        return Counter(database.execute(found.view).fetchall())


@pytest.mark.parametrize("name", ["chain2", "chain4", "chain8", "star4", "tree7"])
def test_a_change_of_a_row_changes_one_to_a_few_rows_of_the_view(name: str) -> None:
    before = _view_rows(name, 40_000)
    assert before
    assert max(before.values()) == 1
    for source in workload(name).sources:
        after = _view_rows(name, 40_000, source)
        changed = (after - before).total() + (before - after).total()
        assert 100 < changed < 5_000


def test_what_is_not_of_the_family_is_refused() -> None:
    for name in ("chain1", "chain9", "ring4", "chain", "chain44"):
        with pytest.raises(WrongUse, match=r"for measurements chain2 … chain8"):
            workload(name)
    with pytest.raises(WrongUse, match="it has shipping, sales"):
        workload("chain2").source("legal")
    with pytest.raises(WrongUse, match="at least 4"):
        workload("chain4").source("legal", 3)
