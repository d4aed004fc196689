"""The input of all engines: base relations and a burst of updates, with the result by DuckDB.

DuckDB computes the truth from the view's SQL text over the relations after the burst. No engine
takes part in it, and of viewsweep only the generator of the rows.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import duckdb
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION
from protocols.errors import WrongUse
from protocols.views.catalog import Relation
from protocols.views.sql import parse_view
from protocols.views.view import View
from sources.simulated.workloads.linked import NAMES, Linked, LinkedSource, linked

UNTIL = "_until"
#: The end of life of a row that is still there after the burst.
FOREVER = 2**62


@dataclass(frozen=True)
class BurstSettings:
    """The settings of a measurement, printed beside every figure."""

    workload: str = "chain4"
    #: Rows of all relations together.
    base_rows: int = 1_000_000
    #: Single-row transactions of all sources together.
    updates: int = 100_000
    #: Updates in a batch, for engines that work batch by batch.
    batch: int = 10_000
    #: The number of intermediate states of an engine that are judged.
    states: int = 20
    seed: int = 7

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Base:
    """One relation: its rows before the burst, and its changes in the burst."""

    relation: Relation
    rows: pl.DataFrame
    #: Signed rows with `_count` and `_version`, in order.
    changes: pl.DataFrame

    @property
    def names(self) -> list[str]:
        return list(self.relation.column_names)

    @cached_property
    def final(self) -> pl.DataFrame:
        """The rows after the burst."""
        return self.history.filter(pl.col(UNTIL) == FOREVER).drop(UNTIL)

    @cached_property
    def history(self) -> pl.DataFrame:
        """Every row that ever existed, from the version `revision` to before `_until`."""
        written = pl.concat([self.rows, self._signed(1)])
        ended = self._ended.rename({VERSION: UNTIL})
        lives = written.join(ended, on=["number", "revision"], how="left")
        return lives.with_columns(pl.col(UNTIL).fill_null(FOREVER))

    def at(self, version: int) -> pl.DataFrame:
        """The rows after so many transactions of the burst."""
        there = (pl.col("revision") <= version) & (pl.col(UNTIL) > version)
        return self.history.filter(there).drop(UNTIL)

    @property
    def inserts_only(self) -> pl.DataFrame:
        """The rows of the relation without its modifications and deletions."""
        others = self._ended[VERSION].unique().implode()
        inserted = self.changes.filter((pl.col(COUNT) > 0) & ~pl.col(VERSION).is_in(others))
        return pl.concat([self.rows, inserted.select(self.names)])

    @property
    def _ended(self) -> pl.DataFrame:
        return self.changes.filter(pl.col(COUNT) < 0).select("number", "revision", VERSION)

    def _signed(self, sign: int) -> pl.DataFrame:
        return self.changes.filter(pl.col(COUNT) == sign).select(self.names)


class Burst:
    """The relations of a workload with the updates of a burst, and the right view."""

    def __init__(self, settings: BurstSettings) -> None:
        found = linked(settings.workload)
        if found is None:
            raise WrongUse(
                f"{settings.workload!r} is not a workload for measurements; there are {NAMES}"
            )
        self.settings = settings
        self.workload: Linked = found
        view = parse_view("bench", found.view, found.catalog)
        assert isinstance(view, View)
        self.view = view
        share = -(-settings.updates // len(found.sources))
        #: The number of transactions, the same at each source.
        self.updates = share * len(found.sources)
        self.share = share
        self.bases = tuple(
            _base(found.source(name, settings.base_rows, settings.seed), share)
            for name in found.sources
        )

    @property
    def cuts(self) -> list[int]:
        """The numbers of updates after which states are judged: even steps, not round numbers."""
        number = self.settings.states
        return [1 + self.updates * (2 * each + 1) // (2 * number + 1) for each in range(number)]

    def cuts_of(self, view: str | None) -> list[int]:
        """The same for a view; fewer for another one, whose states are evaluated one by one."""
        return self.cuts if view is None else self.cuts[:: max(1, self.settings.states // 4)]

    @cached_property
    def first_view(self) -> pl.DataFrame:
        """The view before the burst."""
        return evaluated(self.workload.view, {b.relation: b.rows for b in self.bases})

    @cached_property
    def truth(self) -> pl.DataFrame:
        """The view after the burst."""
        return evaluated(self.workload.view, {b.relation: b.final for b in self.bases})

    @cached_property
    def truth_of_inserts(self) -> pl.DataFrame:
        """The same for an engine that takes only the insertions."""
        return evaluated(self.workload.view, {b.relation: b.inserts_only for b in self.bases})

    @property
    def insertions(self) -> int:
        """The number of updates that insert."""
        return sum(b.inserts_only.height - b.rows.height for b in self.bases)


def _base(source: LinkedSource, transactions: int) -> Base:
    relation = source.relation
    return Base(relation, source.initial_rows()[relation.name], source.changes(transactions))


def evaluated(sql: str, rows: dict[Relation, pl.DataFrame]) -> pl.DataFrame:
    """The SQL over these rows, by DuckDB; all columns sorted, so that equal results are equal."""
    with duckdb.connect() as database:
        for relation, frame in rows.items():
            database.execute(f"CREATE SCHEMA {relation.source}")
            database.register("_rows", frame.to_arrow())
            database.execute(f"CREATE TABLE {relation.source}.{relation.name} AS FROM _rows")
        return pl.DataFrame(pl.from_arrow(database.sql(sql).to_arrow_table()))


def same_rows(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether two results have the same rows equally often, in any order."""
    if one.height != other.height or set(one.columns) != set(other.columns):
        return False
    names = other.columns
    return one.select(names).sort(names).equals(other.sort(names))


def folded(changes: pl.DataFrame) -> pl.DataFrame:
    """Signed rows added up: the columns and `_count`, without zeroes."""
    names = [name for name in changes.columns if name != COUNT]
    summed = changes.group_by(names).agg(pl.col(COUNT).sum())
    return summed.filter(pl.col(COUNT) != 0)


def unfolded(state: pl.DataFrame) -> pl.DataFrame:
    """Each row as often as its count says; rows with a negative count stay, as errors."""
    odd = state.filter(pl.col(COUNT) < 0)
    more = state.filter(pl.col(COUNT) > 0)
    rows = more.select(pl.all().exclude(COUNT).repeat_by(COUNT).list.explode())
    return pl.concat([rows, odd.drop(COUNT).with_columns(pl.lit(None).alias(odd.columns[0]))])
