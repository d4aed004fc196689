"""Committing to Delta tables through delta-rs: appends that carry their own bookkeeping.

A `txn` action (application id, version) is part of a Delta commit and survives log checkpoints,
so numbers kept there change atomically with the rows: that is how a view knows its position, the
version of each source and the offset in each topic without a second store that could disagree.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from protocols.errors import Unreachable, ViewsweepError, WrongUse


def table_at(directory: Path) -> DeltaTable | None:
    """The Delta table in a directory, if there is one."""
    with plain_reading(directory):
        return DeltaTable(directory) if DeltaTable.is_deltatable(str(directory)) else None


def append(
    table: DeltaTable | Path,
    rows: pl.DataFrame,
    numbers: Mapping[str, int],
    note: Mapping[str, str] | None = None,
    description: str | None = None,
    widen: bool = False,
) -> None:
    """One commit: these rows and these numbers, by application id.

    `widen` adds columns that an older table lacks.

    Given a handle, the commit fails if another job has committed one of the numbers since the
    handle was read; given a path, it creates the table, and fails if there is one.
    """
    properties = CommitProperties(
        app_transactions=[Transaction(app_id, number) for app_id, number in numbers.items()],
        custom_metadata=dict(note or {}),
    )
    where = Path(table.table_uri) if isinstance(table, DeltaTable) else table
    with plain_errors(where):
        write_deltalake(
            table,
            rows.to_arrow(),
            mode="append" if isinstance(table, DeltaTable) else "error",
            schema_mode="merge" if widen and isinstance(table, DeltaTable) else None,
            description=description,
            commit_properties=properties,
        )


def number(table: DeltaTable, app_id: str) -> int:
    """The number last committed for an application id."""
    version = table.transaction_version(app_id)
    if version is None:
        raise WrongUse(f"{table.table_uri} was not written by viewsweep: it lacks {app_id!r}")
    return int(version)


def newest_first(table: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """What the log says about each commit; of a long log no more is read than is wanted."""
    read, limit = 0, 16
    while True:
        commits = table.history(limit)
        yield from commits[read:]
        if len(commits) < limit:
            return
        read, limit = limit, limit * 4


@contextmanager
def plain_errors(where: Path) -> Iterator[None]:
    """Turns what Delta and the disk say into one message with a way out."""
    try:
        yield
    except CommitFailedError as error:
        raise ViewsweepError(
            f"{where}: another job has committed to this view meanwhile ({first_line(error)})."
            " Stop one of the two; nothing of this batch was written"
        ) from error
    except (DeltaError, OSError) as error:
        raise Unreachable(
            f"{where}: the commit failed: {first_line(error)}. Nothing of it is visible; when the"
            " cause is gone (is the disk full?), the same command goes on"
        ) from error


@contextmanager
def plain_reading(where: Path) -> Iterator[None]:
    """Turns what is said about a missing or damaged file into one message with a way out."""
    try:
        yield
    except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
        raise Unreachable(
            f"{where} cannot be read: {first_line(error)}. Restore it, or remove the view's"
            " directory to make the view anew"
        ) from error


def first_line(error: Exception) -> str:
    """The first line of what a library says."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
