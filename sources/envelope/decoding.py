"""Reads a batch by record or in columns."""

from collections.abc import Sequence

import polars as pl

from protocols.views.catalog import Relation
from sources.envelope.byrecord import read_by_record
from sources.envelope.columns import read_in_columns
from sources.envelope.form import Records, RequestedRelations

#: From this many records the fixed cost of columns, about 2 ms per relation, pays off.
_WORTH_COLUMNS = 500


def decode(values: pl.Series, relations: Sequence[Relation]) -> Records:
    """Decodes a batch of record values (Binary) of one source, for these relations.

    Tombstones (null values) are skipped. Of other relations only the heads are read, to tell when a
    transaction is complete. Snapshot records have a head but no rows: version 0 is read from the
    source itself. An invalid record raises `BadRecord`.
    """
    batch = RequestedRelations(relations)
    records = read_in_columns(values, batch) if len(values) >= _WORTH_COLUMNS else None
    return read_by_record(values, batch) if records is None else records
