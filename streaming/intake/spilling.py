"""Rows that are here and need not stay in memory: they lie in files, mapped into memory.

The kernel reads their pages when they are looked at and may drop them when memory is short. A file
has no name any more as soon as it is mapped, so it is gone when its rows are let go of, or when the
process dies, however it does.
"""

import tempfile

import polars as pl
import pyarrow as pa
import pyarrow.ipc as ipc

from protocols.errors import ViewsweepError


def spill(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows, out of a file of their own in the directory for temporary ones."""
    try:
        with tempfile.NamedTemporaryFile(prefix="viewsweep-mailbox-") as file:
            # Without compression: only then the columns are the pages of the file.
            rows.rechunk().write_ipc(file.name, compression="uncompressed")
            table = ipc.open_file(pa.memory_map(file.name)).read_all()
    except OSError as error:
        raise ViewsweepError(
            f"{rows.height:,} rows of the mailbox do not fit into files in"
            f" {tempfile.gettempdir()}: {error.strerror or error}. Make room there, set TMPDIR to"
            " another directory, or raise job.mailbox_megabytes. Nothing is lost, and the same"
            " command goes on"
        ) from None
    mapped = pl.from_arrow(table)
    assert isinstance(mapped, pl.DataFrame)
    return mapped
