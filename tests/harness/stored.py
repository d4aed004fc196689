"""A small view and its tables, without sources: position k is version 3 + k of source a."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.datatypes import DataType, DataTypeClass

from protocols.algebra.delta import COUNT, POSITION
from protocols.algebra.types import column_type
from protocols.exchange.deliveries import Deliveries
from protocols.views.catalog import Catalog, Relation
from protocols.views.view import View
from tests.harness.innerjoins import parsed
from warehouse.progress import PROGRESS
from warehouse.standing import Standing
from warehouse.tables import ViewTables

R = Relation(
    "a",
    "r",
    (("id", column_type("BIGINT")), ("t", column_type("VARCHAR"))),
    ("id",),
)
S = Relation("b", "s", (("id", column_type("BIGINT")), ("y", column_type("DOUBLE"))))
SQL = "SELECT r.t, s.y FROM a.r r JOIN b.s s ON r.id = s.id"
Row = tuple[str | None, float | None, int]


def view(sql: str = SQL, *relations: Relation) -> View:
    return parsed(sql, Catalog(relations or (R, S)))


def rows(*given_rows: Row, position: int | None = None) -> pl.DataFrame:
    schema = {"t": pl.String, "y": pl.Float64, COUNT: pl.Int64}
    frame = pl.DataFrame(given_rows, schema=schema, orient="row")
    if position is None:
        return frame
    return frame.with_columns(pl.lit(position, pl.Int64).alias(POSITION))


def standing(position: int, a: int, b: int) -> Standing:
    return Standing(position, {"a": a, "b": b}, {"a": (7, 10 * a), "b": (7, 10 * b)})


def delivered(*order: tuple[int, str, int], **columns: Any) -> pl.DataFrame:
    schema: dict[str, DataType | DataTypeClass] = {
        "position": pl.Int64,
        "source": pl.String,
        "version": pl.Int64,
    }
    known = {"committed_at": None, "skipped": 0, "questions": None, "shown": True} | columns
    schema |= {name: type_ for name, type_ in PROGRESS.items() if name in known}
    return pl.DataFrame([(*each, *known.values()) for each in order], schema, orient="row")


def deliveries(*order: tuple[int, str, int]) -> Deliveries:
    sources = tuple(dict.fromkeys(source for _, source, _ in order))
    position, source, version = zip(*order, strict=True)
    return Deliveries(
        sources,
        np.array(position, np.int64),
        np.array([sources.index(each) for each in source], np.int64),
        np.array(version, np.int64),
    )


def made(directory: Path) -> ViewTables:
    """A view at position 0 with two rows, one of them twice."""
    tables = ViewTables(directory, view())
    tables.define()
    tables.begin(rows(("p", 1.0, 2), (None, None, 1)), standing(0, 3, 5))
    return tables


def install(tables: ViewTables, position: int, *changes: Row, record: bool = True) -> None:
    """Installs position k, which is version 3 + k of a."""
    tables.install(
        rows(*changes, position=position),
        standing(position, 3 + position, 5),
        deliveries((position, "a", 3 + position)),
    )
    if record:
        tables.record(delivered((position, "a", 3 + position)))


def anew(tables: ViewTables) -> ViewTables:
    """The tables as another process opens them."""
    return ViewTables(tables.directory.parent, tables.view)


def held(frame: pl.DataFrame) -> set[Row]:
    return set(frame.select("t", "y", COUNT).iter_rows())


def current(tables: ViewTables) -> set[Row]:
    return held(pl.read_delta(str(tables.directory / "current")))


def order(tables: ViewTables) -> list[tuple[int, str, int]]:
    return list(tables.progress().select("position", "source", "version").iter_rows())


def log_files(tables: ViewTables, name: str = "changes") -> list[Path]:
    return sorted((tables.directory / name / "_delta_log").glob("*.json"))
