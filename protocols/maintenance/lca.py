"""LCA, the lazy compensating algorithm [ZGHW95]: complete consistency for one source.

ECA mixes the corrections of many updates into one query, so only the sum of all answers means
anything. LCA asks the same terms separately: a compensating term belongs to the update whose query
it corrects, not to the one that made it necessary. The answers to all queries that update i owns
then add up to the change from the view after i - 1 to the view after i. These changes are installed
one after the other, each when it is complete and all earlier ones are installed.

It relies on the assumptions of ECA (see eca.py): one source, one FIFO channel, a query evaluated in
a single state. It needs no pause in the stream, and pays with queries: every update asks one for
itself and one for every earlier update that still waits for an answer.

Deviations from the pseudo-code: transactions, self-joins and local terms as in ECA. There is one
install per position, without a change where the update does not touch the view, so the states are
those of the delivery order.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.protocol import UNBOUNDED, Install, Work
from protocols.exchange.questions import Joint
from protocols.maintenance.eca import SignedTerm, changed_rows, compensating, divided
from protocols.views.partials import total
from protocols.views.view import View

D = TypeVar("D", bound=Delta)


@dataclass
class _Owner(Generic[D]):
    """An update that is not installed yet."""

    position: int
    #: Its own query and those that correct it, while they are unanswered: number → terms.
    unanswered: dict[int, list[SignedTerm[D]]] = field(default_factory=dict)
    #: The answers, and the values of local terms.
    collected: list[D] = field(default_factory=list)

    @property
    def terms(self) -> list[SignedTerm[D]]:
        return [term for query in self.unanswered.values() for term in query]


class Lca(Generic[D]):
    """The protocol over one view and one mailbox."""

    #: Every update begins a piece, whatever is under way.
    width = UNBOUNDED

    def __init__(self, view: View, mailbox: Mailbox[D]) -> None:
        self._view = view
        self._mailbox = mailbox
        #: The position of the last update that was taken in.
        self._seen = mailbox.start
        #: Everything up to `_seen` that is not installed, in the order of delivery.
        self._owners: deque[_Owner[D]] = deque()
        #: Work for the last update; it begins before the next update does.
        self._due: deque[Work[D]] = deque()
        self._queries = 0

    def begin(self) -> Work[D] | None:
        """The next query of the last update; when there is none, the next update."""
        if not self._due and self._seen < self._mailbox.last_position:
            self._seen += 1
            self._update()
        return self._due.popleft() if self._due else None

    def _update(self) -> None:
        """At the source's update U: ask V<U> for itself, and -Q<U> for the owner of each open Q."""
        self._owners.append(_Owner(self._seen))
        changes = changed_rows(self._view, self._mailbox, self._seen)
        for owner in self._owners:
            terms: list[SignedTerm[D]] = []
            for atom, rows in changes:
                terms += compensating([*owner.terms, *terms], atom, rows)
                if owner.position == self._seen:
                    terms.append(SignedTerm({atom.index: rows}))
            self._ask(owner, terms)
        if not self._due:
            self._due.append(self._no_query())

    def _ask(self, owner: _Owner[D], terms: list[SignedTerm[D]]) -> None:
        local, remote = divided(self._view, terms)
        owner.collected += local
        if remote:
            self._queries += 1
            owner.unanswered[self._queries] = remote
            self._due.append(self._answered(owner, self._queries))

    def _answered(self, owner: _Owner[D], number: int) -> Work[D]:
        """At an answer: adds it to its owner, whose change may be complete then."""
        terms = tuple(term.asked for term in owner.unanswered[number])
        (answer,) = yield [Joint(self._view, terms, owner.position)]
        owner.collected.append(answer.rows)
        del owner.unanswered[number]
        return self._in_order()

    def _no_query(self) -> Work[D]:
        yield from ()
        return self._in_order()

    def _in_order(self) -> list[Install[D]]:
        """The installs of all complete owners at the head of the queue, in order."""
        installs = []
        while self._owners and not self._owners[0].unanswered:
            owner = self._owners.popleft()
            installs.append(Install(owner.position, total(owner.collected)))
        return installs
