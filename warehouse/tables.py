"""The Delta tables of one view.

    changes   append only: the view's columns, `_count` (signed), `_position`. The truth: one commit
              per batch, carrying position, vector and offsets as `txn` numbers, and the order of
              delivery in its commit information. The view at position k is the sum of all rows with
              `_position <= k`.
    current   the view's columns and `_count` (how many times the row is there): what a BI tool
              reads. Follows `changes` by MERGE; rebuilt from it when lost.
    progress  one row per delivered transaction: position, source, version, when it was committed
              and installed, the questions asked for it, and whether the view had a state of its own
              at this position (`shown`; a strong protocol skips some). The parts of a global
              transaction have one position. Derived; of a batch whose process died between the two
              commits the order is recovered and the questions are not.

All three are plain Delta: Spark, DuckDB, Polars and delta-rs read them.
"""

import datetime
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction

from protocols.algebra.delta import COUNT
from protocols.errors import ProtocolBug, WrongUse
from protocols.maintenance.deliveries import Deliveries, Numbers
from protocols.views.view import View
from warehouse import delta
from warehouse.definition import read_definition, refuse_another_view, write_definition
from warehouse.order import order_from_note, order_to_note
from warehouse.standing import Standing, standing_in

POSITION = "_position"
_APPEARANCE = "viewsweep/position"
#: Key in the commit information of `changes`.
_ORDER = "viewsweep/order"
QUESTION = pl.Struct(
    {
        "source": pl.String,
        "relation": pl.String,
        "keys": pl.Int64,
        "bytes": pl.Int64,
        "version": pl.Int64,
        "rows": pl.Int64,
        "answer_bytes": pl.Int64,
    }
)
PROGRESS: dict[str, pl.DataType | type[pl.DataType]] = {
    "position": pl.Int64,
    "source": pl.String,
    "version": pl.Int64,
    "committed_at": pl.Datetime("us"),
    "installed_at": pl.Datetime("us"),
    "skipped": pl.Int64,
    "questions": pl.List(QUESTION),
    "shown": pl.Boolean,
}


