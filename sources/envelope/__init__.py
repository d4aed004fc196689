"""The records that travel from a source to the warehouse; nothing else knows how they look.

One record is one changed row, in Debezium's flat JSON form:

    {"before": {…}|null, "after": {…}|null, "op": "c"|"u"|"d"|"r", "ts_ms": …,
     "source": {"db": source, "table": relation, "version": n, "ts_ms": …, "schema": digest},
     "transaction": {"id": "source:n", "total_order": 1…m, "event_count": m,
                     "global": {"id": …, "participants": [source, …]}, "history": digest}}

`global` is there when the transaction is a part of one that spans several sources, and then in all
of its records. Version n is written as m records in a row, so a reader knows by itself when a
transaction is whole.
`schema` is a digest of the relation's columns and types: a table altered under a running view is
found at the first record of the new form. `history` is a digest of all that the source committed up
to this version (sources/history.py). A foreign producer may leave both out.

`form` holds what both sides share, `writing` writes, `decoding` reads: `byrecord` one record after
the other, `columns` a whole batch at once.
"""

from sources.envelope.byrecord import Place, other_global, place_of
from sources.envelope.decoding import decode
from sources.envelope.form import RECORD, VERSION, BadRecord, Records, schema_digest
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
