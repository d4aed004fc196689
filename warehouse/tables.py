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
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction

from protocols.algebra.delta import COUNT
from protocols.errors import ProtocolBug, WrongUse
from protocols.views.view import View
from warehouse import delta
from warehouse.definition import read_definition, refuse_another_view, write_definition
from warehouse.standing import (
    Group,
    Standing,
    order_from_text,
    order_to_text,
    positions_from_text,
    positions_to_text,
    standing_in,
)

POSITION = "_position"
_APPEARANCE = "viewsweep/position"
#: Keys in the commit information of `changes`. Without the second, all positions were shown.
_ORDER, _SHOWN = "viewsweep", "viewsweep/shown"
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


@dataclass(frozen=True)
class Delivered:
    """One transaction of a batch, for the `progress` table."""

    position: int
    source: str
    version: int
    #: None when the process that knew died before it could write it down.
    committed_at: datetime.datetime | None
    skipped: int
    questions: list[dict[str, Any]]
    #: Whether the view had a state of its own at this position.
    shown: bool = True


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
        order: Sequence[Group],
        shown: Collection[int] | None = None,
    ) -> None:
        """One batch: its changes (with `_position`) and the standing after it, in one commit.

        `order` has the transactions of each position, `shown` the positions that have a state if
        not all of them do.
        """
        note = {_ORDER: order_to_text(order)}
        if shown is not None and len(shown) < len(order):
            note[_SHOWN] = positions_to_text(sorted(shown))
        delta.append(self._existing(), changes, standing.numbers(), note)

    def record(self, delivered: Sequence[Delivered]) -> None:
        """Adds a batch to `progress`."""
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        rows = [{**vars(entry), "installed_at": now} for entry in delivered]
        frame = pl.DataFrame(rows, schema=PROGRESS)
        last = {_APPEARANCE: delivered[-1].position}
        delta.append(self._progress or self.directory / "progress", frame, last, widen=True)
        self._progress = self._progress or delta.table_at(self.directory / "progress")

    def recover_progress(self) -> None:
        """After a crash between the two commits: what `changes` knows and `progress` does not."""
        standing = self.standing()
        done = delta.number(self._progress, _APPEARANCE) if self._progress is not None else 0
        if done >= standing.position:
            return
        order = self._noted_order(standing.position - done)
        missing = [
            Delivered(position, source, version, None, 0, [], shown)
            for position, (group, shown) in enumerate(order, done + 1)
            for source, version in group
        ]
        self.record(missing)

    def _noted_order(self, length: int) -> list[tuple[Group, bool]]:
        """The last `length` positions, each with whether it was shown, from the commits' notes."""
        order: list[tuple[Group, bool]] = []
        last = self.standing().position
        for commit in self._existing().history():
            if len(order) >= length or _ORDER not in commit:
                break
            groups = order_from_text(str(commit[_ORDER]))
            first = last - len(order) - len(groups) + 1
            shown = commit.get(_SHOWN)
            seen = None if shown is None else set(positions_from_text(str(shown)))
            order = [(g, seen is None or at in seen) for at, g in enumerate(groups, first)] + order
        if len(order) < length:
            raise WrongUse(
                f"{self.directory}/progress: {length} positions are missing and the log of"
                f" {self.directory}/changes reaches back over {len(order)} of them only"
            )
        return order[-length:]

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
