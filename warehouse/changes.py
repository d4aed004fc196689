"""The table `changes` of a view: the truth."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from protocols.algebra.delta import COUNT, POSITION
from protocols.errors import ProtocolBug, WrongUse
from protocols.exchange.deliveries import Deliveries, Numbers
from protocols.views.tree import AnyView
from warehouse import delta, files
from warehouse.order import order_from_note, order_to_note
from warehouse.standing import POSITION_REACHED, Standing, standing_in

#: The number under which history was folded.
_FOLDED = "viewsweep/folded"
#: Key in the commit information.
_ORDER = "viewsweep/order"


class ChangesTable:
    """All changes of a view, and what can be read of them; at most one writer at a time."""

    def __init__(self, directory: Path, view: AnyView) -> None:
        self.path = directory / "changes"
        self._directory = directory
        self._view = view
        #: The handle's version is the last commit that we know; commits by others are conflicts.
        self.table = delta.table_at(self.path)
        #: The standing in the last commit that the handle knows. An old handle would look it up in
        #: the log, and the upkeep may have dropped that part by then.
        self._standing: Standing | None = None

    def standing(self) -> Standing:
        """The standing of the view."""
        if self._standing is None:
            self._standing = standing_in(self._existing(), self._view.sources)
        return self._standing

    def first_standing(self) -> Standing:
        """The standing of the first state; WrongUse if the log does not reach back to it."""
        try:
            return standing_in(DeltaTable(self.path, version=0), self._view.sources)
        except (DeltaError, OSError):
            raise WrongUse(
                f"the log of {self.path} has lost its first commit, and with it the place in the"
                " sources' topics where the view begins: there is no trace any more"
            ) from None

    def begin(self, rows: pl.DataFrame, standing: Standing, keep_minutes: float) -> None:
        """The first state, at position 0, in one commit."""
        placed = rows.with_columns(pl.lit(standing.position, pl.Int64).alias(POSITION))
        spoken = f", in the dialect {self._view.dialect}" if self._view.dialect else ""
        name = f"changes of the view {self._view.name!r}{spoken}, kept by viewsweep"
        numbers = standing.numbers()
        delta.append(self.path, placed, numbers, description=name, keep_minutes=keep_minutes)
        self.table = delta.table_at(self.path)

    def commit(
        self,
        changes: pl.DataFrame,
        standing: Standing,
        order: Deliveries,
        shown: Numbers | None,
        written: Sequence[files.WrittenFile],
    ) -> None:
        """One batch, in one commit: these changes or, if there are any, files that hold them."""
        numbers, note = standing.numbers(), {_ORDER: order_to_note(order, shown)}
        if written:
            files.commit(self._existing(), written, numbers, note)
        else:
            delta.append(self._existing(), changes, numbers, note)
        self._standing = standing

    def catch_up(self) -> None:
        """Moves the handle to the upkeep's last commit; a conflict if another writer committed."""
        self.table = delta.fresh(self.path, POSITION_REACHED, self.standing().position)

    def fold(self, position: int) -> bool:
        """Folds all changes up to a position into one state; False if there was nothing to fold.

        It is one commit, which appends at later positions do not disturb. An append that is under
        way at that moment has to be repeated, see `catch_up`.
        """
        table = delta.table_at(self.path)
        if table is None or position <= folded_in(table):
            return False
        old = pl.col(POSITION) <= position
        base = self.summed(pl.scan_delta(table), old)
        placed = base.with_columns(pl.lit(position, pl.Int64).alias(POSITION))
        with delta.plain_upkeep(self.path):
            write_deltalake(
                table,
                placed.to_arrow(),
                mode="overwrite",
                predicate=f"{POSITION} <= {position}",
                commit_properties=delta.numbered({_FOLDED: position}),
                post_commithook_properties=delta.NO_HOOKS,
            )
        return True

    def folded(self) -> int:
        """The position up to which history was folded; 0 when all of it is there."""
        return folded_in(self.latest())

    def orders(self) -> Iterator[tuple[Deliveries, Numbers | None]]:
        """The orders of delivery noted by the commits, newest first, with the positions shown."""
        for commit in delta.newest_first(self._existing()):
            if _ORDER in commit:
                yield order_from_note(str(commit[_ORDER]))

    def at(self, position: int) -> pl.DataFrame:
        """The view as of a position: its rows with `_count`."""
        table = self.latest()
        if position < folded_in(table):
            raise WrongUse(
                f"{self._directory}: position {position} is no longer known; the history up to"
                f" position {folded_in(table)} was folded. A longer `history_hours` keeps more"
            )
        return self.summed(pl.scan_delta(table), pl.col(POSITION) <= position)

    def summed(self, changes: pl.LazyFrame, which: pl.Expr) -> pl.DataFrame:
        """The rows that some of the changes make, with their counts."""
        rows = changes.filter(which)
        summed = rows.group_by(list(self._view.schema)).agg(pl.col(COUNT).sum())
        with delta.plain_reading(self.path):
            return summed.filter(pl.col(COUNT) != 0).collect()

    def placed(self, changes: pl.LazyFrame, which: pl.Expr) -> pl.DataFrame:
        """Some of the changes, with their positions."""
        with delta.plain_reading(self.path):
            return changes.filter(which).select(*self._view.schema, COUNT, POSITION).collect()

    def rows(self) -> int:
        """The number of rows of the view, with duplicates."""
        with delta.plain_reading(self.path):
            return int(self.all().select(pl.col(COUNT).sum()).collect().item())

    def all(self) -> pl.LazyFrame:
        """All changes so far."""
        return pl.scan_delta(self.latest())

    def latest(self) -> DeltaTable:
        """A new handle of `changes`: files that the old one names may have been replaced."""
        self._existing()
        table = delta.table_at(self.path)
        if table is None:
            raise delta.unreadable(f"{self.path} was removed")
        if (damage := delta.damage(table)) is not None:
            raise delta.unreadable(damage)
        return table

    def _existing(self) -> DeltaTable:
        if self.table is None:
            raise ProtocolBug(f"{self._directory}: the view was used before its first state")
        return self.table


def folded_in(table: DeltaTable) -> int:
    """The position up to which the table's history was folded."""
    return table.transaction_version(_FOLDED) or 0
