"""The tables of a view as an audit reads them: `changes` and `current`, at one position.

It opens handles of its own, so it may run beside the job, and writes nothing. `current` is often
some positions behind; the changes since are added to its rows, so that both tables are compared
with the same rows.
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
    """What the tables of a view hold at the position of its last commit."""

    def __init__(self, root: Path, view: AnyView) -> None:
        self._view = view
        self._directory = root / view.name
        # In this order, or `current` might be ahead of what we know of `changes`.
        current = delta.table_at(self._directory / "current")
        changes = delta.table_at(self._directory / "changes")
        if changes is None:
            raise WrongUse(
                f"view {view.name} has no first state yet; run 'viewsweep run' to create it"
            )
        self._changes = changes
        #: The standing that the view is audited at.
        self.standing: Standing = standing_in(changes, view.sources)
        #: None if `current` is not there, or stands where history is folded.
        self._current = self._comparable(current)

    def _comparable(self, current: DeltaTable | None) -> DeltaTable | None:
        if current is None or _reached(current) < folded_in(self._changes):
            return None
        return current

    def rows(self) -> int:
        """The number of rows of the view, equal ones counted."""
        with self._reading("changes"):
            return int(self._all().select(pl.col(COUNT).sum()).collect().item())

    def values(self, columns: Sequence[str]) -> pl.DataFrame:
        """The different values of some columns."""
        with self._reading("changes"):
            return _summed(self._all(), self._names).select(columns).unique().collect()

    def of(self, keys: Keys) -> dict[str, pl.DataFrame]:
        """Table → its rows that agree with the keys, with counts."""
        with self._reading("changes"):
            found = {"changes": self._agreeing(self._all(), keys).collect()}
        if self._current is not None:
            with self._reading("current"):
                found["current"] = self._agreeing(self._caught_up(self._current), keys).collect()
        return found

    def _all(self) -> pl.LazyFrame:
        """All changes up to the position."""
        upto = pl.col(POSITION) <= self.standing.position
        return pl.scan_delta(self._changes).filter(upto).select(*self._names, COUNT, POSITION)

    def _caught_up(self, current: DeltaTable) -> pl.LazyFrame:
        """The rows of `current`, with the changes that it lacks."""
        since = self._all().filter(pl.col(POSITION) > _reached(current))
        columns = [*self._names, COUNT]
        return pl.concat([pl.scan_delta(current).select(columns), since.select(columns)])

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
        """Damaged if a file of the table is: missing, cut short, or not to be decoded."""
        path = self._directory / name
        table = self._changes if name == "changes" else self._current
        wrong = None if table is None else delta.damage(table)
        if wrong is not None:
            raise Damaged(f"{name} cannot be read: {wrong}")
        try:
            with delta.plain_reading(path):
                yield
        except (Unreachable, pl.exceptions.PanicException) as error:
            raise Damaged(f"{name} cannot be read: {delta.first_line(error)}") from None


def _summed(rows: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
    """The rows that changes make, with their counts."""
    return rows.group_by(names).agg(pl.col(COUNT).sum()).filter(pl.col(COUNT) != 0)


def _reached(current: DeltaTable) -> int:
    return delta.number(current, POSITION_REACHED)
