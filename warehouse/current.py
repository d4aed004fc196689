"""The table `current` of a view, which readers look at. It follows `changes`."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import polars as pl
from deltalake import write_deltalake

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import compared
from protocols.errors import SourceViolation, Unreachable
from protocols.views.tree import AnyView
from warehouse import delta
from warehouse.changes import ChangesTable, folded_in
from warehouse.counts import below_zero, recovering, shown
from warehouse.progress import ProgressTable
from warehouse.standing import POSITION_REACHED

#: The constraint on counts.
_COUNTED = "counted"


class CurrentTable:
    """The rows of a view with their counts, at a position that it has reached."""

    def __init__(
        self,
        directory: Path,
        view: AnyView,
        changes: ChangesTable,
        progress: ProgressTable,
        say: Callable[[str], None],
    ) -> None:
        self.path = directory / "current"
        self._view = view
        self._changes = changes
        self._progress = progress
        self._say = say
        self.table = delta.table_at(self.path)
        #: Whether counts may fall below zero: with a protocol that is wrong on purpose.
        self.allows_too_few = False
        self.keep_minutes = delta.KEEP_MINUTES

    def follow(self) -> None:
        """Brings it to the position of `changes`, in one commit."""
        try:
            self._follow()
        except delta.Overtaken:
            # The table's number says what is in it, so another writer's commit was right too.
            self.table = delta.table_at(self.path)
            self._follow()

    def followed(self) -> int | None:
        """The position that readers of `current` see; None before it is there."""
        current = delta.table_at(self.path)
        return None if current is None else delta.number(current, POSITION_REACHED)

    def _follow(self) -> None:
        position = self._changes.standing().position
        self._drop_damaged(position)
        if self.table is None:
            rows = self._counted_at(position)
            reached, keep = {POSITION_REACHED: position}, self.keep_minutes
            delta.append(self.path, rows, reached, keep_minutes=keep)
            self.table = delta.table_at(self.path)
            self._constrain()
            return
        self._constrain()
        there = delta.number(self.table, POSITION_REACHED)
        changes = self._changes.latest()
        if there < min(folded_in(changes), position):
            self._replace(self._counted_at(position), position)
        elif there < position:
            between = pl.col(POSITION).is_between(there, position, closed="right")
            steps = self._changes.placed(pl.scan_delta(changes), between)
            found = self._changes.summed(steps.lazy(), pl.lit(True))
            self._merge_or_replace(found, position, steps)

    def _constrain(self) -> None:
        """Lets Delta refuse a count below zero, by a constraint that binds every writer."""
        assert self.table is not None
        there = f"delta.constraints.{_COUNTED}" in self.table.metadata().configuration
        if there != self.allows_too_few:
            return
        with delta.plain_errors(self.path):
            if there:
                self.table.alter.drop_constraint(_COUNTED)
            else:
                self.table.alter.add_constraint({_COUNTED: f"{COUNT} > 0"})

    def _drop_damaged(self, position: int) -> None:
        """Recreates `current` if files are lost, or if `changes` has lost positions that it has."""
        if self.table is None:
            return
        wrong = delta.damage(self.table)
        if wrong is None:
            there = delta.number(self.table, POSITION_REACHED)
            # Asked after `current`: others may have committed meanwhile.
            if there > position and there > delta.number(self._changes.latest(), POSITION_REACHED):
                wrong = f"current is at position {there} and changes at {position}"
        if wrong is not None:
            self._say(f"{wrong}: current is recreated from changes")
            shutil.rmtree(self.path, ignore_errors=True)
            self.table = None

    def _counted_at(self, position: int) -> pl.DataFrame:
        """The rows as of a position for `current`; SourceViolation if one is there -1 times."""
        rows, names = self._changes.at(position), list(self._view.schema)
        wrong = rows.filter(pl.col(COUNT) < 0)
        if not wrong.is_empty():
            upto = pl.scan_delta(self._changes.latest()).filter(pl.col(POSITION) <= position)
            on = compared(wrong, names)
            steps = upto.join(wrong.lazy(), on=on, how="semi", nulls_equal=True)
            self._refuse_below_zero(below_zero(self._changes.placed(steps, pl.lit(True)), names))
        return rows

    def _refuse_too_few_between(self, steps: pl.DataFrame) -> None:
        """SourceViolation if changes take a row of `current` below zero for a moment.

        At the end the table's constraint refuses it.
        """
        assert self.table is not None
        names = list(self._view.schema)
        dips = recovering(steps, names)
        if dips.is_empty():
            return
        with delta.plain_reading(self.path):
            below = below_zero(dips, names, pl.scan_delta(self.table))
        self._refuse_below_zero(below)

    def _refuse_below_zero(self, row: pl.DataFrame | None) -> None:
        if row is None or self.allows_too_few:
            return
        position = int(row.item(0, POSITION))
        when = self._delivered_at(position)
        raise SourceViolation(
            f"view {self._view.name}: at position {position} ({when}) the count of row"
            f" ({shown(row, list(self._view.schema))}) would become {row.item(0, COUNT)}. Either"
            " the update there deletes a row that did not exist, or an earlier answer lacked rows:"
            " compare what the source published with what it holds. `current` still shows the state"
            " before this batch; once the source is correct again, remove the view's directory to"
            " recreate the view"
        )

    def _delivered_at(self, position: int) -> str:
        """Names the transactions at a position, for a message."""
        for order, _ in self._changes.orders():
            here = np.flatnonzero(order.position == position)
            if len(here):
                names = [order.sources[number] for number in order.source[here]]
                return _said(zip(names, order.version[here], strict=True))
        found = self._progress.read().filter(pl.col("position") == position)
        return _said(found.select("source", "version").iter_rows()) or "the first state"

    def _replace(self, rows: pl.DataFrame, position: int) -> None:
        """Writes all of it again: the changes since its position are no longer known."""
        assert self.table is not None
        with delta.plain_errors(self.path):
            write_deltalake(
                self.table,
                rows.to_arrow(),
                mode="overwrite",
                commit_properties=delta.numbered({POSITION_REACHED: position}),
                post_commithook_properties=delta.NO_HOOKS,
            )

    def _merge_or_replace(self, changes: pl.DataFrame, position: int, steps: pl.DataFrame) -> None:
        try:
            self._merge(changes, position, steps)
        except Unreachable as error:
            # Perhaps a count falls below zero: this names the row. Or a file is damaged inside:
            # writing the whole table again reads none of it.
            rows = self._counted_at(position)
            self._replace(rows, position)
            self._say(f"{error}. This is repaired: current was written again from changes")

    def _merge(self, changes: pl.DataFrame, position: int, steps: pl.DataFrame) -> None:
        assert self.table is not None
        self._refuse_too_few_between(steps)
        if changes.is_empty():
            # A MERGE of no rows makes no commit, and the number would stay the old one.
            delta.append(self.table, changes, {POSITION_REACHED: position})
            return
        same_row = " AND ".join(
            f'(t."{name}" IS NOT DISTINCT FROM s."{name}")' for name in self._view.schema
        )
        with delta.plain_errors(self.path):
            (
                self.table.merge(
                    changes.to_arrow(),
                    same_row,
                    source_alias="s",
                    target_alias="t",
                    commit_properties=delta.numbered({POSITION_REACHED: position}),
                    post_commithook_properties=delta.NO_HOOKS,
                )
                .when_matched_delete(f't."{COUNT}" + s."{COUNT}" = 0')
                .when_matched_update({COUNT: f't."{COUNT}" + s."{COUNT}"'})
                .when_not_matched_insert_all()
                .execute()
            )


def _said(transactions: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"version {version} of source {source}" for source, version in transactions)
