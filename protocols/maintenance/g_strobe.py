"""G-Strobe [ZGMW96]: T-Strobe that keeps global transactions whole; strong, needs quiescence.

A global transaction has a part at each of several sources. Its parts are handled as they come, each
like a transaction of T-Strobe, deletions first and one query for the insertions. Only the condition
for applying AL has a second half:

    UQS empty, and no global transaction received in part
        AL is applied to MV, in its order and without duplicates, as one change

Without it a reader would see the changes of a transaction at one source and not those at the other.

Assumptions as in strobe.py (all keys shown; FIFO), and that all parts of a global transaction
arrive eventually: nothing is shown before.

Deviations: whether a part is missing is not looked up in a table of global transactions. The driver
delivers a part, and everything after it from the same source, once the others are here
(holdback.py); so this file asks whether any received update is still without a position.
"""

from collections.abc import Callable
from typing import TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import Install, Work
from protocols.maintenance.t_strobe import TStrobe
from protocols.views.view import View

D = TypeVar("D", bound=Delta)


class GStrobe(TStrobe[D]):
    """The protocol over one view and one mailbox."""

    def __init__(self, view: View, mailbox: Mailbox[D], contents: Callable[[], D]) -> None:
        super().__init__(view, mailbox, contents)
        #: The number of the next arrival to handle.
        self._next = mailbox.first_arrival

    def begin(self) -> Work[D] | None:
        """Handles a part as soon as it is received; after a delivery, installs if all is quiet."""
        arrival = self._mailbox.arrival(self._next)
        if arrival is not None:
            self._next += 1
            source, version = arrival
            changes = (
                (atom, self._mailbox.published(atom.relation, version))
                for atom in self._view.atoms
                if atom.relation.source == source
            )
            changed = [(atom, change) for atom, change in changes if change is not None]
            return self._transaction(changed, self._mailbox.last_position + 1)
        installs = self._when_quiet()
        return _at_once(installs) if installs else None

    def _when_quiet(self) -> list[Install[D]]:
        all_taken = self._mailbox.arrival(self._next) is None
        if self._unanswered or self._mailbox.holds_parts() or not all_taken:
            return []
        return self._installs(self._mailbox.last_position)


def _at_once(installs: list[Install[D]]) -> Work[D]:
    """A piece of work that asks nothing."""
    yield from ()
    return installs
