"""The path of received transactions to their positions.

    received ─> enqueued, by time of commit (order.py) ─> hold-back ─> positions in the mailbox

Parts of global transactions wait in the queue, with everything after them, until they are complete.
For protocols that rely on FIFO a transaction also passes a channel when it is enqueued. The
protocol sees only these transactions of a source, as if updates and answers came through one pipe.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from protocols.algebra.delta import Delta
from protocols.errors import ProtocolBug, SourceViolation, WrongUse
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart, HoldBack
from protocols.exchange.mailbox import Mailbox, Received
from protocols.exchange.order import positions_of
from protocols.views.catalog import Relation

D = TypeVar("D", bound=Delta)


class Transactions(Protocol):
    """The properties of received transactions besides their changes."""

    def times(self, source: str, after: int, upto: int) -> Numbers:
        """The commit times of the versions in (after, upto], by the source's clock."""
        ...

    def sizes(self, source: str, after: int, upto: int) -> Numbers:
        """The size of each of the versions in (after, upto], as work for a sweep."""
        ...

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        """The global transaction that a version belongs to; None if it is a local one."""
        ...

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        """Whether any of the versions in (after, upto] is a part of a global transaction."""
        ...


class Channel(Generic[D]):
    """Passes received updates to a FIFO protocol one by one.

    The protocol has a mailbox of its own, which receives a transaction when it passes here.
    """

    def __init__(
        self,
        received: Received[D],
        mailbox: Mailbox[D],
        changes: Callable[[Relation, D, int], Any],
    ) -> None:
        """`changes` converts a version's change of a relation to the form that a log appends."""
        self._received = received
        self._mailbox = mailbox
        self._changes = changes
        received.read_by(self)

    def pass_on(self, source: str) -> None:
        """Passes the next transaction of the source to the mailbox."""
        version = self._mailbox.received(source) + 1
        changes = {}
        for relation in self._mailbox.relations:
            if relation.source != source:
                continue
            found = self._received.logs[relation].between(version - 1, version)
            if found is not None:
                changes[relation] = self._changes(relation, found, version)
        self._mailbox.receive(source, version, changes)

    def leave(self) -> None:
        """From now on no received update is kept for it."""
        self._received.left_by(self)

    def reads(self, source: str) -> bool:
        """Whether the protocol reads anything of a source."""
        return self._mailbox.reads(source)

    def base(self, source: str) -> int:
        """The last version that has passed; up to there nothing is needed any more."""
        return self._mailbox.received(source)


class Delivery(Generic[D]):
    """Gives the transactions of one view their positions, in the order of the queue."""

    def __init__(
        self,
        mailbox: Mailbox[D],
        sources: Collection[str],
        transactions: Transactions,
        refuse_global: Callable[[str], None],
        channel: Channel[D] | None = None,
    ) -> None:
        """`refuse_global` raises WrongUse if the protocol cannot keep global transactions whole."""
        self._mailbox = mailbox
        self._sources = frozenset(sources)
        self._transactions = transactions
        self._refuse_global = refuse_global
        self._channel = channel
        #: Parts of global transactions, and the transactions after them.
        self.held = HoldBack(sources)
        #: Source → the last version that was enqueued. A view that is ahead of others in its job
        #: stands at versions that have not been received yet.
        self.enqueued = {source: mailbox.base(source) for source in sources}
        #: Called after each event that a FIFO protocol may react to.
        self.happened: Callable[[], None] = _nothing

    def leave(self) -> None:
        """Delivers nothing any more: no received update is kept for the view."""
        (self._mailbox if self._channel is None else self._channel).leave()

    @property
    def waiting(self) -> bool:
        """Whether a part of a global transaction waits for another one."""
        return self.held.waiting()

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        """The global transaction that a received version belongs to; None if it is a local one."""
        return self._transactions.part_of(source, version)

    def enqueue_upto(self, ends: Mapping[str, int], most: int | None = None) -> bool:
        """Enqueues received transactions, per source up to a version, by their time of commit.

        It stops before their total size exceeds `most`, but enqueues at least one. Returns whether
        more of them wait.
        """
        batch = {
            source: (self.enqueued[source], max(self.enqueued[source], ends[source]))
            for source in ends.keys() & self._sources
        }
        if not any(upto > after for after, upto in batch.values()):
            return False
        sources, which, version = positions_of(batch, self._transactions.times)
        fit = len(version) if most is None else self._fitting(most, sources, which, version)
        self.enqueue_each(sources, which[:fit], version[:fit])
        return fit < len(version)

    def _fitting(self, most: int, sources: Sequence[str], which: Numbers, version: Numbers) -> int:
        sizes = np.zeros(len(version), np.int64)
        for number, source in enumerate(sources):
            mine = which == number
            if mine.any():
                own = version[mine]
                sizes[mine] = self._transactions.sizes(source, int(own[0]) - 1, int(own[-1]))
        return max(1, int(np.searchsorted(np.cumsum(sizes), most, side="right")))

    def enqueue_each(self, sources: Sequence[str], which: Numbers, version: Numbers) -> None:
        """Enqueues received transactions in this order: each a version of `sources[which]`."""
        ends = {s: int(version[which == n][-1]) for n, s in enumerate(sources) if n in which}
        plain = self._channel is None and not self.waiting
        if plain and not any(
            self._transactions.has_parts(source, self.enqueued[source], end)
            for source, end in ends.items()
        ):
            self._mailbox.deliver_each(sources, which, version)
            self.enqueued |= ends
            return
        for number, each in zip(which.tolist(), version.tolist(), strict=True):
            self.enqueue(sources[number], each)

    def enqueue(self, source: str, version: int) -> None:
        """Enqueues the next received transaction of a source, which may complete waiting groups."""
        if version != self.enqueued[source] + 1:
            raise ProtocolBug(f"{source}: {version} was to be enqueued after {self.enqueued}")
        part = self.part_of(source, version)
        if part is not None and len(part.participants & self._sources) > 1:
            self._refuse(part, source, version)
        self.enqueued[source] = version
        self.held.arrived(source, version, part)
        if self._channel is not None:
            self._channel.pass_on(source)
            self.happened()
        while groups := self.held.ready():
            self.held.take(groups[0])
            self._mailbox.deliver(*groups[0])
            self.happened()

    def _refuse(self, part: GlobalPart, source: str, version: int) -> None:
        try:
            self._refuse_global(part.id)
        except WrongUse as error:
            raise SourceViolation(f"source {source}, version {version}: {error}") from None


def _nothing() -> None:
    """Ignores an event: protocols without FIFO begin when a whole batch is delivered."""
