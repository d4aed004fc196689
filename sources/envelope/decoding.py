"""Reading a batch, the one way or the other."""

from collections.abc import Sequence

import polars as pl

from protocols.views.catalog import Relation
from sources.envelope.byrecord import read_by_record
from sources.envelope.columns import read_in_columns
from sources.envelope.form import Batch, Records

#: From here on the fixed cost of columns, some two milliseconds per relation, is worth paying.
_WORTH_COLUMNS = 500


def decode(values: pl.Series, relations: Sequence[Relation]) -> Records:
    """What a batch of record values (Binary) of one source says about these relations.

    Tombstones (null values) are skipped. Of relations that are not listed only the heads are read:
    they are needed to see that a transaction is whole. Snapshot records have a head but no rows,
    for version 0 is read from the source itself. Anything wrong raises `BadRecord`.
    """
    batch = Batch(relations)
    records = read_in_columns(values, batch) if len(values) >= _WORTH_COLUMNS else None
    return read_by_record(values, batch) if records is None else records
