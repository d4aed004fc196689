"""What every protocol is, whoever drives it.

The driver (driver.py) puts updates into the mailbox and gives them positions, whenever they come;
it never waits for a protocol to do so. After every delivery and after every piece of work that has
ended it calls `begin` until that returns None or as many pieces are at work as the protocol wants,
and works on all of them: it sends out their rounds of questions and hands each piece its answers. A
piece returns what is to be made visible at that moment.

A piece may also be a stretch of positions, as data: then it is for the driver to say who sweeps it.

So a protocol that takes one update at a time has a width of one and looks into the mailbox when its
piece has ended; one that pipelines has several; and one that reacts to every update at once (the
Strobe family, ECA) begins a piece, possibly without questions, for each.
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
    """What a protocol wants made visible: the change of the view up to this position."""

    position: int
    #: None when the view does not change.
    change: D | None
    #: Questions that were not asked because the partial change had become empty.
    skipped: int = 0
    #: When every position from this one on gets a state of its own: the rows of `change` then say
    #: by their POSITION to which of them they belong.
    first: int | None = None

    def each(self) -> "list[Install[D]]":
        """The states one by one."""
        if self.first is None:
            return [self]
        changes = {} if self.change is None else self.change.split(POSITION)
        positions = range(self.first, self.position + 1)
        return [Install(position, changes.get(position)) for position in positions]


#: A piece of work: rounds of questions, then what is to be made visible.
Work: TypeAlias = Maintenance[D, list[Install[D]]]


@dataclass(frozen=True, eq=False)
class Stretch(Generic[D]):
    """Work that may be done elsewhere: the change of these positions, both ends included.

    It may be cut (slices.py) and each slice be swept by itself, by anybody who has the updates.
    """

    first: int
    last: int
    #: The change of any of the positions, from one to another, each row with its own.
    change: Callable[[int, int], Maintenance[D, D | None]]

    def install(self, change: D | None) -> Install[D]:
        """What becomes visible when it has been swept; each position gets a state of its own."""
        return Install(self.last, change, first=self.first)

    def here(self) -> Work[D]:
        """The work of sweeping it as a whole."""
        change = yield from self.change(self.first, self.last)
        return [self.install(change)]


def here(begun: Work[D] | Stretch[D]) -> Work[D]:
    """A piece of work, whatever it may be, that nobody does elsewhere."""
    return begun.here() if isinstance(begun, Stretch) else begun


#: As the width of a protocol: it may have any number of pieces at work.
UNBOUNDED = 2**31


class Maintaining(Protocol[D]):
    """A protocol over one view and one mailbox, in the middle of things."""

    @property
    def width(self) -> int:
        """So many of its pieces may be at work at once; the driver sees to it."""
        ...

    def begin(self) -> Work[D] | Stretch[D] | None:
        """The next piece of work; None if there is none before something else happens."""
        ...


#: (view, mailbox, the rows that the view has now, computed when asked for) → the protocol. Which
#: kind of view it takes is for its entry in the registry to know.
Starting: TypeAlias = Callable[[Any, Mailbox[D], Callable[[], D]], Maintaining[D]]
