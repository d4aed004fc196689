"""What a protocol may ask of a source, and what comes back.

The question of almost every protocol (`Query`) is: the rows of one relation that satisfy a
condition and match a set of keys, *now*. No joins, no outer joins, no DISTINCT, no aggregates: none
of these is linear in the relation, and an error inside them could not be taken out again
(algorithms.md, section 5). An answer says which of the source's transactions it contains; that is
what makes compensation exact whatever way answers and updates travel.

The ECA family comes from a world with one source that evaluates whole views (`Joint`). Its error
terms are taken out by further questions to the same source, never here.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from protocols.algebra.delta import Delta
from protocols.algebra.expressions import Condition
from protocols.exchange.inclusion import Inclusion, Prefix
from protocols.exchange.stretch import Key
from protocols.views.catalog import Relation
from protocols.views.view import View

D = TypeVar("D", bound=Delta)


@dataclass(frozen=True)
class Page:
    """A stretch of a keyed relation in key order: the first `limit` rows after a key."""

    after: Key | None
    limit: int


@dataclass(frozen=True)
class Query(Generic[D]):
    """One question to one source: `SELECT columns FROM relation WHERE condition AND keys match`."""

    relation: Relation
    columns: tuple[str, ...]
    condition: Condition | None = None
    #: Key sets, each over its own columns of the relation; a row has to match one of them.
    #: None asks for all rows that satisfy the condition.
    keys: tuple[D, ...] | None = None
    page: Page | None = None
    #: For whom it is asked: the position of the update (0 for the first state of the view).
    position: int = 0

    @property
    def source(self) -> str:
        return self.relation.source


@dataclass(frozen=True)
class Joint(Generic[D]):
    """A sum of joins over relations of one source, evaluated by it in a single state.

    Each term is the view with some atoms replaced by given rows: atom index → rows with qualified
    columns, their conditions applied, signs in the counts. The answer has the columns of the view.
    """

    view: View
    terms: tuple[Mapping[int, D], ...]
    position: int = 0

    @property
    def source(self) -> str:
        return self.view.sources[0]


@dataclass(frozen=True)
class Answer(Generic[D]):
    """The rows (with their counts) as a source sends them, and what they contain of its history."""

    rows: D
    inclusion: Inclusion
    #: For a page: the key of its last row, if more rows may follow.
    last_key: Key | None = None
    #: Of the source's history up to the inclusion's version; 0 if it says nothing of it.
    digest: int = 0
    #: Size of question and answer on the wire, where there was one.
    bytes_sent: int = 0
    bytes_received: int = 0
    #: A source in partitions reads each at its own moment: (which rows, what these contain),
    #: disjoint and together all rows. `inclusion` is then that of the newest. Empty: one for all.
    parts: tuple[tuple[Condition, Prefix], ...] = ()
    #: Whether a copy that is kept here has answered for the source (copies.py).
    copied: bool = False

    @property
    def newest(self) -> int:
        """The last transaction that has to be known to use the answer."""
        return max((part.newest for _, part in self.parts), default=self.inclusion.newest)


@dataclass(frozen=True)
class Snapshot(Generic[D]):
    """The rows that a question asks for, as they were at one version of the source."""

    rows: D
    version: int
    #: As in the answer that it was made of.
    last_key: Key | None = None


Question: TypeAlias = Query[D] | Joint[D]
T = TypeVar("T")
#: A protocol at work. It yields a round of questions, which go out together, is sent a snapshot for
#: each in the same order, and returns its result. Whoever drives it makes snapshots of answers
#: (`correction.snapshot`) when the mailbox holds what these contain.
Maintenance: TypeAlias = Generator[list[Question[D]], list[Snapshot[D]], T]
