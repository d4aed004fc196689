"""Files of a Delta table that other processes write and the job commits.

Writing a file makes nothing visible: it belongs to the table when a commit names it, and the
upkeep's vacuum removes it if none ever does. So many processes may write, and there is still one
commit per batch, with all of its numbers. (Through Spark's Delta a commit carries one number only.)
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import polars as pl
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from protocols.algebra.delta import COUNT, POSITION
from protocols.errors import Unreachable
from warehouse import delta


@dataclass(frozen=True)
class WrittenFile:
    """Changes of a view in a Parquet file that no commit names yet."""

    name: str
    size: int
    #: When it was written, in milliseconds since the epoch.
    at: int
    rows: int
    #: By how many rows the view grows with it.
    growth: int
    first: int
    last: int


def write(directory: Path, changes: pl.DataFrame) -> WrittenFile:
    """Writes changes (at least one) into the directory of a table."""
    name = f"part-{uuid.uuid4()}.zstd.parquet"
    positions = changes[POSITION]
    first, last = int(positions.min()), int(positions.max())  # type: ignore[arg-type]
    with delta.plain_errors(directory):
        changes.write_parquet(directory / name)
        state = (directory / name).stat()
    growth, at = int(changes[COUNT].sum()), int(state.st_mtime * 1000)
    return WrittenFile(name, state.st_size, at, changes.height, growth, first, last)


def commit(
    table: DeltaTable,
    files: Sequence[WrittenFile],
    numbers: Mapping[str, int],
    note: Mapping[str, str],
) -> None:
    """Adds files with rows to the table, in one commit with these numbers; see `delta.append`."""
    where = delta.place_of(table)
    delta.refuse_removed(where)
    for file in files:
        if not (where / file.name).exists():
            raise Unreachable(
                f"{where}/{file.name} is gone; an executor wrote it for positions"
                f" {file.first} to {file.last}. Executors must write to the directory that the job"
                " reads, and job.readers_minutes must be longer than a batch takes. Correct this,"
                " then run the same command again"
            )
    with delta.plain_errors(where):
        table.create_write_transaction(
            [_action(file) for file in files],
            mode="append",
            schema=table.schema(),
            commit_properties=delta.numbered(numbers, note),
            post_commithook_properties=delta.NO_HOOKS,
        )


def _action(file: WrittenFile) -> AddAction:
    """The file with its range of positions, by which readers skip files."""
    stats = {
        "numRecords": file.rows,
        "minValues": {POSITION: file.first},
        "maxValues": {POSITION: file.last},
        "nullCount": {POSITION: 0},
    }
    return AddAction(file.name, file.size, {}, file.at, True, orjson.dumps(stats).decode())
