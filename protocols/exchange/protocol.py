"""The interface of every protocol to its driver.

The driver (driver.py) puts updates into the mailbox and gives them positions whenever they come; it
does not wait for a protocol. After every delivery, and whenever a piece of work has ended, it calls
`begin` until that returns None or as many pieces run as the protocol allows. It runs all of them:
it sends their rounds of questions and hands each piece its answers. A piece returns the states to
make visible at that moment.

A piece may also be a stretch of positions, as data: then the driver decides where it is swept.

So a protocol that takes one update at a time has width one and looks into the mailbox when its
piece has ended; one that pipelines has several; and one that reacts to every update at once (the
Strobe family, ECA) begins a piece for each, possibly without questions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from protocols.algebra.delta import POSITION, Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.questions import Maintenance

D = TypeVar("D", bound=Delta)


@dataclass(frozen=True)
class Install(Generic[D]):
    """A state to make visible: the change of the view up to this position."""

    position: int
    #: None when the view does not change.
    change: D | None
    #: Questions that were not asked because the partial change had become empty.
    skipped: int = 0
    #: Set if every position from this one on gets a state of its own; then the POSITION of a row of
    #: `change` says to which of them it belongs.
    first: int | None = None

    def each(self) -> "list[Install[D]]":
        """The states one by one."""
        if self.first is None:
            return [self]
        changes = {} if self.change is None else self.change.split(POSITION)
        positions = range(self.first, self.position + 1)
        return [Install(position, changes.get(position)) for position in positions]


#: A piece of work: rounds of questions, then the states to make visible.
Work: TypeAlias = Maintenance[D, list[Install[D]]]


@dataclass(frozen=True, eq=False)
class Stretch(Generic[D]):
    """Work that may be done elsewhere: the change of these positions, both ends included.

    It may be cut (slices.py); each slice can be swept by itself, wherever the updates are known.
    """

    first: int
    last: int
    #: (first, last) → the change of these positions, each row with its own.
    change: Callable[[int, int], Maintenance[D, D | None]]

    def install(self, change: D | None) -> Install[D]:
        """The states to show when it has been swept: one for each position."""
        return Install(self.last, change, first=self.first)

    def here(self) -> Work[D]:
        """The work of sweeping it as a whole."""
        change = yield from self.change(self.first, self.last)
        return [self.install(change)]


def here(begun: Work[D] | Stretch[D]) -> Work[D]:
    """The piece of work, which is done here even if it is a stretch."""
    return begun.here() if isinstance(begun, Stretch) else begun


#: As the width of a protocol: any number of pieces may run at once.
UNBOUNDED = 2**31


class Maintaining(Protocol[D]):
    """A running protocol over one view and one mailbox."""

    @property
    def width(self) -> int:
        """The number of its pieces that may run at once; the driver keeps to it."""
        ...

    def begin(self) -> Work[D] | Stretch[D] | None:
        """The next piece of work; None if there is none until something else happens."""
        ...


#: (view, mailbox, a function that computes the current rows of the view) → the protocol. Its entry
#: in the registry knows which kind of view it takes.
Starting: TypeAlias = Callable[[Any, Mailbox[D], Callable[[], D]], Maintaining[D]]
