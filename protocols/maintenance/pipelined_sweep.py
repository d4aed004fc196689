"""Pipelined SWEEP (SIGMOD'97, section 5.3, last paragraph): several sweeps run at once.

Complete in delivery order, n - 1 queries per update, like SWEEP; an update does not wait for the
sweeps before it, only its installation does. The paper asks for "a more elaborate mechanism to
detect concurrent updates". None is needed here: the sweep of position k takes all updates after k
out of its answers, whether they wait in the queue or are being swept by another sweep.

Two simpler ways are wrong (algorithms.md, section 3). Testing whether an update is *still in the
queue* overlooks those that another sweep has begun. Installing in the order in which sweeps end
shows states that never existed, because cross terms are missing in between.
"""

from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.maintenance.sweep import Sweep
from protocols.views.view import View

D = TypeVar("D", bound=Delta)


class PipelinedSweep(Generic[D]):
    """The protocol over one view and one mailbox."""

    def __init__(self, view: View, mailbox: Mailbox[D], width: int = 8) -> None:
        self._mailbox = mailbox
        self._sweep = Sweep(view, mailbox)
        #: At most so many sweeps at once.
        self.width = width
        self._begun = mailbox.start
        self._installed = mailbox.start
        #: Sweeps that have ended before an earlier one.
        self._done: dict[int, Install[D]] = {}

    def begin(self) -> Work[D] | None:
        """The next update, if there is room for one more sweep."""
        if self._begun == self._mailbox.last_position:
            return None
        self._begun += 1
        return self._taking_part(self._begun)

    def _taking_part(self, position: int) -> Work[D]:
        self._done[position] = yield from self._sweep.update(position)
        ready = []
        while self._installed + 1 in self._done:
            self._installed += 1
            ready.append(self._done.pop(self._installed))
        return ready
