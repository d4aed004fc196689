"""States that a vector explains: compared with all vectors, each evaluated in DuckDB."""

import random
from itertools import product
from typing import Any

import polars as pl
import pytest

from bench.burst import Burst, BurstSettings, evaluated, same_rows
from bench.vectors import Histories
from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION

_SMALL = BurstSettings("chain3", base_rows=24, updates=15, batch=5, states=3, seed=11)


def _view_at(burst: Burst, vector: tuple[int, ...]) -> pl.DataFrame:
    """The view over the relations at these versions: initial rows plus changes."""
    rows = {}
    for base, version in zip(burst.bases, vector, strict=True):
        changes = base.changes.filter(pl.col(VERSION) <= version).drop(VERSION)
        start = base.rows.with_columns(pl.lit(1, pl.Int64).alias(COUNT))
        summed = pl.concat([start, changes]).group_by(base.names).agg(pl.col(COUNT).sum())
        rows[base.relation] = summed.filter(pl.col(COUNT) == 1).drop(COUNT)
    return evaluated(burst.workload.view, rows)


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(1, pl.Int64).alias(COUNT))


@pytest.fixture(scope="module")
def burst() -> Burst:
    return Burst(_SMALL)


@pytest.fixture(scope="module")
def views(burst: Burst) -> dict[tuple[int, ...], pl.DataFrame]:
    """The view at every vector."""
    versions = product(range(burst.share + 1), repeat=len(burst.bases))
    return {vector: _view_at(burst, vector) for vector in versions}


def test_every_state_that_existed_is_explained_by_a_vector_at_which_it_did(
    burst: Burst, views: dict[tuple[int, ...], pl.DataFrame]
) -> None:
    histories = Histories(burst)
    for view in views.values():
        found = histories.explain(_counted(view))
        assert found is not None
        assert same_rows(views[tuple(found)], view)


def test_a_state_is_explained_if_and_only_if_it_existed(
    burst: Burst, views: dict[tuple[int, ...], pl.DataFrame]
) -> None:
    """Mixtures of two states: some exist at a third vector, most do not."""
    histories, dice, existing = Histories(burst), random.Random(5), 0
    there = {frozenset(view.rows()) for view in views.values()}
    for _ in range(400):
        one, other = dice.sample(list(views.values()), 2)
        names = one.columns
        mixed = pl.concat([one, other.select(names)]).unique(maintain_order=True)
        mixed = mixed.filter(pl.Series([dice.random() < 0.9 for _ in range(mixed.height)]))
        exists = frozenset(mixed.rows()) in there
        assert (histories.explain(_counted(mixed)) is not None) == exists
        existing += exists
    assert 5 < existing < 395


def test_a_row_twice_or_unknown_is_never_explained(burst: Burst) -> None:
    histories, truth = Histories(burst), _counted(burst.truth)
    assert histories.explain(truth) is not None
    assert histories.explain(truth.with_columns(pl.lit(2, pl.Int64).alias(COUNT))) is None
    first = truth.columns[0]
    assert histories.explain(truth.with_columns(pl.col(first) + 1_000_000)) is None


def test_the_truth_is_the_view_at_the_last_versions(burst: Burst) -> None:
    last = (burst.share,) * len(burst.bases)
    assert same_rows(burst.truth, _view_at(burst, last))
    assert burst.updates == 15


def test_the_truth_of_insertions_leaves_out_all_else(burst: Burst) -> None:
    rows = {}
    inserted = 0
    for base in burst.bases:
        by_version: dict[int, list[dict[str, Any]]] = {}
        for row in base.changes.rows(named=True):
            by_version.setdefault(row[VERSION], []).append(row)
        new = [r for group in by_version.values() if len(group) == 1 for r in group if r[COUNT] > 0]
        inserted += len(new)
        kept = [*base.rows.rows(named=True), *({n: r[n] for n in base.names} for r in new)]
        rows[base.relation] = pl.DataFrame(kept, schema=base.rows.schema)
    assert 0 < inserted < burst.updates
    assert inserted == burst.insertions
    assert same_rows(burst.truth_of_inserts, evaluated(burst.workload.view, rows))
