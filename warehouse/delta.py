"""Committing to Delta tables through delta-rs: appends that carry their own bookkeeping.

A `txn` action (application id, version) is part of a Delta commit and survives log checkpoints,
so numbers kept there change atomically with the rows: that is how a view knows its position, the
version of each source and the offset in each topic without a second store that could disagree.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

import orjson
import polars as pl
import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from protocols.errors import Unreachable, ViewsweepError, WrongUse


class Overtaken(ViewsweepError):
    """A conflict: another job's commit came first, and nothing was written."""


#: For how long a reader may go on reading the files that it found when it opened a table.
KEEP_MINUTES = 10.0
#: Checkpoints are written by the upkeep, in its own thread: no batch waits for one.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

#: A Parquet file begins and ends with these bytes.
_PARQUET = b"PAR1"


def kept_for(minutes: float) -> dict[str, str]:
    """The properties of a table that keeps replaced files for so many minutes."""
    period = f"interval {round(minutes * 60)} seconds"
    return {"delta.deletedFileRetentionDuration": period, "delta.logRetentionDuration": period}


def numbered(numbers: Mapping[str, int], note: Mapping[str, str] | None = None) -> CommitProperties:
    """The numbers and the note that a commit carries besides its rows."""
    return CommitProperties(
        app_transactions=[Transaction(app_id, number) for app_id, number in numbers.items()],
        custom_metadata=dict(note or {}),
    )


def table_at(directory: Path) -> DeltaTable | None:
    """The Delta table in a directory, if there is one."""
    with plain_reading(directory):
        return DeltaTable(directory) if DeltaTable.is_deltatable(str(directory)) else None


def place_of(table: DeltaTable) -> Path:
    """The directory of a table."""
    return Path(url2pathname(urlparse(table.table_uri).path))


def append(
    table: DeltaTable | Path,
    rows: pl.DataFrame,
    numbers: Mapping[str, int],
    note: Mapping[str, str] | None = None,
    description: str | None = None,
    widen: bool = False,
    keep_minutes: float = KEEP_MINUTES,
) -> None:
    """One commit: these rows and these numbers, by application id.

    `widen` adds columns that an older table lacks. `keep_minutes` is for a new table.

    Given a handle, the commit fails if another job has committed one of the numbers since the
    handle was read; given a path, it creates the table, and fails if there is one.
    """
    where = place_of(table) if isinstance(table, DeltaTable) else table
    if isinstance(table, DeltaTable):
        refuse_removed(where)
    with plain_errors(where):
        write_deltalake(
            table,
            rows.to_arrow(),
            mode="append" if isinstance(table, DeltaTable) else "error",
            schema_mode="merge" if widen and isinstance(table, DeltaTable) else None,
            description=description,
            configuration=None if isinstance(table, DeltaTable) else kept_for(keep_minutes),
            commit_properties=numbered(numbers, note),
            post_commithook_properties=NO_HOOKS,
            writer_properties=_packed(rows),
        )


def _packed(rows: pl.DataFrame) -> WriterProperties:
    """Stores integers as differences from the one before, in as few bits as these need.

    Keys and positions outgrow a dictionary, which takes three times as long and 1.5 times the room.
    """
    differences = ColumnProperties(dictionary_enabled=False, encoding="DELTA_BINARY_PACKED")
    numbers = (name for name, type_ in rows.schema.items() if type_ == pl.Int64())
    return WriterProperties(column_properties=dict.fromkeys(numbers, differences))


def number(table: DeltaTable, app_id: str) -> int:
    """The number last committed for an application id."""
    version = table.transaction_version(app_id)
    if version is None:
        raise WrongUse(f"{table.table_uri} was not written by viewsweep: it lacks {app_id!r}")
    return int(version)


def fresh(directory: Path, app_id: str, known: int) -> DeltaTable:
    """A new handle. A fenced job gets a conflict: it keeps the old one, and no commit succeeds."""
    refuse_removed(directory)
    table = table_at(directory)
    if table is None or number(table, app_id) != known:
        raise Overtaken(overtaken(directory))
    return table


