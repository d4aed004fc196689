"""The tables of a view as an audit reads them: `changes` and `current`, at one position.

It may run beside the job, which goes on committing and tidying. So every look opens the tables
anew, and writes nothing. `current` is often some positions behind, or ahead by now: the changes in
between are added to its rows, or taken out, so that both tables are compared with the same rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.frame import compared
from protocols.auditing.audit import Damaged
from protocols.errors import Unreachable, WrongUse
from protocols.operators.keys import Keys, Nobody, These
from protocols.views.tree import AnyView
from warehouse import delta
from warehouse.changes import folded_in
from warehouse.standing import POSITION_REACHED, Standing, standing_in


class AuditedTables:
    """The content of a view's tables at the position of its last commit."""

    def __init__(self, root: Path, view: AnyView) -> None:
        self._view = view
        self._directory = root / view.name
        #: The standing that the view is audited at.
        self.standing: Standing = standing_in(self._table(), view.sources)

    def _table(self) -> DeltaTable:
        """A new handle of `changes`."""
        table = delta.table_at(self._directory / "changes")
        if table is None:
            raise WrongUse(
                f"view {self._view.name} has no first state yet; run 'viewsweep run' to create it"
            )
        return table

    def _opened(self) -> DeltaTable:
        """The same; Damaged if a file is missing or cut short."""
        table = self._table()
        _refuse_damaged("changes", table)
        return table

    def rows(self) -> int:
        """The number of rows of the view, equal ones counted."""
        with self._reading("changes"):
            return int(self._upto(self._opened()).select(pl.col(COUNT).sum()).collect().item())

    def values(self, columns: Sequence[str]) -> pl.DataFrame:
        """The different values of some columns."""
        with self._reading("changes"):
            rows = _summed(self._upto(self._opened()), self._names)
            return rows.select(columns).unique().collect()

    def of(self, keys: Keys) -> dict[str, pl.DataFrame]:
        """Table → its rows that agree with the keys, with counts."""
        with self._reading("current"):
            # Before `changes`, so that this has all that is in `current`.
            current = delta.table_at(self._directory / "current")
            if current is not None:
                _refuse_damaged("current", current)
        with self._reading("changes"):
            changes = self._opened()
            found = {"changes": self._agreeing(self._upto(changes), keys).collect()}
        if current is not None and _reached(current) >= folded_in(changes):
            with self._reading("current"):
                found["current"] = self._agreeing(self._moved(current, changes), keys).collect()
        return found

    def _upto(self, changes: DeltaTable) -> pl.LazyFrame:
        """All changes up to the position."""
        position = self.standing.position
        if folded_in(changes) > position:
            raise Unreachable(
                f"view {self._view.name}: its history was folded beyond position {position} during"
                " the audit. Run it again; a longer `history_hours` avoids this"
            )
        return pl.scan_delta(changes).filter(pl.col(POSITION) <= position)

    def _moved(self, current: DeltaTable, changes: DeltaTable) -> pl.LazyFrame:
        """The rows of `current`, with the changes that it lacks, and without those after."""
        position, reached = self.standing.position, _reached(current)
        columns, place = [*self._names, COUNT], pl.col(POSITION)
        rows = pl.scan_delta(changes)
        lacking = rows.filter(place.is_between(reached, position, closed="right"))
        later = rows.filter(place.is_between(position, reached, closed="right"))
        later = later.with_columns(-pl.col(COUNT))
        parts = (pl.scan_delta(current), lacking, later)
        return pl.concat([part.select(columns) for part in parts])

    def _agreeing(self, rows: pl.LazyFrame, keys: Keys) -> pl.LazyFrame:
        if isinstance(keys, Nobody):
            return _summed(rows.clear(), self._names)
        if isinstance(keys, These):
            on = compared(keys.rows, keys.rows.columns)
            rows = rows.join(keys.rows.lazy(), on=on, how="semi", nulls_equal=True)
        return _summed(rows, self._names)

    @property
    def _names(self) -> list[str]:
        return list(self._view.schema)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Damaged if a file of the table is, so that it cannot be decoded."""
        try:
            with delta.plain_reading(self._directory / name):
                yield
        except pl.exceptions.PanicException as error:
            raise Damaged(f"{name} cannot be read: {delta.first_line(error)}") from None
        except Unreachable as error:
            if not isinstance(error.__cause__, Exception):
                raise
            raise Damaged(f"{name} cannot be read: {delta.first_line(error)}") from None


def _refuse_damaged(name: str, table: DeltaTable) -> None:
    """Damaged if a file of the table is missing or cut short."""
    wrong = delta.damage(table)
    if wrong is not None:
        raise Damaged(f"{name} cannot be read: {wrong}")


def _summed(rows: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
    """The rows that changes make, with their counts."""
    return rows.group_by(names).agg(pl.col(COUNT).sum()).filter(pl.col(COUNT) != 0)


def _reached(current: DeltaTable) -> int:
    return delta.number(current, POSITION_REACHED)
