"""The protocols by name, with what they need and what they promise, as data.

The help of the command line, the table in the README and every refusal are made from this, so a
view or a workload that a protocol cannot serve is refused with the reason before anything runs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from protocols.checking.levels import Level, claimed_by
from protocols.errors import WrongUse
from protocols.maintenance.keys import ViewKeys
from protocols.maintenance.mailbox import Mailbox
from protocols.maintenance.naive import naive
from protocols.maintenance.protocol import Maintaining, Starting
from protocols.maintenance.sweep import Sweep
from protocols.views.view import View


@dataclass(frozen=True)
class Entry:
    """One protocol: how to set it up, in a sentence what it does, and what it asks of the world."""

    name: str
    start: Starting[Any]
    summary: str
    #: Which transactions it can keep whole: those of one source, or global ones as well.
    transactions: Literal["local", "global"] = "global"
    #: All relations of the view lie at one source, which evaluates joins.
    one_source: bool = False
    #: Every relation has a key, and the view shows it.
    needs_keys: bool = False
    #: Updates and answers of a source come in one channel, in the order in which they happened
    #: there. Protocols without this need compare versions and take messages in any order.
    fifo: bool = False
    #: It takes the parts of a global transaction as they come, and waits for the others itself.
    takes_parts: bool = False

    @property
    def level(self) -> Level:
        """What it promises."""
        return claimed_by(self.name)

    def refuse_view(self, view: View) -> None:
        """WrongUse if it cannot keep this view."""
        reason = self._objection(view)
        if reason is not None:
            able = [entry.name for entry in PROTOCOLS.values() if not entry._objection(view)]
            raise WrongUse(
                f"protocol {self.name} cannot keep view {view.name}: {reason}. Protocols that can:"
                f" {', '.join(able)}"
            )

    def refuse_global(self, transaction: str) -> None:
        """WrongUse if it cannot keep transactions whole that span several sources."""
        if self.transactions == "local":
            able = [e.name for e in PROTOCOLS.values() if e.transactions == "global"]
            raise WrongUse(
                f"protocol {self.name} keeps transactions of one source whole, and {transaction!r}"
                f" is a global one. Protocols for those: {', '.join(able)}"
            )

    def _objection(self, view: View) -> str | None:
        if self.one_source and len(view.sources) > 1:
            return f"it needs all relations at one source, these are at {', '.join(view.sources)}"
        if self.needs_keys:
            try:
                ViewKeys(view)
            except WrongUse as error:
                return f"it needs the key of every relation in the view, and {error}"
        return None


def _by_name(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries}


def _from_nothing(start: Callable[[View, Mailbox[Any]], Maintaining[Any]]) -> Starting[Any]:
    """For protocols that never look at the rows that the view has."""
    return lambda view, mailbox, _contents: start(view, mailbox)


PROTOCOLS = _by_name(
    (
        Entry("sweep", _from_nothing(Sweep), "one update at a time, errors taken out locally"),
        Entry("naive", _from_nothing(naive), "the control: SWEEP that believes every answer"),
    )
)


def protocol(name: str) -> Entry:
    """The protocol of this name; WrongUse lists the ones there are."""
    if name not in PROTOCOLS:
        raise WrongUse(f"there is no protocol {name!r}; there are: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