def last_checkpoint(directory: Path) -> int:
    """The version of the log's last checkpoint; -1 if there is none.

    The file is a hint; every reader does without it when it is damaged.
    """
    try:
        hint = orjson.loads((directory / "_delta_log/_last_checkpoint").read_bytes())
        return int(hint["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return -1


def newest_first(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """The log's entry for each commit, newest first; reads no more of a long log than is taken."""
    read, limit = 0, 16
    while True:
        commits = table.history(limit)
        yield from commits[read:]
        if len(commits) < limit:
            return
        read, limit = limit, limit * 4


def damage(table: DeltaTable) -> str | None:
    """Describes the first damaged or missing file by name; None if all are there and whole.

    Costs a stat and a short read per file: a reader that meets a file cut short panics, and a
    writer may pass it by for months.
    """
    directory = place_of(table)
    if not (directory / "_delta_log").exists():
        return f"{directory} was removed"
    for name, size in sorted(files_of(table)):
        file = directory / unquote(name)
        if (wrong := _damage_of(file, size)) is not None:
            return f"{file} {wrong}"
    return None


def files_of(table: DeltaTable) -> list[tuple[str, int]]:
    """The name and the size of each file of a table.

    Through pyarrow: once in some runs Polars crashed on the columns of delta-rs beside these two.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    names, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    return list(zip(names, sizes, strict=True))


def _damage_of(file: Path, size: int) -> str | None:
    try:
        there = file.stat().st_size
        if there != size:
            return f"has {there:,} of its {size:,} bytes"
        return None if is_parquet(file) else "is not a Parquet file any more"
    except FileNotFoundError:
        return "is gone"


def is_parquet(file: Path) -> bool:
    """Whether a file ends as Parquet does: with its footer, which is written last."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - len(_PARQUET)))
        return opened.read() == _PARQUET


def set_aside(path: Path) -> Path:
    """Renames what is in the way, replacing what was set aside before; returns its new place."""
    aside = path.with_name(f"{path.name}.aside")
    if aside.is_dir():
        shutil.rmtree(aside)
    path.replace(aside)
    return aside


@contextmanager
def plain_errors(where: Path) -> Iterator[None]:
    """Turns errors of Delta and of the disk into one message with a way out."""
    try:
        yield
    except CommitFailedError as error:
        raise Overtaken(f"{overtaken(where)} ({first_line(error)})") from error
    except (DeltaError, OSError) as error:
        if "table already exists" in str(error):
            raise Overtaken(overtaken(where)) from error
        raise Unreachable(
            f"{where}: the commit failed: {first_line(error)}. None of it is visible. Remove the"
            " cause (is the disk full?), then run the same command again to continue"
        ) from error


@contextmanager
def plain_upkeep(where: Path) -> Iterator[None]:
    """The same for upkeep, which can wait: a commit of the job may have come in between."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise Unreachable(f"{where}: {first_line(error)}; it will be retried later") from error


@contextmanager
def plain_reading(where: Path) -> Iterator[None]:
    """Turns errors about a missing or damaged file into one message with a way out."""
    try:
        yield
    except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(f"{where} cannot be read: {first_line(error)}") from error


def refuse_removed(where: Path) -> None:
    """Unreachable when a table's log is gone, which its handle does not notice."""
    if not (where / "_delta_log").exists():
        raise Unreachable(
            f"{where} was removed while the job ran. Restore it; or start the job again, which"
            " recreates what it can"
        )


def unreadable(what: str) -> Unreachable:
    """The error for a table that cannot be rebuilt from another."""
    return Unreachable(f"{what}. Restore it, or remove the view's directory to recreate the view")


def overtaken(where: Path) -> str:
    """The message for a job when another one writes to the same view."""
    return (
        f"{where}: another job has committed to this view meanwhile. Stop one of the two;"
        " nothing of this batch was written"
    )


def first_line(error: Exception) -> str:
    """The first line of a library's message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
