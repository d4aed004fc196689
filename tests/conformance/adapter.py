"""What the suite has to be told about an adapter: its databases, and what can happen to them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sources.port import Source
from sources.transaction import Transaction
from tests.conformance.committed import Committed
from tests.conformance.story import Story, Typed


class Database(Protocol):
    """A database behind the port: it commits, publishes its commits and answers questions.

    It begins with the rows of its story, publishing and answering.
    """

    #: The adapter's view of it, which is under test.
    source: Source
    story: Story
    bootstrap: str
    #: Whether a question waits for something in the topic.
    is_asked_through_its_topic: bool

    @property
    def committed(self) -> Sequence[Committed]:
        """What was committed, in the order of versions: the first is version 1."""
        ...

    def commit(self, transaction: Transaction) -> None:
        """Commits a transaction that changes something; several threads may commit."""
        ...

    def settle(self) -> None:
        """Returns when everything committed stands in the topics, and the source knows it."""
        ...

    def version_of(self, record: bytes) -> int | None:
        """The version to which a record of its topics belongs; None if it belongs to none."""
        ...

    def publish(self, partitions: int | None = None) -> None:
        """Publishes what its topics lack, into so many partitions (at first the adapter's)."""
        ...

    def stop_publishing(self) -> None:
        """From now on commits stay unpublished."""
        ...

    def answer(self) -> None:
        """Answers again, at the same address."""
        ...

    def stop_answering(self) -> None:
        """From now on nobody listens at its address."""
        ...

    def back_up(self) -> None:
        """Makes a copy of what it holds now."""
        ...

    def restore(self) -> None:
        """Becomes the copy; its topics stay as they are, and it does not publish."""
        ...

    def reset(self) -> None:
        """Becomes a new database with the rows of its story; its topics stay as they are, and it
        does not publish."""
        ...


class Adapter(Protocol):
    """A kind of sources."""

    #: The number of partitions in which its databases publish.
    partitions: int
    #: Its relations have all kinds of keys; or they are those with a key for each relation.
    story: Story
    #: Whether its statistics are about all columns, or about those with an index only.
    counts_all_columns: bool
    #: Whether its sources answer joint questions.
    joins: bool
    #: Whether its transactions may be parts of global ones.
    has_parts: bool
    #: Whether its records have the versions; else they are counted, from a token on.
    has_versions: bool
    #: Whether it publishes its whole history again into a new topic, in any number of partitions.
    publishes_again: bool
    #: Its types, with values.
    types: Typed

    def may_go_on(self, values: Sequence[bytes]) -> Sequence[int]:
        """The places among a partition's records at which a killed publisher may go on."""
        ...

    def made(self, story: Story) -> AbstractContextManager[Database]:
        """A new database with these relations and rows, until the context ends."""
        ...
