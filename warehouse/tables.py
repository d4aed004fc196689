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
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import DeltaTable, write_deltalake

from protocols.algebra.delta import COUNT
from protocols.errors import ProtocolBug, WrongUse
from protocols.maintenance.deliveries import Deliveries, Numbers
from protocols.views.tree import AnyView
from warehouse import delta, files
from warehouse.definition import read_definition, refuse_another_view, write_definition
from warehouse.order import order_from_note, order_to_note
from warehouse.standing import Standing, standing_in

POSITION = "_position"
_APPEARANCE = "viewsweep/position"
_FOLDED = "viewsweep/folded"
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

    def __init__(self, root: Path, view: AnyView) -> None:
        self.view = view
        self.directory = root / view.name
        refuse_another_view(self.directory, view)
        #: The handle's version is the last commit that we know; commits by others are conflicts.
        self._changes = delta.table_at(self.directory / "changes")
        self._current = delta.table_at(self.directory / "current")
        self._progress = delta.table_at(self.directory / "progress")
        #: What the last commits said that our handles know. An old handle would look it up in
        #: the log, of which the upkeep may have dropped that part meanwhile.
        self._standing: Standing | None = None
        self._recorded: int | None = None
        #: Who changes `current` or its handle holds this: the job, or the upkeep in its thread.
        self._following = threading.Lock()
        self._keep_minutes = delta.KEEP_MINUTES
        if self._changes is not None and read_definition(self.directory) is None:
            raise WrongUse(f"{self.directory} holds Delta tables, but not of a viewsweep view")

    @property
    def exists(self) -> bool:
        """Whether the first state is there."""
        return self._changes is not None

    def standing(self) -> Standing:
        """How far the view has come."""
        if self._standing is None:
            self._standing = standing_in(self._existing(), self.view.sources)
        return self._standing

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
        numbers, keep = standing.numbers(), self._keep_minutes
        delta.append(path, placed, numbers, description=name, keep_minutes=keep)
        self._changes = delta.table_at(path)

    def install(
        self,
        changes: pl.DataFrame,
        standing: Standing,
        order: Deliveries,
        shown: Numbers | None = None,
        written: Sequence[files.WrittenFile] = (),
    ) -> None:
        """One batch: its changes (with `_position`) and the standing after it, in one commit.

        `written` has those changes that others have written already; `shown` the ascending
        positions with a state, if not all of the order's have one.
        """
        note = {_ORDER: order_to_note(order, shown)}
        if written and not changes.is_empty():
            written = [*written, files.write(self.directory / "changes", changes)]
        numbers = standing.numbers()

        def commit() -> None:
            if written:
                files.commit(self._existing(), written, numbers, note)
            else:
                delta.append(self._existing(), changes, numbers, note)

        try:
            commit()
        except delta.Overtaken:
            self.catch_up()
            commit()
        self._standing = standing

    def record(self, delivered: pl.DataFrame) -> None:
        """Adds a batch to `progress`: its columns but `installed_at`, questions null for none."""
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        frame = delivered.with_columns(
            pl.lit(now, pl.Datetime("us")).alias("installed_at"),
            pl.col("questions").fill_null(pl.lit([], pl.List(QUESTION))),
        ).select(pl.col(name).cast(type_) for name, type_ in PROGRESS.items())
        last = int(frame["position"].max())  # type: ignore[arg-type]
        try:
            self._append_progress(frame, last)
        except delta.Overtaken:
            self.catch_up()
            self._append_progress(frame, last)
        self._recorded = last
        self._progress = self._progress or delta.table_at(self.directory / "progress")

    def _append_progress(self, frame: pl.DataFrame, last: int) -> None:
        where, keep = self._progress or self.directory / "progress", self._keep_minutes
        delta.append(where, frame, {_APPEARANCE: last}, widen=True, keep_minutes=keep)

    def recover_progress(self) -> None:
        """After a crash between the two commits: what `changes` knows and `progress` does not."""
        last = self.standing().position
        done = self._recorded_up_to()
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
        """Brings `current` to the position of `changes`, in one commit; any thread may ask."""
        with self._following:
            try:
                self._follow()
            except delta.Overtaken:
                # Its number says what is in it already, so whoever brought it there was right.
                self._current = delta.table_at(self.directory / "current")
                self._follow()

    def _follow(self) -> None:
        position = self.standing().position
        if self._current is None:
            rows = self.at(position)
            path = self.directory / "current"
            delta.append(path, rows, {_APPEARANCE: position}, keep_minutes=self._keep_minutes)
            self._current = delta.table_at(path)
            return
        there = delta.number(self._current, _APPEARANCE)
        changes = self._latest()
        if there < min(_folded(changes), position):
            self._replace_current(self.at(position), position)
        elif there < position:
            between = pl.col(POSITION).is_between(there, position, closed="right")
            found = self._summed(pl.scan_delta(changes), between)
            if found.is_empty():
                # A MERGE of nothing is no commit, and the number would stay behind.
                delta.append(self._current, found, {_APPEARANCE: position})
            else:
                self._merge(found, position)

    def followed(self) -> int | None:
        """The position that readers of `current` see; None before it is there."""
        current = delta.table_at(self.directory / "current")
        return None if current is None else delta.number(current, _APPEARANCE)

    def _replace_current(self, rows: pl.DataFrame, position: int) -> None:
        """All of it anew: what changed since it was last brought up is no longer known."""
        assert self._current is not None
        with delta.plain_errors(self.directory / "current"):
            write_deltalake(
                self._current,
                rows.to_arrow(),
                mode="overwrite",
                commit_properties=delta.numbered({_APPEARANCE: position}),
                post_commithook_properties=delta.NO_HOOKS,
            )

    def _merge(self, changes: pl.DataFrame, position: int) -> None:
        assert self._current is not None
        same_row = " AND ".join(
            f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in self.view.schema
        )
        with delta.plain_errors(self.directory / "current"):
            (
                self._current.merge(
                    changes.to_arrow(),
                    same_row,
                    source_alias="s",
                    target_alias="t",
                    commit_properties=delta.numbered({_APPEARANCE: position}),
                    post_commithook_properties=delta.NO_HOOKS,
                )
                .when_matched_delete(f't."{COUNT}" + s."{COUNT}" = 0')
                .when_matched_update({COUNT: f't."{COUNT}" + s."{COUNT}"'})
                .when_not_matched_insert_all()
                .execute()
            )

    # -- upkeep --------------------------------------------------------------------------------

    def keep_for_readers(self, minutes: float) -> None:
        """How long files that were replaced stay, for those who are still reading them."""
        self._keep_minutes = minutes
        for table in filter(None, (self._changes, self._current, self._progress)):
            wanted = delta.kept_for(minutes)
            if not wanted.items() <= table.metadata().configuration.items():
                with delta.plain_errors(delta.place_of(table)):
                    table.alter.set_table_properties(wanted)

    @contextmanager
    def to_tidy(self, name: str) -> Iterator[DeltaTable | None]:
        """One of the tables, for commits that change none of its rows, in any thread.

        They may come between two appends, which the job's own handle finds in order. A MERGE of
        `current` would fail for them; that table is lent with its handle, and not to two.
        """
        if name == "current":
            with self._following:
                yield self._current
        else:
            yield delta.table_at(self.directory / name)

    def catch_up(self) -> None:
        """Lets the job's handles know the commits of its upkeep; `Overtaken` if others made some.

        Without it a job that was idle for long would look for commits of which the log is gone,
        and an append would fail for a fold, which Delta takes for a change of what is there.
        """
        self._changes = self._fresh("changes", self.standing().position)
        if self._progress is not None:
            self._progress = self._fresh("progress", self._recorded_up_to())

    def _fresh(self, name: str, known: int) -> DeltaTable:
        """A new handle. Who was fenced keeps the old one, with which no commit succeeds."""
        fresh = delta.table_at(self.directory / name)
        if fresh is None or delta.number(fresh, _APPEARANCE) != known:
            raise delta.Overtaken(delta.overtaken(self.directory / name))
        return fresh

    def _recorded_up_to(self) -> int:
        """Up to which position `progress` has all transactions."""
        if self._recorded is None and self._progress is not None:
            self._recorded = delta.number(self._progress, _APPEARANCE)
        return self._recorded or 0

    def installed_before(self, moment: datetime.datetime) -> int:
        """The last position that was installed before a moment (UTC); 0 if none was."""
        progress = delta.table_at(self.directory / "progress")
        if progress is None:
            return 0
        with delta.plain_reading(self.directory / "progress"):
            older = pl.scan_delta(progress).filter(pl.col("installed_at") < moment)
            return int(older.select(pl.col("position").max()).collect().item() or 0)

    def fold(self, position: int) -> None:
        """Forgets how the view came to a position: all changes up to there become one.

        In one commit, which appends at later positions do not get in the way of. An append under
        way when it comes has to be repeated, see `catch_up`.
        """
        table = delta.table_at(self.directory / "changes")
        if table is None or position <= _folded(table):
            return
        old = pl.col(POSITION) <= position
        base = self._summed(pl.scan_delta(table), old)
        placed = base.with_columns(pl.lit(position, pl.Int64).alias(POSITION))
        with delta.plain_upkeep(self.directory / "changes"):
            write_deltalake(
                table,
                placed.to_arrow(),
                mode="overwrite",
                predicate=f"{POSITION} <= {position}",
                commit_properties=delta.numbered({_FOLDED: position}),
                post_commithook_properties=delta.NO_HOOKS,
            )
        self.forget_progress()

    def forget_progress(self) -> None:
        """Drops the transactions of folded positions from `progress`."""
        folded, progress = self.folded(), delta.table_at(self.directory / "progress")
        if progress is not None and folded:
            with delta.plain_upkeep(self.directory / "progress"):
                progress.delete(f"position <= {folded}", post_commithook_properties=delta.NO_HOOKS)

    def folded(self) -> int:
        """Up to which position history was folded; 0 when all of it is there."""
        return _folded(self._latest())

    # -- reading -------------------------------------------------------------------------------

    def at(self, position: int) -> pl.DataFrame:
        """The view as of a position: its rows with `_count`."""
        table = self._latest()
        if position < _folded(table):
            raise WrongUse(
                f"{self.directory}: position {position} is no longer known; the history up to"
                f" position {_folded(table)} was folded. A longer `history_hours` keeps more"
            )
        return self._summed(pl.scan_delta(table), pl.col(POSITION) <= position)

    def _summed(self, changes: pl.LazyFrame, which: pl.Expr) -> pl.DataFrame:
        rows = changes.filter(which)
        summed = rows.group_by(list(self.view.schema)).agg(pl.col(COUNT).sum())
        with delta.plain_reading(self.directory / "changes"):
            return summed.filter(pl.col(COUNT) != 0).collect()

    def rows(self) -> int:
        """How many rows the view has, duplicates counted."""
        with delta.plain_reading(self.directory / "changes"):
            return int(self.changes().select(pl.col(COUNT).sum()).collect().item())

    def changes(self) -> pl.LazyFrame:
        """All changes so far."""
        return pl.scan_delta(self._latest())

    def _latest(self) -> DeltaTable:
        """What `changes` is now: files that our handle still names may have been replaced."""
        self._existing()
        table = delta.table_at(self.directory / "changes")
        assert table is not None
        return table

    def progress(self) -> pl.DataFrame:
        """All delivered transactions in order."""
        if self._progress is None:
            return pl.DataFrame(schema=PROGRESS)
        with delta.plain_reading(self.directory / "progress"):
            found = pl.read_delta(self.directory / "progress").sort("position", "source", "version")
        # Tables of a time when there were only protocols that show every state lack the column.
        old = pl.lit(None, pl.Boolean) if "shown" not in found.columns else pl.col("shown")
        return found.with_columns(old.fill_null(True).alias("shown"))


def _folded(table: DeltaTable) -> int:
    return table.transaction_version(_FOLDED) or 0


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
