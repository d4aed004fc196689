"""The protocols by the names that configuration and command line use, with what they claim."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from protocols.errors import WrongUse
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.naive import naive
from protocols.maintenance.questions import Maintenance
from protocols.maintenance.sweep import Install, Sweep
from protocols.views.view import View


class Maintaining(Protocol):
    """What every protocol is: given delivered positions, it asks and says what to install."""

    def maintain(self, positions: Iterable[int]) -> Maintenance[Any, list[Install[Any]]]: ...


@dataclass(frozen=True)
class Entry:
    """One protocol: how to set it up over a view and a mailbox, and in a sentence what it does."""

    name: str
    start: Callable[[View, Mailbox[Any]], Maintaining]
    summary: str


PROTOCOLS = {
    entry.name: entry
    for entry in (
        Entry("sweep", Sweep, "one update at a time, errors taken out locally; complete"),
        Entry("naive", naive, "the control: believes every answer; wrong under concurrency"),
    )
}


def protocol(name: str) -> Entry:
    """The protocol of this name; WrongUse lists the ones there are."""
    if name not in PROTOCOLS:
        raise WrongUse(f"there is no protocol {name!r}; there are: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
