"""Delivered transactions in columns: a stretch of the one order in which the warehouse installs.

One entry per transaction. Entries with the same position belong together (the parts of a global
transaction, holdback.py). Positions ascend, and so do versions within a source.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Deliveries:
    """Delivered transactions: parallel arrays, in the order of delivery."""

    #: The names that `source` indexes.
    sources: tuple[str, ...]
    position: Numbers
    #: Indexes into `sources`.
    source: Numbers
    version: Numbers

    def __len__(self) -> int:
        return len(self.position)
