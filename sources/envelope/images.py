"""`before` and `after` of many records: parsed by Arrow, and made into signed rows.

Arrow is as strict as `ColumnType.decode`, but for three types: it takes a bare 1.5 for a decimal,
drops the time zone of a timestamp without a word, and wants a date as a number. These are read as
text and cast.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.json as pj

from protocols.algebra.delta import COUNT
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation
from sources.envelope.form import IMAGES, RECORD, VERSION

_AS_TEXT = ("DECIMAL", "DATE", "TIMESTAMP")
_ARROW: dict[str, Callable[[ColumnType], pa.DataType]] = {
    "BIGINT": lambda _: pa.int64(),
    "DOUBLE": lambda _: pa.float64(),
    "DECIMAL": lambda type_: pa.decimal128(*type_.precision_and_scale),
    "VARCHAR": lambda _: pa.string(),
    "BOOLEAN": lambda _: pa.bool_(),
    "DATE": lambda _: pa.date32(),
    "TIMESTAMP": lambda _: pa.timestamp("us"),
}


class UnusualError(Exception):
    """Something here is bad or unusual: the batch has to be read by record."""


def need(condition: object) -> None:
    """UnusualError unless it is so."""
    if condition is not True:
        raise UnusualError


@lru_cache(maxsize=4096)
def image_fields(relation: Relation, as_text: bool) -> tuple[pa.Field, pa.Field]:
    """`before` and `after`. `as_text`: with what is cast afterwards."""
    cells = pa.struct(
        [
            (name, pa.string() if as_text and type_.family in _AS_TEXT else arrow_type(type_))
            for name, type_ in relation.columns
        ]
    )
    return pa.field("before", cells), pa.field("after", cells)


def arrow_type(type_: ColumnType) -> pa.DataType:
    """What a column of this type is in Arrow."""
    return _ARROW[type_.family](type_)


def parsed(
    lines: bytes,
    count: int,
    schemas: tuple[pa.Schema, pa.Schema],
    others: Literal["ignore", "error"],
) -> pl.DataFrame:
    """So many objects, one to a line; first as the one schema says, then cast to the other.

    Each line has to begin and end like an object: then one with two values or none in it cannot
    hide, for the number of rows would differ.
    """
    as_read, wanted = schemas
    table = pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(use_threads=False),
        parse_options=pj.ParseOptions(explicit_schema=as_read, unexpected_field_behavior=others),
    )
    need(table.num_rows == count)
    frame = pl.from_arrow(table if as_read == wanted else table.cast(wanted))
    assert isinstance(frame, pl.DataFrame)
    return frame


def signed_rows(
    fields: pl.DataFrame, images: pl.DataFrame, relation: Relation
) -> pl.DataFrame | None:
    """The rows that records (record, version, op) take away and add by their images, if any."""
    ops = fields.get_column("op")
    signed = []
    for image, place, count in (("before", 0, -1), ("after", 1, 1)):
        present = images.get_column(image).is_not_null()
        carriers = [ops == op for op, carried in IMAGES.items() if carried[place]]
        need((reduce(or_, carriers) == present).all())
        if present.any():
            signed.append(_image_rows(fields, images.get_column(image), present, count))
    if not signed:
        return None
    _need_finite(signed, relation)
    if len(signed) == 1:
        return signed[0]
    rows = pl.concat(signed)
    # Stable: the old row of a record stays before its new one.
    return rows[np.argsort(rows.get_column(RECORD).to_numpy(), kind="stable")]


def _image_rows(
    fields: pl.DataFrame, images: pl.Series, present: pl.Series, count: int
) -> pl.DataFrame:
    cells = images.filter(present).struct.unnest()
    return pl.DataFrame(
        [
            *cells.get_columns(),
            pl.Series(COUNT, np.full(cells.height, count, np.int64)),
            fields.get_column("version").filter(present).alias(VERSION),
            fields.get_column("record").filter(present).alias(RECORD),
        ]
    )


def _need_finite(signed: Sequence[pl.DataFrame], relation: Relation) -> None:
    """Arrow's reader takes a bare NaN for a number; JSON knows none, so neither do we."""
    for name, type_ in relation.columns:
        if type_.family == "DOUBLE":
            for rows in signed:
                cells = rows.get_column(name)
                # In NumPy a null is a NaN as well.
                finite = int(np.count_nonzero(np.isfinite(cells.to_numpy())))
                need(finite == len(cells) - cells.null_count())
