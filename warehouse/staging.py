"""The first state while it is being read: pages that nobody sees until the last one is there.

The pages go to a Delta table of their own, each in one commit together with the key at which the
next page begins and the vector that all of them are corrected to. A job that dies goes on behind
the last page. When the last page is in, the whole is committed to `changes` as position 0 and
this table goes.
"""

import shutil
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from protocols.algebra.delta import COUNT
from protocols.algebra.frame import empty_frame
from protocols.algebra.types import ColumnType
from protocols.errors import WrongUse
from warehouse import delta
from warehouse.standing import Standing, standing_in
from warehouse.tables import ViewTables

_NOTE = "viewsweep"


class Staging:
    """The pages of one view's first state."""

    def __init__(self, tables: ViewTables, key: tuple[ColumnType, ...]) -> None:
        self._tables = tables
        self._path = _place(tables)
        self._table = delta.table_at(self._path)
        #: Types of the root's key columns, to read the last key back.
        self._key = key
        #: Where the next page begins; None before the first page and after the last one.
        self.last_key: tuple[Any, ...] | None = None
        self.finished = False
        self.rows = 0
        self.standing: Standing | None = None
        if self._table is not None:
            self.standing = standing_in(self._table, tables.view.sources)
            self._read_note(str(self._table.history(1)[0].get(_NOTE, "")))
            self.rows = self._table.count()

    def begin(self, standing: Standing) -> None:
        """Fixes the vector that all pages are corrected to."""
        self.standing = standing
        delta.append(
            self._path, empty_frame(self._tables.view.schema).data, standing.numbers(), self._note()
        )
        self._table = delta.table_at(self._path)

    def add(self, rows: pl.DataFrame | None, last_key: tuple[Any, ...] | None) -> None:
        """One page; without a key to go on from, it was the last."""
        assert self._table is not None
        assert self.standing is not None
        self.last_key, self.finished = last_key, last_key is None
        part = empty_frame(self._tables.view.schema).data if rows is None else rows
        delta.append(self._table, part, self.standing.numbers(), self._note())
        self.rows += part.height

    def finish(self) -> None:
        """Makes the first state visible and drops the pages."""
        assert self._table is not None
        assert self.standing is not None
        names = list(self._tables.view.schema)
        pages = pl.scan_delta(self._table).group_by(names).agg(pl.col(COUNT).sum())
        with delta.plain_reading(self._path):
            rows = pages.filter(pl.col(COUNT) != 0).collect()
        self._tables.begin(rows, self.standing)
        discard_pages(self._tables)

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
            raise WrongUse(
                f"{self._path} is damaged; remove it to read the first state anew"
            ) from None


def discard_pages(tables: ViewTables) -> None:
    """Removes the pages of a first state that is visible by now."""
    shutil.rmtree(_place(tables), ignore_errors=True)


def _place(tables: ViewTables) -> Path:
    return tables.directory / "first_state"
