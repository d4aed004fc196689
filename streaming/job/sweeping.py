"""The executors at work for one view: what is handed to them, and what they have done.

A sweep of a small batch takes less time than Spark needs to start a task, so only a batch of many
changed rows is theirs. A thread of its own waits for them; the job goes on with its other views,
and its lookahead goes on reading.
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
        """Into how many slices a batch of so many rows is best cut."""
        ...

    def sweep(self, batch: Batch, slices: Sequence[Slice]) -> list[Swept]:
        """All slices, swept, in their order; called in a thread of its own."""
        ...

    def cancel(self, view: str) -> None:
        """Gives up what is swept for a view at this moment: its `sweep` ends soon, in any way."""
        ...


@dataclass(frozen=True)
class Done:
    """What executors have done of a stretch; they have written its changes."""

    slices: list[Swept]
    #: From handing it out to the last answer.
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
        """Whether it is large enough."""
        return len(self._rows(stretch)) >= self._least_rows

    def begin(self, stretch: Stretch[Frame], batch: Batch) -> None:
        """Hands a stretch out; `batch` is what executors need to know of it."""
        sweep = partial(self._sweep, stretch, self._rows(stretch), batch)
        self._at_work[stretch] = begun(sweep, f"executors for {self._view.name}")

    @property
    def at_work(self) -> list[Future[Done]]:
        """What can be waited for."""
        return list(self._at_work.values())

    def take_done(self) -> Iterator[tuple[Stretch[Frame], Done]]:
        """What has been swept; raises what went wrong with it."""
        for stretch, work in list(self._at_work.items()):
            if work.done():
                del self._at_work[stretch]
                yield stretch, work.result()

    def close(self) -> None:
        """Gives up what is at work, and waits until nothing is."""
        while wait(self.at_work, 0).not_done:
            # Once may be too early for what has only just begun.
            self._cluster.cancel(self._view.name)
            wait(self.at_work, _AGAIN_SECONDS)

    def _rows(self, stretch: Stretch[Frame]) -> Numbers:
        return changed_rows(self._view, self._mailbox, stretch.first, stretch.last)

    def _sweep(self, stretch: Stretch[Frame], rows: Numbers, batch: Batch) -> Done:
        began = time.perf_counter()
        number = self._cluster.slices(len(rows))
        slices = cut(rows, stretch.first, stretch.last, number)
        swept = self._cluster.sweep(batch, slices)
        return Done(swept, time.perf_counter() - began)
