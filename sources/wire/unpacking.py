"""Reads Arrow streams from outside, and checks their size before it unpacks anything.

A stream of 3 kB may unpack to 160 MB: its buffers may be compressed, and columns of NULLs, or no
columns at all, may have any number of rows. The header of each record batch tells the size: the
number of rows, and the places of the buffers, each of which, if compressed, begins with its
unpacked size. The layout is that of Message.fbs and Schema.fbs in the Arrow format.
"""

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from protocols.errors import WrongUse
from sources.wire.bounds import MOST_ROWS

#: Fields of the tables Message and RecordBatch, by their number in the schema.
_HEADER = 2
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
#: The allowed types of columns, in the variants that clients may send.
_PLAIN = (
    pa.types.is_int64,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_timestamp,
)


def unpacked(streams: Sequence[memoryview], most_bytes: int) -> list[pa.Table]:
    """The tables of these streams; WrongUse if together they take more than `most_bytes`."""
    tables, room = [], most_bytes
    for stream in streams:
        room -= _check_batches(stream, room, most_bytes)
        with pa.ipc.open_stream(stream) as reader:
            _check_types(reader.schema)
            table = reader.read_all()
        table.validate(full=True)
        room -= sum(map(_shared_text, table.columns))
        _check_room(room, most_bytes)
        tables.append(table)
    return tables


def _check_batches(stream: memoryview, room: int, most_bytes: int) -> int:
    """The unpacked size of the stream; WrongUse if that is too large."""
    rows = size = 0
    for message in _messages(stream):
        if message.type == "dictionary":
            raise WrongUse("the columns of keys must not be dictionary-encoded; send plain values")
        if message.type != "record batch":
            continue
        more, bytes_ = _announced(message)
        rows += more
        if rows > MOST_ROWS:
            raise WrongUse(
                f"one key set has {rows} keys, but the limit is {MOST_ROWS}; split the question"
            )
        size += bytes_
        _check_room(room - size, most_bytes)
    return size


def _check_room(room: int, most_bytes: int) -> None:
    if room < 0:
        raise WrongUse(
            f"the keys of the question take more than {most_bytes} bytes unpacked; split the"
            " question, or raise --largest-question"
        )


def _messages(stream: memoryview) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _announced(message: pa.ipc.Message) -> tuple[int, int]:
    """Rows of a record batch, and its unpacked bytes. Arrow has verified its header."""
    header, body = memoryview(message.metadata), memoryview(message.body)
    table = _follow(header, 0)
    batch = _follow(header, _field(header, table, _HEADER))
    length = _field(header, batch, _LENGTH)
    rows = struct.unpack_from("<q", header, length)[0] if length else 0
    if not _field(header, batch, _COMPRESSION):
        return rows, len(body)
    sizes = (
        struct.unpack_from("<q", body, offset)[0]
        for offset, size in _buffers(header, batch)
        if size >= 8
    )
    # -1: a buffer left as it is, since compression would not make it smaller.
    return rows, len(body) + sum(size for size in sizes if size > 0)


def _buffers(header: memoryview, batch: int) -> Iterator[tuple[int, int]]:
    """(offset, size) of the buffers in the body."""
    at = _follow(header, _field(header, batch, _BUFFERS))
    (count,) = struct.unpack_from("<I", header, at)
    yield from struct.iter_unpack("<qq", header[at + 4 : at + 4 + 16 * count])


def _follow(header: memoryview, at: int) -> int:
    """Follows the offset stored at this place."""
    return at + int(struct.unpack_from("<I", header, at)[0])


def _field(header: memoryview, table: int, number: int) -> int:
    """The place of a table's field; 0 if it has its default."""
    vtable = table - struct.unpack_from("<i", header, table)[0]
    (size,) = struct.unpack_from("<H", header, vtable)
    entry = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", header, vtable + entry) if entry < size else (0,)
    return table + int(offset) if offset else 0


def _check_types(schema: pa.Schema) -> None:
    """Nested and encoded columns may unpack to any size, and no relation has one."""
    for field in schema:
        if not any(is_of(field.type) for is_of in _PLAIN):
            raise WrongUse(
                f"column {field.name!r} is {field.type}, which is not a type that a column can have"
                " here"
            )


def _shared_text(column: pa.ChunkedArray) -> int:
    """The bytes of texts without sharing: in a view many texts may share the same bytes."""
    if not pa.types.is_string_view(column.type):
        return 0
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
