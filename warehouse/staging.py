"""The first state while it is being read: pages that nobody sees until the last one is there.

The pages go to a Delta table of their own. Each page is written in one commit, with the key at
which the next page begins and the vector to which all pages are corrected. After a crash the job
goes on after the last page that was written. Once the final page is written, the whole state is
committed to `changes` as position 0, and this table is dropped.

Nothing is stored until the first page has been read. The pages only save work: if the job cannot go
on from them, it drops them and reads the first state again.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import polars as pl
from deltalake import DeltaTable

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import empty_frame
from protocols.algebra.types import ColumnType
from protocols.errors import SourceViolation, ViewsweepError, WrongUse
from protocols.telling import Told
from warehouse import delta
from warehouse.counts import shown
from warehouse.definition import refuse_another_view
from warehouse.standing import Standing, standing_in
from warehouse.tables import ViewTables

_NOTE = "viewsweep"


class Staging:
    """The pages of one view's first state."""

    def __init__(self, tables: ViewTables, key: tuple[ColumnType, ...]) -> None:
        self._tables = tables
        self._path = _place(tables)
        self._table: DeltaTable | None = None
        #: Types of the root's key columns, to read the last key back.
        self._key = key
        #: Where the next page begins; None before the first page and after the last one.
        self.last_key: tuple[Any, ...] | None = None
        self.finished = False
        self.rows = 0
        self.standing: Standing | None = None

    def resume(self) -> None:
        """Goes on with the pages that are there; WrongUse if that cannot be."""
        table = delta.table_at(self._path)
        if table is None:
            return
        if (damage := delta.damage(table)) is not None:
            raise WrongUse(damage)
        self._read_note(str(next(iter(table.history(1)), {}).get(_NOTE, "")))
        if self.last_key is None and not self.finished:
            # Earlier versions committed the vector alone, before any page.
            raise WrongUse(f"{self._path} has no page yet")
        self.standing = standing_in(table, self._tables.view.sources)
        self.rows, self._table = table.count(), table

    def begin(self, standing: Standing) -> None:
        """Fixes the vector that all pages are corrected to; kept with the first of them."""
        self.standing = standing

    def add(self, rows: pl.DataFrame | None, last_key: tuple[Any, ...] | None) -> None:
        """One page; without a key to go on from, it was the last."""
        assert self.standing is not None
        self._refuse_overtaken()
        self.last_key, self.finished = last_key, last_key is None
        part = empty_frame(self._tables.view.schema).data if rows is None else rows
        delta.append(self._table or self._path, part, self.standing.numbers(), self._note())
        self._table = self._table or delta.table_at(self._path)
        self.rows += part.height

    def finish(self) -> None:
        """Makes the first state visible and drops the pages."""
        assert self._table is not None
        assert self.standing is not None
        self._refuse_overtaken()
        names = list(self._tables.view.schema)
        pages = pl.scan_delta(self._table).group_by(names).agg(pl.col(COUNT).sum())
        with delta.plain_reading(self._path):
            rows = pages.filter(pl.col(COUNT) != 0).collect()
        wrong = rows.filter(pl.col(COUNT) < 0)
        if not wrong.is_empty():
            discard_pages(self._tables)
            raise SourceViolation(
                f"view {self._tables.view.name}: its first state would have the row"
                f" ({shown(wrong, names)}) {wrong.item(0, COUNT)} times: a source's answers and its"
                " topic contradict each other. None of it was kept; run the same command again to"
                " read the first state from scratch"
            )
        self._tables.begin(rows, self.standing)
        discard_pages(self._tables)

    def _refuse_overtaken(self) -> None:
        """A conflict when another job has finished the first state, or has begun another one."""
        if self._table is not None and not (self._path / "_delta_log").exists():
            raise delta.Overtaken(delta.overtaken(self._tables.directory))

    def _note(self) -> dict[str, str]:
        key = self.last_key and [
            type_.encode(value) for type_, value in zip(self._key, self.last_key, strict=True)
        ]
        return {_NOTE: orjson.dumps({"last_key": key, "finished": self.finished}).decode()}

    def _read_note(self, text: str) -> None:
        try:
            note = orjson.loads(text)
            key, self.finished = note["last_key"], bool(note["finished"])
            if key is not None:
                pairs = zip(self._key, key, strict=True)
                self.last_key = tuple(type_.decode(value) for type_, value in pairs)
        except (ValueError, KeyError, TypeError):
            raise WrongUse(f"{self._path} is damaged") from None


def staging_of(
    tables: ViewTables,
    key: tuple[ColumnType, ...],
    refuse: Callable[[Standing], object],
    report: Callable[[str], None],
) -> Staging:
    """The pages that are there; dropped if they are damaged, of another view, or `refuse` raises.

    `refuse` receives the standing that all pages are corrected to.
    """
    staging = Staging(tables, key)
    try:
        refuse_another_view(tables.directory, tables.view)
        staging.resume()
        if staging.standing is not None:
            refuse(staging.standing)
    except ViewsweepError as error:
        why = str(error).partition(". ")[0]
        words = (
            f"view {tables.view.name}: its first state was interrupted and cannot be continued,"
            f" so it is read again: {why}"
        )
        report(Told(words, view=tables.view.name))
        discard_pages(tables)
        return Staging(tables, key)
    return staging


def discard_pages(tables: ViewTables) -> None:
    """Removes the pages of a first state."""
    shutil.rmtree(_place(tables), ignore_errors=True)


def _place(tables: ViewTables) -> Path:
    return tables.directory / "first_state"
