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
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import DeltaTable, write_deltalake

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import compared
from protocols.errors import ProtocolBug, SourceViolation, Unreachable, WrongUse
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.views.tree import AnyView
from warehouse import delta, files
from warehouse.counts import below_zero, shown
from warehouse.definition import (
    is_kept,
    read_definition,
    refuse_another_view,
    write_definition,
)
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
#: Of that, what is known without `progress`.
_NOTED = {name: type_ for name, type_ in PROGRESS.items() if name != "installed_at"}


class ViewTables:
    """The stored form of one view; at most one writer at a time, which Delta enforces."""

    def __init__(
        self, root: Path, view: AnyView, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.view = view
        #: Told what was damaged, and what became of it.
        self._report = report
        self.directory = root / view.name
        if is_kept(self.directory):
            refuse_another_view(self.directory, view)
        #: The handle's version is the last commit that we know; commits by others are conflicts.
        self._changes = delta.table_at(self.directory / "changes")
        self._current = delta.table_at(self.directory / "current")
        self._progress = delta.table_at(self.directory / "progress")
        #: Whether counts may fall below zero: with a protocol that is there to be wrong.
        self.allows_too_few = False
        #: What the last commits said that our handles know. An old handle would look it up in
        #: the log, of which the upkeep may have dropped that part meanwhile.
        self._standing: Standing | None = None
        self._recorded: int | None = None
        #: Who changes `current` or its handle holds this: the job, or the upkeep in its thread.
        self._following = threading.Lock()
        self._keep_minutes = delta.KEEP_MINUTES
        if self._changes is not None and read_definition(self.directory) is None:
            raise WrongUse(
                f"{self.directory} holds Delta tables, but not of a viewsweep view: there is no"
                " view.json. Restore that, or give the view another name"
            )

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
        """Lets `progress` say what `changes` says, whatever became of either.

        After a crash between the two commits it lacks a batch; after `changes` has lost commits it
        has too many; and it may have lost files of its own.
        """
        self._replace_damaged_progress()
        last, done = self.standing().position, max(self._recorded_up_to(), self.folded())
        if done > last:
            # Asked after `progress`: if others have committed meanwhile, that is no disagreement.
            if delta.number(self._latest(), _APPEARANCE) < done:
                self._cut_back_progress(last, done)
        elif done < last:
            noted, reached = self._noted(done, last)
            if reached > done:
                raise WrongUse(
                    f"{self.directory}/progress: positions {done + 1} to {last} are missing and the"
                    f" log of {self.directory}/changes reaches back to {reached + 1} only. Restore"
                    " progress, or remove the view's directory to make the view anew"
                )
            self.record(noted)

    def _replace_damaged_progress(self) -> None:
        """From the notes of the commits if they reach back; the job itself can do without."""
        damage = self._progress and delta.damage(self._progress)
        if not damage:
            return
        last, since = self.standing().position, self.folded()
        noted, reached = self._noted(since, last)
        if reached > since:
            self._say(
                f"{damage}, and the log of changes reaches back to position {reached + 1} only. The"
                " view goes on; restore the file to have its trace"
            )
            return
        aside = delta.set_aside(self.directory / "progress")
        self._say(f"{damage}; progress is made anew from changes, the old one is {aside}")
        self._progress, self._recorded = None, None
        if not noted.is_empty():
            self.record(noted)

    def _cut_back_progress(self, last: int, done: int) -> None:
        """Takes out what was recorded beyond the last position of `changes`."""
        assert self._progress is not None
        self._say(
            f"changes has lost its commits behind position {last}, progress goes up to {done}: it"
            " is cut back, and the updates are taken from the topics again"
        )
        where, reached = self.directory / "progress", {_APPEARANCE: last}
        with delta.plain_errors(where):
            self._progress.delete(f"position > {last}", post_commithook_properties=delta.NO_HOOKS)
        # By a commit of its own: a deletion that finds nothing makes none.
        delta.append(self._progress, pl.DataFrame(schema=PROGRESS), reached, widen=True)
        self._recorded = last

    def _noted(self, done: int, last: int) -> tuple[pl.DataFrame, int]:
        """What the commits noted behind a position, and after which one they know all."""
        found, reached = [pl.DataFrame(schema=_NOTED)], last
        for commit in delta.newest_first(self._existing()):
            if reached <= done:
                break
            if _ORDER in commit:
                order, shown = order_from_note(str(commit[_ORDER]))
                found.append(_as_progress(order, shown))
                reached = int(order.position[0]) - 1
        return pl.concat(reversed(found)).filter(pl.col("position") > done), reached

    def _say(self, what: str) -> None:
        self._report(f"view {self.view.name}: {what}")

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
        self._drop_damaged_current(position)
        if self._current is None:
            rows = self._counted_at(position)
            path = self.directory / "current"
            delta.append(path, rows, {_APPEARANCE: position}, keep_minutes=self._keep_minutes)
            self._current = delta.table_at(path)
            return
        there = delta.number(self._current, _APPEARANCE)
        changes = self._latest()
        if there < min(_folded(changes), position):
            self._replace_current(self._counted_at(position), position)
        elif there < position:
            between = pl.col(POSITION).is_between(there, position, closed="right")
            steps = self._placed(pl.scan_delta(changes), between)
            found = self._summed(steps.lazy(), pl.lit(True))
            self._merge_or_replace(found, position, steps)

    def _drop_damaged_current(self, position: int) -> None:
        """`current` with lost files, or of positions that `changes` has lost, is made anew."""
        if self._current is None:
            return
        wrong = delta.damage(self._current)
        if wrong is None:
            there = delta.number(self._current, _APPEARANCE)
            # Asked after `current`: others may have committed meanwhile.
            if there > position and there > delta.number(self._latest(), _APPEARANCE):
                wrong = f"current is at position {there} and changes at {position}"
        if wrong is not None:
            self._say(f"{wrong}: current is made anew from changes")
            shutil.rmtree(self.directory / "current", ignore_errors=True)
            self._current = None

    def _counted_at(self, position: int) -> pl.DataFrame:
        """The rows as of a position for `current`; SourceViolation if one is there -1 times."""
        rows, names = self.at(position), list(self.view.schema)
        wrong = rows.filter(pl.col(COUNT) < 0)
        if not wrong.is_empty():
            upto = pl.scan_delta(self._latest()).filter(pl.col(POSITION) <= position)
            on = compared(wrong, names)
            steps = upto.join(wrong.lazy(), on=on, how="semi", nulls_equal=True)
            self._refuse_below_zero(below_zero(self._placed(steps, pl.lit(True)), names))
        return rows

    def _refuse_too_few(self, steps: pl.DataFrame) -> None:
        """SourceViolation if changes take a row of `current` below zero, if only for a moment."""
        assert self._current is not None
        with delta.plain_reading(self.directory / "current"):
            below = below_zero(steps, list(self.view.schema), pl.scan_delta(self._current))
        self._refuse_below_zero(below)

    def _refuse_below_zero(self, row: pl.DataFrame | None) -> None:
        if row is None or self.allows_too_few:
            return
        position = int(row.item(0, POSITION))
        when = self._delivered_at(position)
        raise SourceViolation(
            f"view {self.view.name}: from position {position} on ({when}) it would have the row"
            f" ({shown(row, list(self.view.schema))}) {row.item(0, COUNT)} times. That update"
            " deletes a row that was not there, or an answer before it lacked rows: compare what"
            " the source published with what it holds. `current` stays before this batch; when the"
            " source is right, remove the view's directory to make the view anew"
        )

    def _delivered_at(self, position: int) -> str:
        """Which transactions have a position, for a message."""
        for commit in delta.newest_first(self._existing()):
            if _ORDER in commit:
                order, _ = order_from_note(str(commit[_ORDER]))
                here = np.flatnonzero(order.position == position)
                if len(here):
                    names = [order.sources[number] for number in order.source[here]]
                    return _said(zip(names, order.version[here], strict=True))
        found = self.progress().filter(pl.col("position") == position)
        return _said(found.select("source", "version").iter_rows()) or "the first state"

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

    def _merge_or_replace(self, changes: pl.DataFrame, position: int, steps: pl.DataFrame) -> None:
        try:
            self._merge(changes, position, steps)
        except Unreachable as error:
            # Perhaps a file is damaged inside. To write all of it anew, nothing of it is read.
            rows = self._counted_at(position)
            self._replace_current(rows, position)
            self._say(f"{error}. That has been mended: current is written anew from changes")

    def _merge(self, changes: pl.DataFrame, position: int, steps: pl.DataFrame) -> None:
        assert self._current is not None
        self._refuse_too_few(steps)
        if changes.is_empty():
            # A MERGE of nothing is no commit, and the number would stay behind.
            delta.append(self._current, changes, {_APPEARANCE: position})
            return
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
        delta.refuse_removed(self.directory / name)
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

    def _placed(self, changes: pl.LazyFrame, which: pl.Expr) -> pl.DataFrame:
        with delta.plain_reading(self.directory / "changes"):
            return changes.filter(which).select(*self.view.schema, COUNT, POSITION).collect()

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
        if table is None:
            raise delta.unreadable(f"{self.directory / 'changes'} was removed")
        if (damage := delta.damage(table)) is not None:
            raise delta.unreadable(damage)
        return table

    def progress(self) -> pl.DataFrame:
        """All delivered transactions in order."""
        if self._progress is None:
            return pl.DataFrame(schema=PROGRESS)
        with delta.plain_reading(self.directory / "progress"):
            damage = delta.damage(DeltaTable(self.directory / "progress"))
            if damage is not None:
                raise delta.unreadable(damage)
            found = pl.read_delta(self.directory / "progress").sort("position", "source", "version")
        # Tables of a time when there were only protocols that show every state lack the column.
        old = pl.lit(None, pl.Boolean) if "shown" not in found.columns else pl.col("shown")
        return found.with_columns(old.fill_null(True).alias("shown"))


def _folded(table: DeltaTable) -> int:
    return table.transaction_version(_FOLDED) or 0


def _said(transactions: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"version {version} of source {source}" for source, version in transactions)


def _as_progress(order: Deliveries, shown: Numbers | None) -> pl.DataFrame:
    """What is known of transactions when the process that installed them has died."""
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
