"""The Delta tables of one view.

    changes   append only: the view's columns, `_count` (signed), `_position`. The truth: one commit
              per batch, carrying position, vector and offsets as `txn` numbers, and the order of
              delivery in its commit information. The view at position k is the sum of all rows with
              `_position <= k`.
    current   the view's columns and `_count` (how many times the row is there); a BI tool reads
              this one. Follows `changes` by MERGE; rebuilt from it when lost.
    progress  one row per delivered transaction: position, source, version, when it was committed
              and installed, the questions asked for it, and whether the view had a state of its own
              at this position (`shown`; a strong protocol skips some). The parts of a global
              transaction have one position. Derived; if the process died between the two commits,
              the order of that batch is recovered and its questions are not.

All three are plain Delta: Spark, DuckDB, Polars and delta-rs read them.
"""

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from protocols.errors import WrongUse
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.telling import Told
from protocols.views.tree import AnyView
from warehouse import delta, files
from warehouse.changes import ChangesTable
from warehouse.current import CurrentTable
from warehouse.definition import (
    is_kept,
    read_definition,
    refuse_another_view,
    write_definition,
)
from warehouse.progress import ProgressTable
from warehouse.standing import Standing


class ViewTables:
    """The stored form of one view; at most one writer at a time, which Delta enforces.

    Two threads may work with it: one that installs, records and catches up, and one that lets
    `current` follow and tidies. They share no handle.
    """

    def __init__(
        self, root: Path, view: AnyView, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self.view = view
        self.directory = root / view.name
        if is_kept(self.directory):
            refuse_another_view(self.directory, view)

        def say(what: str) -> None:
            """Reports damage and its repair."""
            report(Told(f"view {view.name}: {what}", view=view.name))

        self._changes = ChangesTable(self.directory, view)
        self._progress = ProgressTable(self.directory, self._changes, say)
        self._current = CurrentTable(self.directory, view, self._changes, self._progress, say)
        self._keep_minutes = delta.KEEP_MINUTES
        if self.exists and read_definition(self.directory) is None:
            raise WrongUse(
                f"{self.directory} holds Delta tables, but not those of a viewsweep view: there is"
                " no view.json. Restore that file, or give the view another name"
            )

    @property
    def exists(self) -> bool:
        """Whether the first state is there."""
        return self._changes.table is not None

    def standing(self) -> Standing:
        """The standing of the view's last commit."""
        return self._changes.standing()

    def first_standing(self) -> Standing:
        """The standing of the first state; WrongUse if the log does not reach back to it."""
        return self._changes.first_standing()

    # -- writing -------------------------------------------------------------------------------

    def define(self) -> None:
        """Makes the view's directory and writes the view's definition."""
        with delta.plain_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            write_definition(self.directory, self.view)

    def begin(self, rows: pl.DataFrame, standing: Standing) -> None:
        """The first state, at position 0, in one commit."""
        self._changes.begin(rows, standing, self._keep_minutes)

    def install(
        self,
        changes: pl.DataFrame,
        standing: Standing,
        order: Deliveries,
        shown: Numbers | None = None,
        written: Sequence[files.WrittenFile] = (),
    ) -> None:
        """One batch: its changes (with `_position`) and the standing after it, in one commit.

        `written` names the files of changes that executors have written; `shown` has the ascending
        positions with a state, unless all positions of the order have one.
        """
        if written and not changes.is_empty():
            written = [*written, files.write(self._changes.path, changes)]
        try:
            self._changes.commit(changes, standing, order, shown, written)
        except delta.Overtaken:
            self.catch_up()
            self._changes.commit(changes, standing, order, shown, written)

    def record(self, delivered: pl.DataFrame) -> None:
        """Adds a batch to `progress`: its columns but `installed_at`, questions null for none."""
        self._progress.record(delivered)

    def recover_progress(self) -> None:
        """Makes `progress` agree with `changes` again, whatever happened to either."""
        self._progress.recover()

    def follow(self) -> None:
        """Brings `current` to the position of `changes`, in one commit."""
        self._current.follow()

    @property
    def allows_too_few(self) -> bool:
        """Whether counts may fall below zero: with a protocol that is wrong on purpose."""
        return self._current.allows_too_few

    @allows_too_few.setter
    def allows_too_few(self, allowed: bool) -> None:
        self._current.allows_too_few = allowed

    # -- upkeep --------------------------------------------------------------------------------

    def keep_for_readers(self, minutes: float) -> None:
        """Sets how long replaced files stay, for readers that still use them."""
        self._keep_minutes = self._progress.keep_minutes = self._current.keep_minutes = minutes
        tables = (self._changes.table, self._current.table, self._progress.table)
        for table in filter(None, tables):
            wanted = delta.kept_for(minutes)
            if not wanted.items() <= table.metadata().configuration.items():
                with delta.plain_errors(delta.place_of(table)):
                    table.alter.set_table_properties(wanted)

    def to_tidy(self, name: str) -> DeltaTable | None:
        """One of the tables, for commits that change none of its rows.

        They may come between two appends of the job's own handle, so the table is opened anew. A
        MERGE of `current` would fail because of them, so that table has one handle.
        """
        return self._current.table if name == "current" else delta.table_at(self.directory / name)

    def catch_up(self) -> None:
        """Moves the job's handles to its upkeep's last commits; a conflict if others committed.

        Without it a job that was idle for long would look for commits whose log entries are gone,
        and an append would fail because of a fold, which Delta takes for a change of the rows.
        """
        self._changes.catch_up()
        self._progress.catch_up()

    def installed_before(self, moment: datetime.datetime) -> int:
        """The last position that was installed before a moment (UTC); 0 if none was."""
        return self._progress.installed_before(moment)

    def fold(self, position: int) -> None:
        """Drops the history before a position: all changes up to there become one state."""
        if self._changes.fold(position):
            self._progress.forget_folded()

    def folded(self) -> int:
        """The position up to which history was folded; 0 when all of it is there."""
        return self._changes.folded()

    # -- reading -------------------------------------------------------------------------------

    def at(self, position: int) -> pl.DataFrame:
        """The view as of a position: its rows with `_count`."""
        return self._changes.at(position)

    def rows(self) -> int:
        """The number of rows of the view, with duplicates."""
        return self._changes.rows()

    def changes(self) -> pl.LazyFrame:
        """All changes so far."""
        return self._changes.all()

    def progress(self) -> pl.DataFrame:
        """All delivered transactions in order."""
        return self._progress.read()

    def followed(self) -> int | None:
        """The position that readers of `current` see; None before it is there."""
        return self._current.followed()
