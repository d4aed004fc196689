"""Builds a copy of a relation while the views that read it run on."""

from collections.abc import Callable
from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.copies import Copy
from protocols.exchange.correction import at_cut
from protocols.exchange.driver import Driver
from protocols.exchange.mailbox import Mailbox
from protocols.exchange.maintained import WantedAnswer
from protocols.exchange.questions import Answer, Page, Query, Snapshot
from protocols.views.catalog import Relation

D = TypeVar("D", bound=Delta)


class Copying(Generic[D]):
    """Reads a relation page by page, as of the version where it began; then adds the copy.

    A relation without a key has no pages: it comes in one answer.
    """

    fifo = False

    def __init__(
        self,
        driver: Driver[D],
        relation: Relation,
        limit: int,
        told: Callable[[int, bool], None],
    ) -> None:
        """`told` is called after each page: rows so far, and whether it was the last page."""
        self._driver = driver
        self._relation = relation
        self._limit = limit
        self._told = told
        received = driver.received
        #: Keeps the log from here on until the copy is complete.
        self.mailbox = Mailbox(received, {relation.source: received.received(relation.source)})
        self._rows: D | None = None
        self._unsent = [self._page(None)]
        driver.asking.append(self)

    def _page(self, after: tuple[object, ...] | None) -> WantedAnswer[D]:
        page = Page(after, self._limit) if self._relation.key else None
        return WantedAnswer(self, Query(self._relation, self._relation.column_names, page=page))

    @property
    def unsent(self) -> int:
        """The number of questions that have not been sent."""
        return len(self._unsent)

    def take_unsent(self) -> list[WantedAnswer[D]]:
        """The question for the next page, unless it has been sent."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def ask_again(self, wanted: WantedAnswer[D]) -> None:
        """Asks a question again whose answer cannot be used."""
        self._unsent.append(wanted)

    def hand_over(self, wanted: WantedAnswer[D], _answer: Answer[D], found: Snapshot[D]) -> None:
        """Takes in a page; after the last one the copy is complete."""
        assert isinstance(wanted.question, Query)
        rows = at_cut(self.mailbox, wanted.question, found, self.mailbox.start)
        self._rows = rows if self._rows is None else self._rows.plus(rows)
        if found.last_key is not None:
            self._unsent.append(self._page(found.last_key))
        else:
            self._stands(self._rows.consolidated())
        self._told(self._rows.size, found.last_key is None)

    def _stands(self, rows: D) -> None:
        driver, source = self._driver, self._relation.source
        driver.asking.remove(self)
        driver.router.add(Copy(self._relation, driver.received, rows, self.mailbox.base(source)))
        driver.received.left_by(self.mailbox)
