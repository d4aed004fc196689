"""Spilling: rows that need not stay in memory go to files, which are mapped into memory.

The kernel reads their pages on access and may drop them when memory is short. A file loses its name
as soon as it is mapped, so it is gone when its rows are released, or when the process dies in any
way.
"""

import tempfile

import polars as pl
import pyarrow as pa
import pyarrow.ipc as ipc

from protocols.errors import ViewsweepError


def spill(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows, mapped from a file of their own in the directory for temporary files."""
    try:
        with tempfile.NamedTemporaryFile(prefix="viewsweep-mailbox-") as file:
            # Without compression, so that the columns are pages of the file.
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
