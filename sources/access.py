"""How a source finds the rows that a question asks for: in its indexes, or by a scan.

The database looks keys up in an index when each key set has a column with one and there are at most
`FEW_KEYS` keys; then it looks at no other rows than those that match. Otherwise it scans: for many
keys that is the quicker way anyway. DuckDB also scans when the keys turn out to match more
than 2,048 rows and more than a thousandth of the relation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

#: Up to so many keys DuckDB is told to look up in an index, if there is one. Each costs some 10 µs,
#: a scan 3.5 ms per million rows.
FEW_KEYS = 300


@dataclass(frozen=True)
class Access:
    """How a question with these key sets is answered."""

    #: Up to how many keys in each set indexes are used; 0 if the question is always a scan.
    indexed_up_to: int
    #: Per key set that no index serves, its columns: an index on any one of them would do.
    lacking: tuple[tuple[str, ...], ...]


def access(key_sets: Sequence[Sequence[str]], indexed: Collection[str]) -> Access:
    """How a question with key sets over these columns is answered by a relation whose columns
    `indexed` have indexes; `status` of a source says which do."""
    lacking = tuple(tuple(keys) for keys in key_sets if not set(keys) & set(indexed))
    return Access(0 if lacking or not key_sets else FEW_KEYS, lacking)
