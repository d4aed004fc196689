"""Who answers: the source of a relation, or a copy of it that is kept here.

A copy needs no protocol of its own. It is an answer to the question for all rows of its relation,
at a known version, that came before anybody asked; a question about the relation is a restriction
of it. What lies between that version and the cut that a protocol needs is taken out or put in like
the error of any other answer (correction.py), out of the log of updates that is there anyway. So a
copy need not be brought up to date before it answers, and nothing that asks knows who has answered.

    question ─> Router ─┬─> the relation has a copy: restricted, at the copy's version
                        └─> it has none:             its source, which is asked as ever
"""

from typing import Generic, TypeVar

from protocols.algebra.delta import Delta
from protocols.exchange.correction import restricted
from protocols.exchange.inclusion import Prefix
from protocols.exchange.mailbox import Received
from protocols.exchange.questions import Answer, Query, Question
from protocols.views.catalog import Relation

D = TypeVar("D", bound=Delta)

#: The late changes are merged into the rows when they are more than one in so many of these.
_LATE = 8


class Copy(Generic[D]):
    """All rows of a relation at one version of its source."""

    def __init__(self, relation: Relation, received: Received[D], rows: D, version: int) -> None:
        """Everything behind the version is received, or will be."""
        self.relation = relation
        self._received = received
        self._rows = rows
        #: Changes that are not merged into the rows.
        self._late: D | None = None
        self._version = version
        received.read_by(self)

    @property
    def version(self) -> int:
        """The version of its source that it is at."""
        return self._version

    @property
    def rows(self) -> D:
        """Its rows; equal ones may stand there more than once, with opposite counts."""
        return self._rows if self._late is None else self._rows.plus(self._late)

    def answer(self, query: Query[D]) -> Answer[D]:
        """What the source would have answered at the copy's version."""
        rows = restricted(self._rows, query)
        if self._late is not None:
            rows = rows.plus(restricted(self._late, query))
        return Answer(rows, Prefix(self._version), copied=True)

    def advance(self) -> None:
        """Takes in what has been received since; the log need not keep it for this copy."""
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
        """Whether it needs the log of a source."""
        return source == self.relation.source

    def base(self, _source: str) -> int:
        """It corrects what it holds by what comes behind its version."""
        return self._version


class Router(Generic[D]):
    """Relation → the copy that answers, where there is one."""

    def __init__(self) -> None:
        self.copies: dict[Relation, Copy[D]] = {}

    def add(self, copy: Copy[D]) -> None:
        """From now on it answers for its source."""
        self.copies[copy.relation] = copy

    def answer(self, question: Question[D]) -> Answer[D] | None:
        """The answer of a copy; None if the source has to be asked.

        Pages are asked for while something is built, and joins by protocols for a single source.
        """
        if not isinstance(question, Query) or question.page is not None:
            return None
        copy = self.copies.get(question.relation)
        return None if copy is None else copy.answer(question)

    def advance(self) -> None:
        """Brings all copies up to what has been received."""
        for copy in self.copies.values():
            copy.advance()
