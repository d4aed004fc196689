"""Parses `before` and `after` of many records with Arrow, and turns them into signed rows.

Arrow is as strict as `ColumnType.decode`, except for three types: it accepts a bare 1.5 as a
decimal, silently drops the time zone of a timestamp, and expects a date as a number. These are read
as text and cast, after their text has passed `ColumnType.text_form`: the cast turns 1e-77 into
0.00, reads a year 0, and crashes the process at 1e-999999999.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from protocols.algebra.delta import COUNT
from protocols.algebra.types import ColumnType
from protocols.views.catalog import Relation
from sources.envelope.form import IMAGES, RECORD, VERSION

#: Maps all digits to 0: the form of a text does not depend on them.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
#: -0 without a point or an exponent; it may be the end of a longer number or text.
_WHOLE_ZERO = r"-0[\s,\]}]"
#: The digits of Arrow's decimals; with more the cast wraps around.
_MOST_DIGITS = 38
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
    """Something is invalid or unusual: the batch must be read by record."""


def need(condition: object) -> None:
    """Raises UnusualError unless the condition is True."""
    if condition is not True:
        raise UnusualError


@lru_cache(maxsize=4096)
def image_fields(relation: Relation, as_text: bool) -> tuple[pa.Field, pa.Field]:
    """The fields `before` and `after`; `as_text`: with text for the types that are cast later."""
    cells = pa.struct(
        [
            (name, pa.string() if as_text and type_.text_form else arrow_type(type_))
            for name, type_ in relation.columns
        ]
    )
    return pa.field("before", cells), pa.field("after", cells)


def arrow_type(type_: ColumnType) -> pa.DataType:
    """The Arrow type of a column of this type."""
    return _ARROW[type_.family](type_)


def joined(texts: pl.Series, end: str) -> pa.Buffer:
    """Concatenates the texts, each followed by `end`."""
    # An empty last text: appending the last end would copy megabytes, which takes longer.
    lines = pl.concat([texts, pl.Series([""])]).str.join(end)
    return lines.to_arrow(compat_level=pl.CompatLevel.oldest()).buffers()[2]


def parsed(
    lines: pa.Buffer,
    count: int,
    relation: Relation | None,
    schemas: tuple[pa.Schema, pa.Schema],
    others: Literal["ignore", "error"],
) -> pl.DataFrame:
    """Parses `count` objects, one per line, with the first schema, then casts to the second.

    Each line must begin and end like an object: then a line with two values or none changes the
    number of rows and is detected.
    """
    as_read, wanted = schemas
    table = pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(use_threads=False),
        parse_options=pj.ParseOptions(explicit_schema=as_read, unexpected_field_behavior=others),
    )
    need(table.num_rows == count)
    if relation is not None and as_read != wanted:
        table = table.combine_chunks()
        _need_text_forms(table, relation)
        table = table.cast(wanted)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _need_text_forms(table: pa.Table, relation: Relation) -> None:
    """Needs texts in the form of their types that the cast converts correctly."""
    columns = [(name, type_) for name, type_ in relation.columns if type_.text_form]
    for image in ("before", "after"):
        for cells in table.column(image).chunks:
            for name, type_ in columns:
                _need_text_form(cells.field(name), type_)


def _need_text_form(texts: pa.StringArray, type_: ColumnType) -> None:
    if texts.null_count == len(texts):
        return
    need(all(_can_be_cast(shape, type_) for shape in _shapes(texts)))
    if type_.family != "DECIMAL":
        # A year 0 has the form of a year, and Arrow accepts it.
        need(not pc.any(pc.starts_with(texts, "0000")).as_py())


def _shapes(texts: pa.StringArray) -> list[str]:
    """The distinct texts with each digit as 0: checking the form of these few is enough."""
    nulls, offsets, data = texts.buffers()
    zeros = pa.py_buffer(b"" if data is None else data.to_pybytes().translate(_DIGITS))
    shapes = pa.StringArray.from_buffers(
        len(texts), offsets, zeros, nulls, texts.null_count, texts.offset
    )
    found: list[str] = pc.unique(shapes).drop_null().to_pylist()
    return found


def _can_be_cast(shape: str, type_: ColumnType) -> bool:
    """Whether the text has the form of the type and Arrow casts it without change."""
    if type_.text_form is None or not type_.text_form.fullmatch(shape):
        return False
    if type_.family != "DECIMAL":
        return True
    whole = shape.lstrip("+-").partition(".")[0]
    return "e" not in shape.lower() and len(whole) + type_.precision_and_scale[1] <= _MOST_DIGITS


def signed_rows(
    fields: pl.DataFrame, images: pl.DataFrame, texts: pl.Series, relation: Relation
) -> pl.DataFrame | None:
    """The signed rows that records (record, version, op) delete and insert by their images, if any.

    `texts` contains the texts of the images, and maybe more.
    """
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
    need(not any(rows.get_column(name).null_count() for rows in signed for name in relation.key))
    _need_numbers(signed, texts, relation)
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


def _need_numbers(signed: Sequence[pl.DataFrame], texts: pl.Series, relation: Relation) -> None:
    """Refuses a bare NaN, which Arrow's reader accepts as a number and JSON does not have.

    Also refuses -0: Arrow reads -0.0, where reading by record finds the whole number 0.
    """
    names = [name for name, type_ in relation.columns if type_.family == "DOUBLE"]
    for cells in (rows.get_column(name) for name in names for rows in signed):
        numbers = cells.to_numpy()
        # In NumPy a null is a NaN as well.
        need(int(np.count_nonzero(np.isfinite(numbers))) == len(cells) - cells.null_count())
        if np.signbit(numbers[numbers == 0]).any():
            need(not texts.str.contains(_WHOLE_ZERO).any())
