"""The executors that sweep for one view: the stretches handed to them, and the finished ones.

A sweep of a small batch takes less time than Spark needs to start a task, so executors get only
batches of many changed rows. A thread of its own waits for them; the job goes on with its other
views, and its lookahead goes on reading.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from protocols.algebra.frame import Frame
from protocols.exchange.deliveries import Numbers
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Stretch
from protocols.exchange.slices import Slice, cut
from protocols.views.tree import AnyView
from streaming.job.slices import Batch, Swept, changed_rows
from streaming.stopping import begun

_AGAIN_SECONDS = 0.1


class Cluster(Protocol):
    """Processes that sweep slices; `executors.py`."""

    def slices(self, rows: int) -> int:
        """The best number of slices for a batch of so many rows."""
        ...

    def sweep(self, batch: Batch, slices: Sequence[Slice]) -> list[Swept]:
        """All slices, swept, in their order; called in a thread of its own."""
        ...

    def cancel(self, view: str) -> None:
        """Cancels the running sweeps of a view: `sweep` returns or raises soon."""
        ...


@dataclass(frozen=True)
class Done:
    """A stretch that executors have swept; they have written its changes."""

    slices: list[Swept]
    #: From handing it out to the result of the last slice.
    seconds: float


class Sweeping:
    """The stretches of one view that executors sweep."""

    def __init__(
        self, view: AnyView, mailbox: Mailbox[Frame], cluster: Cluster, least_rows: int
    ) -> None:
        self._view = view
        self._mailbox = mailbox
        self._cluster = cluster
        #: A stretch with fewer changed rows stays with the driver.
        self._least_rows = least_rows
        self._at_work: dict[Stretch[Frame], Future[Done]] = {}

    def wants(self, stretch: Stretch[Frame]) -> bool:
        """Whether a stretch is large enough for executors."""
        return len(self._rows(stretch)) >= self._least_rows

    def begin(self, stretch: Stretch[Frame], batch: Batch) -> None:
        """Hands a stretch out, with the batch that executors need for it."""
        sweep = partial(self._sweep, stretch, self._rows(stretch), batch)
        self._at_work[stretch] = begun(sweep, f"executors for {self._view.name}")

    @property
    def at_work(self) -> list[Future[Done]]:
        """The futures of the running sweeps."""
        return list(self._at_work.values())

    def take_done(self) -> Iterator[tuple[Stretch[Frame], Done]]:
        """The finished stretches, which it removes; raises the error of a failed one."""
        for stretch, work in list(self._at_work.items()):
            if work.done():
                del self._at_work[stretch]
                yield stretch, work.result()

    def cancel(self) -> None:
        """Cancels the running sweeps; one that has only just begun may go on."""
        if self._at_work:
            self._cluster.cancel(self._view.name)

    def close(self) -> None:
        """Cancels the running sweeps, and waits until none runs."""
        while wait(self.at_work, 0).not_done:
            self.cancel()
            wait(self.at_work, _AGAIN_SECONDS)

    def _rows(self, stretch: Stretch[Frame]) -> Numbers:
        return changed_rows(self._view, self._mailbox, stretch.first, stretch.last)

    def _sweep(self, stretch: Stretch[Frame], rows: Numbers, batch: Batch) -> Done:
        began = time.perf_counter()
        number = self._cluster.slices(len(rows))
        slices = cut(rows, stretch.first, stretch.last, number)
        swept = self._cluster.sweep(batch, slices)
        return Done(swept, time.perf_counter() - began)
