"""The questions of protocols to a source, and their answers.

Almost every protocol asks one kind of question (`Query`): the rows of one relation that satisfy a
condition and match a set of keys, *now*. No joins, no outer joins, no DISTINCT, no aggregates: none
of these is linear in the relation, and an error inside them could not be taken out again
(algorithms.md, section 5). An answer says which of the source's transactions it contains; that
makes compensation exact, however answers and updates travel.

The ECA family assumes one source that evaluates whole views (`Joint`). Its error terms are taken
out by further questions to the same source, never here.
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
    #: None: all rows that satisfy the condition.
    keys: tuple[D, ...] | None = None
    page: Page | None = None
    #: The position of the update that it is asked for (0 for the first state of the view).
    position: int = 0

    @property
    def source(self) -> str:
        return self.relation.source


@dataclass(frozen=True)
class Joint(Generic[D]):
    """A sum of joins over relations of one source, which evaluates it in a single state.

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
    """The rows (with their counts) as a source sends them, and their inclusion."""

    rows: D
    inclusion: Inclusion
    #: For a page: the key of its last row, if more rows may follow.
    last_key: Key | None = None
    #: Digest of the source's history up to the inclusion's version; 0 if the source sends none.
    digest: int = 0
    #: Size of question and answer on the wire; 0 without a wire.
    bytes_sent: int = 0
    bytes_received: int = 0
    #: A partitioned source reads each partition at its own moment: (condition on the rows, their
    #: inclusion), disjoint and together all rows. `inclusion` is then that of the newest part.
    #: Empty: one inclusion for all rows.
    parts: tuple[tuple[Condition, Prefix], ...] = ()
    #: Whether a copy that is kept here has answered instead of the source (copies.py).
    copied: bool = False

    @property
    def newest(self) -> int:
        """The last transaction that has to be known to use the answer."""
        return max((part.newest for _, part in self.parts), default=self.inclusion.newest)


@dataclass(frozen=True)
class Snapshot(Generic[D]):
    """The rows that a question asks for, at one version of the source."""

    rows: D
    version: int
    #: As in the answer that it was made from.
    last_key: Key | None = None


Question: TypeAlias = Query[D] | Joint[D]
T = TypeVar("T")
#: A running protocol. It yields a round of questions, which go out together, is sent a snapshot for
#: each in the same order, and returns its result. The driver turns answers into snapshots
#: (`correction.snapshot`) when the mailbox holds the updates that they contain.
Maintenance: TypeAlias = Generator[list[Question[D]], list[Snapshot[D]], T]
