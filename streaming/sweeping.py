"""Who sweeps a batch of a view: the driver, or above so many changed rows the executors.

A sweep of a small batch takes less time than Spark needs to start a task. While executors are at
work the job waits for them, and its lookahead goes on reading.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from protocols.algebra.frame import Frame
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance
from protocols.maintenance.batched_sweep import BatchedSweep
from protocols.views.view import View
from streaming.slices import Batch, Slice, Swept, changed_rows, cut


class Cluster(Protocol):
    """Processes that sweep slices; `executors.py`."""

    def slices(self, rows: int) -> int:
        """Into how many slices a batch of so many rows is best cut."""
        ...

    def sweep(self, batch: Batch, slices: Sequence[Slice]) -> list[Swept]:
        """All slices, swept, in their order."""
        ...


class Sweeping:
    """Takes the sweeps of one view's protocol over, and hands the small ones back to it."""

    def __init__(
        self,
        protocol: BatchedSweep[Frame],
        view: View,
        mailbox: Mailbox[Frame],
        cluster: Cluster,
        least_rows: int,
    ) -> None:
        self._protocol = protocol
        self._view = view
        self._mailbox = mailbox
        self._cluster = cluster
        #: A batch with fewer changed rows stays with the driver.
        self._least_rows = least_rows
        #: What the executors need to know of the batch.
        self.batch: Callable[[], Batch]
        #: Called with what they have done, and the seconds from handing it out to the last answer:
        #: they have written the changes, the protocol has none.
        self.swept: Callable[[Sequence[Swept], float], None]
        protocol.sweep = self._sweep

    def _sweep(self, first: int, last: int) -> Maintenance[Frame, Frame | None]:
        rows = changed_rows(self._view, self._mailbox, first, last)
        if len(rows) < self._least_rows:
            here = yield from self._protocol.change(first, last)
            return here
        slices = cut(rows, first, last, self._cluster.slices(len(rows)))
        began = time.perf_counter()
        swept = self._cluster.sweep(self.batch(), slices)
        self.swept(swept, time.perf_counter() - began)
        return None
