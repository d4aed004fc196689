"""The port for sources: everything that the warehouse asks of a database that it does not own.

    describe    relations, keys, foreign keys, the version it is at, what its answers contain
    ask         the rows that a question asks for, and the transactions that they contain
    changes     its committed transactions, from the records of its partitions: whole, numbered from
                1 without gaps, each once
    resumed     the token from which the changes after a version are read, after a restart
    statistics  the sizes of its relations

An adapter is a class with these methods; `sources/simulated` has one. tests/conformance holds the
rules that every adapter keeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import polars as pl

from protocols.algebra.frame import Frame
from protocols.errors import SourceViolation
from protocols.exchange.deliveries import Numbers
from protocols.exchange.holdback import GlobalPart
from protocols.exchange.inclusion import Reads
from protocols.exchange.questions import Answer, Question
from protocols.views.catalog import Relation
from protocols.views.statistics import Statistics
from sources.history import UNKNOWN
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Partition, Token

#: A version, and the token after it.
Known: TypeAlias = tuple[int, Token]


@dataclass(frozen=True)
class Description:
    """A source's own account of itself at one moment."""

    source: str
    #: The number of its last committed transaction.
    version: int
    relations: Mapping[str, Relation]
    #: The digest of its history up to that version; `UNKNOWN` if it keeps none.
    digest: int = UNKNOWN
    #: Every transaction up to this one is in its topics.
    published: int = 0
    #: No later transaction, up to `version`, is a part of a global one.
    last_global: int | None = None
    #: What its answers contain.
    reads: Reads = "versions"
    #: The token after its version; None if that is where its partitions end.
    token: Token | None = None
    #: Relation → its columns with an index, for look-ups of a few keys.
    indexes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Relations, and columns as relation.column, that no view can use → the reason.
    left_out: Mapping[str, str] = field(default_factory=dict)


class Receiver(Protocol):
    """The receiver of whole transactions: the mailbox, or something in front of it."""

    def received(self, source: str) -> int:
        """The last version received of a source."""
        ...

    def receive(self, source: str, version: int, changes: Mapping[Relation, pl.DataFrame]) -> None:
        """Takes in the complete transactions of a source up to `version`, in its order."""
        ...


class Changes(Protocol):
    """The changes of one source, from a token on, for a receiver.

    Records arrive at least once and, in each partition, in order. `decode` and `lost` touch nothing
    that `take` changes, so any thread may call them; the rest belongs to one thread.

    A record that cannot be taken (an invalid one, a gap) raises nothing: all records before it are
    good. It is `fault` from then on, nothing more is taken, and the caller raises it when it needs
    a record after it.
    """

    source: str
    #: Partition → its next offset to be taken.
    next: dict[Partition, int]
    fault: SourceViolation | None

    @property
    def confirmed(self) -> int:
        """The last version at which the history was compared with another one and was the same."""
        ...

    def decode(self, partition: Partition, offsets: Numbers, values: pl.Series) -> Any:
        """Decodes consecutive records of a partition, up to the first invalid one."""
        ...

    def lost(self, partition: Partition, loss: SourceViolation) -> Any:
        """Stands for records that a partition has lost; `take` makes them the fault."""
        ...

    def take(self, decoded: Any) -> None:
        """Takes decoded records, and hands the transactions that are whole now to the receiver."""
        ...

    def is_whole_up_to(self, ends: Offsets) -> bool:
        """Whether all transactions with a record below these offsets are received."""
        ...

    def version_up_to(self, ends: Offsets) -> int:
        """The last received version with a record below these offsets."""
        ...

    def token_after(self, version: int) -> Token:
        """The token for reading on after a received version."""
        ...

    def times(self, after: int, upto: int) -> Numbers:
        """The commit times (ms since the epoch) of the received versions in (after, upto]."""
        ...

    def sizes(self, after: int, upto: int) -> Numbers:
        """The numbers of records of the received versions in (after, upto]."""
        ...

    def part_of(self, version: int) -> GlobalPart | None:
        """The global transaction that a received version is a part of."""
        ...

    def has_parts(self, after: int, upto: int) -> bool:
        """Whether a received version in (after, upto] is a part of a global transaction."""
        ...

    def agrees(self, version: int, digest: int) -> bool:
        """Whether the history up to a version can have this digest.

        A version that has not come yet is compared when it comes.
        """
        ...

    def digest_at(self, version: int) -> int:
        """The digest of the history up to a version; `UNKNOWN` if it is not remembered."""
        ...

    def forget(self, version: int) -> None:
        """Drops everything remembered about versions up to this one."""
        ...


class Parts(Protocol):
    """The parts of global transactions in a source's partitions, for the choice of a vector."""

    source: str
    #: The last version that matters; 0 if none does.
    upto: int
    #: The last version that was read.
    read: int
    #: Version → the global transaction that it is a part of.
    parts: dict[int, GlobalPart]
    #: Partition → the offset where the reading begins.
    begin: Offsets
    #: Whether the partitions have lost the source's first records.
    is_cut: bool

    @property
    def is_read(self) -> bool:
        """Whether all parts that matter are known."""
        ...

    def take(self, partition: Partition, records: Sequence[tuple[int, bytes]]) -> None:
        """Takes the next records of a partition, each with its offset."""
        ...

    def token_before(self, version: int) -> Token:
        """The token for reading on from a version that is a part."""
        ...

    def forget(self, version: int) -> None:
        """Drops the parts of versions up to this one."""
        ...


class Source(Protocol):
    """One source."""

    name: str
    #: The topics in which it publishes.
    topics: tuple[str, ...]

    def begin(self, kafka: Kafka, ends: Ends, known: Known | None) -> None:
        """Prepares for questions. Called once, before all else but `close`.

        `known` is the latest version that the lake's views have of it, with its token: a source
        that has no numbers of its own counts on from there.
        """
        ...

    def describe(self, timeout: float = ...) -> Description:
        """Asks for its description; Unreachable if it does not answer in time."""
        ...

    def statistics(self, timeout: float = ...) -> Mapping[str, Statistics]:
        """The sizes of its relations, by name; of those without statistics nothing."""
        ...

    def digests(self, versions: Sequence[int], timeout: float = ...) -> dict[int, int]:
        """Version → digest of its history up to it; `UNKNOWN` where it keeps none."""
        ...

    def ask(self, question: Question[Frame]) -> Answer[Frame]:
        """Asks a question about its present state."""
        ...

    def changes(
        self,
        relations: Sequence[Relation],
        receiver: Receiver,
        offsets: Offsets,
        more: Sequence[int],
        digest: int,
    ) -> Changes:
        """The changes after the receiver's version, whose digest this is, from a token on.

        The token's parts: the offsets, and the numbers that the adapter added.
        """
        ...

    def resumed(self, kafka: Kafka, ends: Ends, version: int, token: Token, digest: int) -> Token:
        """The token for reading on after a version, checked against what the partitions hold.

        SourceViolation if the source has another history, or the partitions lack later changes.
        """
        ...

    def parts(self, kafka: Kafka, ends: Ends, upto: int) -> Parts:
        """The parts of global transactions up to a version, none of them read yet."""
        ...

    def close(self) -> None:
        """Closes its connections."""
        ...
