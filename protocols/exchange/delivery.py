"""The way of received transactions to their positions.

    received ─> in line, by time of commit (order.py) ─> hold-back ─> positions in the mailbox

Parts of global transactions wait in line, and what is behind them, until they are complete. For
protocols that count on FIFO a transaction also passes a channel when it gets in line: the protocol
sees of each source no more than that, as if updates and answers came to it through one pipe.
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
    """What is known of received transactions besides their changes."""

    def times(self, source: str, after: int, upto: int) -> Numbers:
        """When the versions in (after, upto] were committed, by the source's clock."""
        ...

    def sizes(self, source: str, after: int, upto: int) -> Numbers:
        """How much each of the versions in (after, upto] is to sweep."""
        ...

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        """The global transaction that a version is a part of."""
        ...

    def has_parts(self, source: str, after: int, upto: int) -> bool:
        """Whether any of the versions in (after, upto] is a part of a global transaction."""
        ...


class Channel(Generic[D]):
    """Hands a FIFO protocol its updates one by one, out of what is received.

    The protocol has a mailbox of its own, which receives a transaction when it passes here.
    """

    def __init__(
        self,
        received: Received[D],
        mailbox: Mailbox[D],
        changes: Callable[[Relation, D, int], Any],
    ) -> None:
        """`changes` makes of what a version changes in a relation what a log appends."""
        self._received = received
        self._mailbox = mailbox
        self._changes = changes
        received.read_by(self)

    def pass_on(self, source: str) -> None:
        """The next transaction of the source goes to the mailbox."""
        version = self._mailbox.received(source) + 1
        changes = {}
        for relation in self._mailbox.relations:
            if relation.source != source:
                continue
            found = self._received.logs[relation].between(version - 1, version)
            if found is not None:
                changes[relation] = self._changes(relation, found, version)
        self._mailbox.receive(source, version, changes)

    def reads(self, source: str) -> bool:
        """Whether the protocol reads anything of a source."""
        return self._mailbox.reads(source)

    def base(self, source: str) -> int:
        """What has passed is not needed any more."""
        return self._mailbox.received(source)


class Delivery(Generic[D]):
    """Gives the transactions of one view their positions, in the order in which they line up."""

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
        #: Parts of global transactions, and what is behind them.
        self.held = HoldBack(sources)
        #: Source → the last version that got in line. A view that is further than others in its job
        #: stands at versions that have not been received yet.
        self.enqueued = {source: mailbox.base(source) for source in sources}
        #: Called when something has happened that a FIFO protocol may react to.
        self.happened: Callable[[], None] = _nothing

    @property
    def waiting(self) -> bool:
        """Whether a part of a global transaction waits for another one."""
        return self.held.waiting()

    def part_of(self, source: str, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        return self._transactions.part_of(source, version)

    def enqueue_upto(self, ends: Mapping[str, int], most: int | None = None) -> bool:
        """Lines up received transactions, per source up to a version, by their time of commit.

        At most as many as have the size `most` together, or a single one that is larger; returns
        whether more of them wait.
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
        """Received transactions in this order: of `sources[which]` the version."""
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
        """The next received transaction of a source, which may complete what waits."""
        if version != self.enqueued[source] + 1:
            raise ProtocolBug(f"{source}: {version} was to get in line behind {self.enqueued}")
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
    """Protocols without FIFO begin when a whole batch is delivered."""
