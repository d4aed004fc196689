"""The records sent from a source to the warehouse; no other code knows their format.

One record is one changed row, in Debezium's flat JSON form:

    {"before": {…}|null, "after": {…}|null, "op": "c"|"u"|"d"|"r", "ts_ms": …,
     "source": {"db": source, "table": relation, "version": n, "ts_ms": …, "schema": digest},
     "transaction": {"id": "source:n", "total_order": 1…m, "event_count": m,
                     "global": {"id": …, "participants": [source, …]}, "history": digest}}

If the transaction is part of a transaction over several sources, all of its records have `global`.
Version n is written as m consecutive records, so a reader can tell when a transaction is complete.
`schema` is a digest of the relation's columns and types: a table altered under a running view is
detected at the first record of the new form. `history` is a digest of all commits of the source up
to this version (sources/history.py). Other producers may leave both out.

`form` has the definitions of both sides, `writing` writes, `decoding` reads: `byrecord` one record
after the other, `columns` a whole batch at once.
"""

from sources.envelope.byrecord import other_global, place_of
from sources.envelope.decoding import decode
from sources.envelope.form import RECORD, VERSION, BadRecord, Place, Records, schema_digest
from sources.envelope.writing import encode_transaction, head_of, record_key

__all__ = [
    "RECORD",
    "VERSION",
    "BadRecord",
    "Place",
    "Records",
    "decode",
    "encode_transaction",
    "head_of",
    "other_global",
    "place_of",
    "record_key",
    "schema_digest",
]
