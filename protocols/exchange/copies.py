"""Routes a question to the source of a relation, or to a copy of the relation that is kept here.

A copy needs no protocol of its own. It is an answer, given in advance, to the question for all rows
of its relation at a known version; a question about the relation is a restriction of it. The
updates between that version and the cut that a protocol needs are removed or added like the error
of any other answer (correction.py), from the log of updates that exists anyway. So a copy need not
be brought up to date before it answers, and no asker knows whether source or copy has answered.

    question ─> Router ─┬─> the relation has a copy: restricted, at the copy's version
                        └─> it has none:             its source is asked
"""

from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.correction import restricted
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Answer, Query, Question
from protocols.views.catalog import Relation

D = TypeVar("D", bound=Delta)

#: Late changes are merged into the rows when there is more than one per so many rows.
_LATE = 8


class Copy(Generic[D]):
    """All rows of a relation at one version of its source."""

    def __init__(self, relation: Relation, received: Received[D], rows: D, version: int) -> None:
        """All updates after the version are in `received`, or will be."""
        self.relation = relation
        self._received = received
        self._rows = rows
        #: Changes that are not merged into the rows yet.
        self._late: D | None = None
        self._version = version
        received.read_by(self)

    @property
    def version(self) -> int:
        """The version of the source that it shows."""
        return self._version

    @property
    def rows(self) -> D:
        """Its rows; equal ones may occur more than once, with opposite counts."""
        return self._rows if self._late is None else self._rows.plus(self._late)

    def answer(self, query: Query[D]) -> Answer[D]:
        """The answer that the source would have given at the copy's version."""
        rows = restricted(self._rows, query)
        if self._late is not None:
            rows = rows.plus(restricted(self._late, query))
        return Answer(rows, Prefix(self._version), copied=True)

    def advance(self) -> None:
        """Takes in all updates received since; the log need not keep them for this copy."""
        upto = self._received.received(self.relation.source)
        log = self._received.logs[self.relation]
        change = log.between(self._version, upto) if upto > self._version else None
        self._version = max(upto, self._version)
        if change is None:
            return
        self._late = change if self._late is None else self._late.plus(change)
        if self._late.size * _LATE > self._rows.size:
            self._rows, self._late = self._rows.plus(self._late).consolidated(), None

    def reads(self, source: str) -> bool:
        """Whether it reads the log of a source."""
        return source == self.relation.source

    def base(self, _source: str) -> int:
        """Its version: it needs the updates after it to correct its rows."""
        return self._version


class Router(Generic[D]):
    """Answers questions from copies, for relations that have one."""

    def __init__(self) -> None:
        self.copies: dict[Relation, Copy[D]] = {}

    def add(self, copy: Copy[D]) -> None:
        """From now on the copy answers instead of its source."""
        self.copies[copy.relation] = copy

    def answer(self, question: Question[D]) -> Answer[D] | None:
        """The answer of a copy; None if the source has to be asked.

        The source gets all questions for pages (while a copy or a first state is built) and for
        joins (by protocols for a single source).
        """
        if not isinstance(question, Query) or question.page is not None:
            return None
        copy = self.copies.get(question.relation)
        return None if copy is None else copy.answer(question)

    def advance(self) -> None:
        """Brings all copies up to date with the received updates."""
        for copy in self.copies.values():
            copy.advance()
