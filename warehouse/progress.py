"""The table `progress` of a view: the transactions of each position. Derived from `changes`."""

import datetime
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import DeltaTable

from protocols.errors import WrongUse
from protocols.exchange.deliveries import Deliveries, Numbers
from warehouse import delta
from warehouse.changes import ChangesTable
from warehouse.standing import POSITION_REACHED

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
#: The columns of it that are known without `progress`.
_NOTED = {name: type_ for name, type_ in PROGRESS.items() if name != "installed_at"}


class ProgressTable:
    """All delivered transactions of a view."""

    def __init__(self, directory: Path, changes: ChangesTable, say: Callable[[str], None]) -> None:
        self.path = directory / "progress"
        self._changes = changes
        self._say = say
        self.table = delta.table_at(self.path)
        #: The position up to which it is known to be complete.
        self._recorded: int | None = None
        self.keep_minutes = delta.KEEP_MINUTES

    def record(self, delivered: pl.DataFrame) -> None:
        """Adds a batch to `progress`: its columns but `installed_at`, questions null for none."""
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        frame = delivered.with_columns(
            pl.lit(now, pl.Datetime("us")).alias("installed_at"),
            pl.col("questions").fill_null(pl.lit([], pl.List(QUESTION))),
        ).select(pl.col(name).cast(type_) for name, type_ in PROGRESS.items())
        last = int(frame["position"].max())  # type: ignore[arg-type]
        try:
            self._append(frame, last)
        except delta.Overtaken:
            self._changes.catch_up()
            self.catch_up()
            self._append(frame, last)
        self._recorded = last
        self.table = self.table or delta.table_at(self.path)

    def _append(self, frame: pl.DataFrame, last: int) -> None:
        where, keep = self.table or self.path, self.keep_minutes
        delta.append(where, frame, {POSITION_REACHED: last}, widen=True, keep_minutes=keep)

    def recover(self) -> None:
        """Makes it agree with `changes` again, whatever happened to either.

        After a crash between the two commits it lacks a batch; after `changes` has lost commits it
        has too many; and it may have lost files of its own.
        """
        self._replace_damaged()
        last, done = self._changes.standing().position, max(self._reached(), self._changes.folded())
        if done > last:
            # Read after `progress`: a commit by others meanwhile is not a disagreement.
            if delta.number(self._changes.latest(), POSITION_REACHED) < done:
                self._cut_back(last, done)
        elif done < last:
            noted, reached = self._noted(done, last)
            if reached > done:
                raise WrongUse(
                    f"{self.path}: positions {done + 1} to {last} are missing, but the log of"
                    f" {self._changes.path} reaches back only to {reached + 1}. Restore"
                    " progress, or remove the view's directory to recreate the view"
                )
            self.record(noted)

    def _replace_damaged(self) -> None:
        """Recreates it from the commits' notes if they reach back; the job can do without it."""
        damage = self.table and delta.damage(self.table)
        if not damage:
            return
        last, since = self._changes.standing().position, self._changes.folded()
        noted, reached = self._noted(since, last)
        if reached > since:
            self._say(
                f"{damage}, and the log of changes reaches back to position {reached + 1} only. The"
                " view goes on; restore the file to have its trace"
            )
            return
        aside = delta.set_aside(self.path)
        self._say(f"{damage}; progress is recreated from changes, the old one is {aside}")
        self.table, self._recorded = None, None
        if not noted.is_empty():
            self.record(noted)

    def _cut_back(self, last: int, done: int) -> None:
        """Deletes what was recorded after the last position of `changes`."""
        assert self.table is not None
        self._say(
            f"changes has lost its commits after position {last}, progress goes up to {done}: it"
            " is cut back, and the updates are taken from the topics again"
        )
        where, reached = self.path, {POSITION_REACHED: last}
        with delta.plain_errors(where):
            self.table.delete(f"position > {last}", post_commithook_properties=delta.NO_HOOKS)
        # In a commit of its own: a deletion that finds nothing makes none.
        delta.append(self.table, pl.DataFrame(schema=PROGRESS), reached, widen=True)
        self._recorded = last

    def _noted(self, done: int, last: int) -> tuple[pl.DataFrame, int]:
        """The transactions noted after a position, and the position after which none is missing."""
        found, reached = [pl.DataFrame(schema=_NOTED)], last
        orders = self._changes.orders()
        while reached > done and (noted := next(orders, None)) is not None:
            found.append(_as_progress(*noted))
            reached = int(noted[0].position[0]) - 1
        return pl.concat(reversed(found)).filter(pl.col("position") > done), reached

    def catch_up(self) -> None:
        """Moves the handle to the upkeep's last commit; a conflict if another writer committed."""
        if self.table is not None:
            self.table = delta.fresh(self.path, POSITION_REACHED, self._reached())

    def _reached(self) -> int:
        """The position up to which it has all transactions."""
        if self._recorded is None and self.table is not None:
            self._recorded = delta.number(self.table, POSITION_REACHED)
        return self._recorded or 0

    def installed_before(self, moment: datetime.datetime) -> int:
        """The last position that was installed before a moment (UTC); 0 if none was."""
        progress = delta.table_at(self.path)
        if progress is None:
            return 0
        with delta.plain_reading(self.path):
            older = pl.scan_delta(progress).filter(pl.col("installed_at") < moment)
            return int(older.select(pl.col("position").max()).collect().item() or 0)

    def forget_folded(self) -> None:
        """Drops the transactions of folded positions from `progress`."""
        folded, progress = self._changes.folded(), delta.table_at(self.path)
        if progress is not None and folded:
            with delta.plain_upkeep(self.path):
                progress.delete(f"position <= {folded}", post_commithook_properties=delta.NO_HOOKS)

    def read(self) -> pl.DataFrame:
        """All delivered transactions in order."""
        if self.table is None:
            return pl.DataFrame(schema=PROGRESS)
        with delta.plain_reading(self.path):
            damage = delta.damage(DeltaTable(self.path))
            if damage is not None:
                raise delta.unreadable(damage)
            found = pl.read_delta(self.path).sort("position", "source", "version")
        # Older tables lack the column: every protocol showed every state then.
        old = pl.lit(None, pl.Boolean) if "shown" not in found.columns else pl.col("shown")
        return found.with_columns(old.fill_null(True).alias("shown"))


def _as_progress(order: Deliveries, shown: Numbers | None) -> pl.DataFrame:
    """The part of `progress` that survives the process that installed the transactions."""
    seen = np.ones(len(order), bool) if shown is None else np.isin(order.position, shown)
    names = pl.Series(order.sources, dtype=pl.String)
    return (
        pl.DataFrame(
            {
                "position": order.position,
                "source": names.gather(order.source),
                "version": order.version,
                "shown": seen,
            }
        )
        .with_columns(
            pl.lit(None, pl.Datetime("us")).alias("committed_at"),
            pl.lit(0, pl.Int64).alias("skipped"),
            pl.lit(None, pl.List(QUESTION)).alias("questions"),
        )
        .select(*_NOTED)
    )
