"""Reads the views' Delta tables for the page: rows, changes, transactions, sizes.

Every reading opens the tables anew, and the readings of all pages come one after the other: the job
beside them needs the processors more.
"""

import datetime
import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

from protocols.algebra.delta import COUNT, POSITION
from protocols.views.tree import AnyView
from warehouse import delta
from warehouse.definition import TABLES, stored_view
from warehouse.standing import Standing
from warehouse.tables import ViewTables

_ONE_BY_ONE = threading.Lock()


@dataclass(frozen=True)
class RowsWanted:
    """A part of a view: at a position, found by a text, in an order, a page of it."""

    #: None for the position of `current`.
    position: int | None = None
    search: str = ""
    sort: str | None = None
    descending: bool = False
    page: int = 1
    per_page: int = 50


@dataclass(frozen=True)
class Rows:
    """These rows, and how many there are."""

    position: int
    rows: pl.DataFrame
    #: Different rows that were found, and the pages that they make.
    found: int
    pages: int


@dataclass(frozen=True)
class TableSize:
    """One Delta table of a view."""

    name: str
    files: int
    bytes: int
    version: int
    position: int | None


def view_in(lake: Path, name: str) -> AnyView:
    """The view that is stored under this name; WrongUse if there is none."""
    file = lake / name / "view.json"
    return _view(lake / name, file.stat().st_mtime_ns if file.exists() else 0)


@functools.lru_cache(maxsize=512)
def _view(directory: Path, _changed: int) -> AnyView:
    return stored_view(directory)


class StoredRows:
    """The tables of one view, read."""

    def __init__(self, lake: Path, name: str) -> None:
        self.view = view_in(lake, name)
        self._tables = ViewTables(lake, self.view)

    @property
    def standing(self) -> Standing | None:
        """The standing of the last commit; None before the first state."""
        return self._tables.standing() if self._tables.exists else None

    def folded(self) -> int:
        """The first position that can be read."""
        return self._tables.folded()

    def followed(self) -> int | None:
        """The position of `current`."""
        return self._tables.followed()

    def rows(self, wanted: RowsWanted) -> Rows:
        """A page of the view's rows."""
        followed = self.followed()
        position = followed if wanted.position is None else wanted.position
        if position is None:
            position = self._tables.standing().position
        columns = list(self.view.schema)
        with _ONE_BY_ONE, delta.plain_reading(self._tables.directory):
            if position == followed:
                rows = pl.scan_delta(str(self._tables.directory / "current"))
            else:
                rows = self._tables.at(position).lazy()
            if wanted.search:
                rows = rows.filter(_has(columns, wanted.search))
            found = rows.select(pl.len()).collect().item()
            pages = max(1, -(-found // wanted.per_page))
            page = min(max(1, wanted.page), pages)
            by = [c for c in (wanted.sort, *columns) if c in columns]
            by = list(dict.fromkeys(by))
            falling = [wanted.descending and name == wanted.sort for name in by]
            shown = rows.select(*columns, COUNT).sort(by, descending=falling, nulls_last=True)
            part = shown.slice((page - 1) * wanted.per_page, wanted.per_page).collect()
        return Rows(position, part, int(found), pages)

    def changes_at(self, position: int) -> pl.DataFrame:
        """The changes of the view at one position."""
        found = self._tables.changes().filter(pl.col(POSITION) == position)
        with _ONE_BY_ONE, delta.plain_reading(self._tables.directory):
            return found.select(*self.view.schema, COUNT).collect()

    def made_by(self, row: Mapping[str, Any]) -> pl.DataFrame:
        """The changes of a row in order of position, or of all rows with these values."""
        same = [
            pl.col(name).eq_missing(pl.lit(value, self.view.schema[name].dtype))
            for name, value in row.items()
        ]
        found = self._tables.changes().filter(pl.all_horizontal(same))
        with _ONE_BY_ONE, delta.plain_reading(self._tables.directory):
            return found.select(*self.view.schema, COUNT, POSITION).sort(POSITION, COUNT).collect()

    def transactions(self, after: int, upto: int) -> pl.DataFrame:
        """The transactions at positions in (after, upto], in order, with their questions."""
        return self._progress(pl.col("position").is_between(after, upto, closed="right"))

    def transactions_at(self, positions: list[int]) -> pl.DataFrame:
        """The transactions at these positions."""
        return self._progress(pl.col("position").is_in(positions))

    def _progress(self, which: pl.Expr) -> pl.DataFrame:
        table = delta.table_at(self._tables.directory / "progress")
        if table is None:
            return self._tables.progress()
        with _ONE_BY_ONE, delta.plain_reading(self._tables.directory):
            return pl.scan_delta(table).filter(which).sort("position", "source").collect()

    def position_before(self, moment: datetime.datetime) -> int:
        """The last position that was visible at a moment (UTC)."""
        return max(self._tables.installed_before(moment), self.folded())

    def sizes(self) -> list[TableSize]:
        """The three tables."""
        found = []
        for name in TABLES:
            table = delta.table_at(self._tables.directory / name)
            if table is not None:
                found.append(_size(name, table))
        return found


def _size(name: str, table: DeltaTable) -> TableSize:
    files = delta.files_of(table)
    position = table.transaction_version("viewsweep/position")
    return TableSize(name, len(files), sum(size for _, size in files), table.version(), position)


def _has(columns: list[str], text: str) -> pl.Expr:
    """Whether any value, as text, has this text in it, in capitals or not."""
    wanted = text.lower()
    return pl.any_horizontal(
        pl.col(name).cast(pl.String).str.to_lowercase().str.contains(wanted, literal=True)
        for name in columns
    ).fill_null(False)
