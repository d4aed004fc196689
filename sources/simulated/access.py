"""How a source finds the rows that a question asks for: in its indexes, or by a scan.

The database looks keys up in an index if each key set has an indexed column and there are at most
`FEW_KEYS` keys; it then reads only the rows that match. Otherwise it scans, which is faster for
many keys anyway. DuckDB also scans when the keys turn out to match more than 2,048 rows and more
than a thousandth of the relation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

#: DuckDB looks up at most this many keys in an index, if there is one. A key costs about 10 µs, a
#: scan 3.5 ms per million rows.
FEW_KEYS = 300


@dataclass(frozen=True)
class Access:
    """How a question with these key sets is answered."""

    #: Indexes are used for at most this many keys in each set; 0 if the question is always a scan.
    indexed_up_to: int
    #: The columns of each key set without an index; an index on any one of them is enough.
    lacking: tuple[tuple[str, ...], ...]


def access(key_sets: Sequence[Sequence[str]], indexed: Collection[str]) -> Access:
    """Tells how a relation with indexes on the columns `indexed` answers a question with these key
    sets. The `status` of a source lists its indexed columns."""
    lacking = tuple(tuple(keys) for keys in key_sets if not set(keys) & set(indexed))
    return Access(0 if lacking or not key_sets else FEW_KEYS, lacking)