class ViewTables:
    """The stored form of one view; at most one writer at a time, which Delta enforces."""

    def __init__(self, root: Path, view: View) -> None:
        self.view = view
        self.directory = root / view.name
        refuse_another_view(self.directory, view)
        #: The handle's version is the last commit that we know; commits by others are conflicts.
        self._changes = delta.table_at(self.directory / "changes")
        self._current = delta.table_at(self.directory / "current")
        self._progress = delta.table_at(self.directory / "progress")
        if self._changes is not None and read_definition(self.directory) is None:
            raise WrongUse(f"{self.directory} holds Delta tables, but not of a viewsweep view")

    @property
    def exists(self) -> bool:
        """Whether the first state is there."""
        return self._changes is not None

    def standing(self) -> Standing:
        """How far the view has come."""
        return standing_in(self._existing(), self.view.sources)

    def _existing(self) -> DeltaTable:
        if self._changes is None:
            raise ProtocolBug(f"{self.directory}: the view was used before its first state")
        return self._changes

    # -- writing -------------------------------------------------------------------------------

    def define(self) -> None:
        """Makes the view's directory and writes down what it will hold."""
        with delta.plain_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            if read_definition(self.directory) is None:
                write_definition(self.directory, self.view)

    def begin(self, rows: pl.DataFrame, standing: Standing) -> None:
        """The first state, at position 0, in one commit."""
        placed = rows.with_columns(pl.lit(standing.position, pl.Int64).alias(POSITION))
        path = self.directory / "changes"
        name = f"changes of the view {self.view.name!r}, kept by viewsweep"
        delta.append(path, placed, standing.numbers(), description=name)
        self._changes = delta.table_at(path)

    def install(
        self,
        changes: pl.DataFrame,
        standing: Standing,
        order: Deliveries,
        shown: Numbers | None = None,
    ) -> None:
        """One batch: its changes (with `_position`) and the standing after it, in one commit.

        `shown` has the ascending positions with a state, if not all of the order's have one.
        """
        note = {_ORDER: order_to_note(order, shown)}
        delta.append(self._existing(), changes, standing.numbers(), note)

    def record(self, delivered: pl.DataFrame) -> None:
        """Adds a batch to `progress`: its columns but `installed_at`, questions null for none."""
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        frame = delivered.with_columns(
            pl.lit(now, pl.Datetime("us")).alias("installed_at"),
            pl.col("questions").fill_null(pl.lit([], pl.List(QUESTION))),
        ).select(pl.col(name).cast(type_) for name, type_ in PROGRESS.items())
        last = {_APPEARANCE: int(frame["position"].max())}  # type: ignore[arg-type]
        delta.append(self._progress or self.directory / "progress", frame, last, widen=True)
        self._progress = self._progress or delta.table_at(self.directory / "progress")

    def recover_progress(self) -> None:
        """After a crash between the two commits: what `changes` knows and `progress` does not."""
        last = self.standing().position
        done = delta.number(self._progress, _APPEARANCE) if self._progress is not None else 0
        if done < last:
            noted = pl.concat(reversed(list(self._noted(done, last))))
            self.record(noted.filter(pl.col("position") > done))

    def _noted(self, done: int, last: int) -> Iterator[pl.DataFrame]:
        """What the commits noted behind a position, the newest first."""
        reached = last
        for commit in delta.newest_first(self._existing()):
            if reached <= done:
                return
            if _ORDER in commit:
                order, shown = order_from_note(str(commit[_ORDER]))
                yield _as_progress(order, shown)
                reached = int(order.position[0]) - 1
        if reached > done:
            raise WrongUse(
                f"{self.directory}/progress: positions {done + 1} to {last} are missing and the log"
                f" of {self.directory}/changes reaches back to {reached + 1} only. Restore"
                " progress, or remove the view's directory to make the view anew"
            )

    # -- the current table ---------------------------------------------------------------------

    def follow(self) -> None:
        """Brings `current` to the position of `changes`, in one commit."""
        position = self.standing().position
        if self._current is None:
            rows = self.at(position)
            path = self.directory / "current"
            delta.append(path, rows, {_APPEARANCE: position})
            self._current = delta.table_at(path)
            return
        there = delta.number(self._current, _APPEARANCE)
        if there < position:
            self._merge(self._summed(pl.col(POSITION) > there), position)

    def _merge(self, changes: pl.DataFrame, position: int) -> None:
        assert self._current is not None
        same_row = " AND ".join(
            f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in self.view.schema
        )
        properties = CommitProperties(app_transactions=[Transaction(_APPEARANCE, position)])
        with delta.plain_errors(self.directory / "current"):
            (
                self._current.merge(
                    changes.to_arrow(),
                    same_row,
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                .when_matched_delete(f't."{COUNT}" + s."{COUNT}" = 0')
                .when_matched_update({COUNT: f't."{COUNT}" + s."{COUNT}"'})
                .when_not_matched_insert_all()
                .execute()
            )

    # -- reading -------------------------------------------------------------------------------

    def at(self, position: int) -> pl.DataFrame:
        """The view as of a position: its rows with `_count`."""
        return self._summed(pl.col(POSITION) <= position)

    def _summed(self, which: pl.Expr) -> pl.DataFrame:
        rows = self.changes().filter(which)
        summed = rows.group_by(list(self.view.schema)).agg(pl.col(COUNT).sum())
        with delta.plain_reading(self.directory / "changes"):
            return summed.filter(pl.col(COUNT) != 0).collect()

    def rows(self) -> int:
        """How many rows the view has, duplicates counted."""
        with delta.plain_reading(self.directory / "changes"):
            return int(self.changes().select(pl.col(COUNT).sum()).collect().item())

    def changes(self) -> pl.LazyFrame:
        """All changes so far."""
        return pl.scan_delta(self._existing())

    def progress(self) -> pl.DataFrame:
        """All delivered transactions in order."""
        if self._progress is None:
            return pl.DataFrame(schema=PROGRESS)
        with delta.plain_reading(self.directory / "progress"):
            found = pl.read_delta(self._progress).sort("position", "source", "version")
        # Tables of a time when there were only protocols that show every state lack the column.
        old = pl.lit(None, pl.Boolean) if "shown" not in found.columns else pl.col("shown")
        return found.with_columns(old.fill_null(True).alias("shown"))


def _as_progress(order: Deliveries, shown: Numbers | None) -> pl.DataFrame:
    """What is known of transactions when the process that installed them has died."""
    seen = np.ones(len(order), bool) if shown is None else np.isin(order.position, shown)
    names = pl.Series(order.sources, dtype=pl.String)
    return pl.DataFrame(
        {
            "position": order.position,
            "source": names.gather(order.source),
            "version": order.version,
            "shown": seen,
        }
    ).with_columns(
        pl.lit(None, pl.Datetime("us")).alias("committed_at"),
        pl.lit(0, pl.Int64).alias("skipped"),
        pl.lit(None, pl.List(QUESTION)).alias("questions"),
    )
