"""Executors without Spark."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from protocols.exchange.slices import Slice
from streaming.job import slices
from streaming.job.slices import Batch, Swept


@dataclass
class InThisProcess:
    """Sweeps slices one after the other, from data that could be sent to another process."""

    number: int

    def slices(self, rows: int) -> int:
        assert rows > 0
        return self.number

    def sweep(self, batch: Batch, slices_: Sequence[Slice]) -> list[Swept]:
        return [slices.sweep(*pickle.loads(pickle.dumps((batch, each)))) for each in slices_]

    def cancel(self, view: str) -> None:
        """Does nothing: sweeps in this process run to their end."""
