"""An adapter under test, and a history that most rules look at."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Relation
from sources.partitions import Partition, Token, more_in, offsets_in
from sources.port import Source
from tests.conformance.adapter import Adapter, Database
from tests.conformance.reading import Log, Reading, beginning, log_of
from tests.conformance.story import NAME, Life

#: The sizes of the transactions of the history, and the places of the parts of global ones.
_SIZES = (1, 3, 1, 14, 2, 5, 1, 1, 4, 2, 3, 1)
_PARTS = (2, 5, 6)


@dataclass(frozen=True)
class Told:
    """A published history: the database, and the records in its partitions."""

    database: Database
    log: Log
    relations: tuple[Relation, ...]
    adapter: Adapter

    @property
    def source(self) -> Source:
        return self.database.source

    @property
    def last(self) -> int:
        """The last version."""
        return len(self.database.committed)

    @property
    def ends(self) -> dict[Partition, int]:
        """The offset after the last record of each partition."""
        return {partition: each[-1][0] + 1 for partition, each in self.log.items()}

    @cached_property
    def versions(self) -> dict[tuple[Partition, int], int]:
        """(partition, offset) → the version of the record there, as its adapter says."""
        return {
            (partition, offset): version
            for partition, each in self.log.items()
            for offset, value in each
            if (version := self.database.version_of(value)) is not None
        }

    def reading(self) -> Reading:
        """A reading from the beginning."""
        return Reading(self.source, self.relations, beginning(self.log))

    def reading_after(self, version: int, token: Token) -> Reading:
        """A reading from a token on."""
        offsets = offsets_in(token, self.log)
        assert offsets is not None, f"the token {token} is about other partitions"
        more = more_in(token, self.log)
        return Reading(self.source, self.relations, offsets, version, more=more)


class Stage:
    """An adapter, with databases that live until it is closed."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self._stack = ExitStack()

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def told(self) -> Told:
        """A history with small and large transactions and parts of global ones.

        Its last versions have records in all partitions.
        """
        story = self.adapter.story
        database, life = self._stack.enter_context(self.adapter.made(story)), Life(story, 1)
        for number, size in enumerate(_SIZES, 1):
            is_part = number in _PARTS and self.adapter.has_parts
            part = GlobalPart(f"g{number}", frozenset({NAME, "t"})) if is_part else None
            database.commit(life.transaction(size, part))
        for _ in self._until_all_partitions(database):
            database.commit(life.transaction(1))
        return Told(database, log_of(database), tuple(story.catalog), self.adapter)

    def _until_all_partitions(self, database: Database) -> Iterator[None]:
        """Once more for as long as a partition lacks a record of the last versions."""
        late = len(_SIZES)
        while True:
            yield
            database.settle()
            log = log_of(database)
            versions = [[database.version_of(v) or 0 for _, v in each] for each in log.values()]
            if min(max(each, default=0) for each in versions) > late:
                return
