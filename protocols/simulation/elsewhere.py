"""Batches that are handed out and swept elsewhere, as by executors in production.

The driver hands out a stretch of positions, and it is cut into slices. Each slice has a mailbox of
its own with the deliveries up to then, and asks at moments of its own. When the last one has been
swept, the sum of their changes is the change of the stretch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.maintained import Maintained
from protocols.exchange.protocol import Stretch, Work
from protocols.exchange.questions import Maintenance
from protocols.exchange.slices import Slice, cut
from protocols.simulation.choices import Choices
from protocols.views.partials import total


class SimulatedExecutors:
    """Decides which batches executors sweep, and in how many slices."""

    def __init__(self, choices: Choices, slices: int) -> None:
        self._choices = choices
        #: The most slices of a batch.
        self._slices = slices

    def want(self, _: Stretch[Any]) -> bool:
        """Whether executors sweep a batch."""
        return self._choices.below(2) == 1

    def cut(self, mailbox: Mailbox[Any], stretch: Stretch[Any]) -> list[Slice]:
        """Cuts a batch into slices."""
        positions = mailbox.deliveries(stretch.first - 1, stretch.last).position
        return cut(positions, stretch.first, stretch.last, 1 + self._choices.below(self._slices))


@dataclass(eq=False)
class Part:
    """One slice of a stretch, and the process that sweeps it."""

    slice: Slice
    maintained: Maintained[Any]
    sweep: Callable[[int, int], Maintenance[Any, Any]]
    begun: bool = False
    swept: bool = False
    change: Any = None

    def begin(self) -> None:
        """Begins to sweep the slice."""
        self.begun = True
        self.maintained.run(self._work())

    def _work(self) -> Work[Any]:
        self.change = yield from self.sweep(self.slice.first, self.slice.last)
        self.swept = True
        return []


@dataclass(eq=False)
class Parted:
    """A stretch that was handed out."""

    stretch: Stretch[Any]
    parts: list[Part] = field(default_factory=list)

    @property
    def swept(self) -> bool:
        """Whether all of its slices are swept."""
        return all(part.swept for part in self.parts)

    @property
    def change(self) -> Any:
        """Its change of the view."""
        return total(part.change for part in self.parts if part.change is not None)


def same_deliveries(mailbox: Mailbox[Any], received: Received[Any]) -> Mailbox[Any]:
    """Another mailbox with the same deliveries up to now."""
    other: Mailbox[Any] = Mailbox(received, mailbox.vector_at(mailbox.start), mailbox.start)
    other.deliver_as(mailbox.deliveries(mailbox.start, mailbox.last_position))
    return other
