"""The simulated sources: a DuckDB file with its query server and its publisher, in this process."""

import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import orjson

from sources.kafka import Kafka
from sources.port import Source
from sources.simulated.database import SourceDatabase
from sources.simulated.publisher import Publisher
from sources.simulated.queryserver import Endpoint, QueryServer
from sources.simulated.source import SimulatedSource
from sources.transaction import Transaction
from sources.wire.client import Limits, SourceClient
from tests.conformance.committed import Committed
from tests.conformance.story import NAME, SHOPS, VALUES, Story, typed
from tests.harness.waiting import eventually

_numbers = itertools.count()


class Simulated:
    """Simulated sources with so many partitions, read by this adapter."""

    story, counts_all_columns = SHOPS, True
    joins = has_parts = has_versions = publishes_again = True
    types = typed(VALUES)

    def __init__(
        self, bootstrap: str, partitions: int, kind: type[SimulatedSource] = SimulatedSource
    ) -> None:
        self.partitions = partitions
        self._bootstrap = bootstrap
        self.kind = kind

    def may_go_on(self, values: Sequence[bytes]) -> Sequence[int]:
        return range(len(values) + 1)

    @contextmanager
    def made(self, story: Story) -> Iterator["SimulatedDatabase"]:
        # The suite waits for the watermark, which otherwise moves only once a second.
        often = mock.patch("sources.simulated.publisher._MARK_EVERY", 0.02)
        with often, tempfile.TemporaryDirectory() as directory:
            topic = f"conformance-{os.getpid()}-{next(_numbers)}"
            made = SimulatedDatabase(Path(directory), story, self._bootstrap, topic, self)
            try:
                yield made
            finally:
                made.close()


class SimulatedDatabase:
    """One of them, and what was committed to it."""

    is_asked_through_its_topic = False

    source: Source

    def __init__(
        self, directory: Path, story: Story, bootstrap: str, topic: str, adapter: Simulated
    ) -> None:
        self.bootstrap = bootstrap
        self._file = directory / "held.duckdb"
        self.story, self._topic, self._partitions = story, topic, adapter.partitions
        self._committed: list[Committed] = []
        self._backed_up: list[Committed] = []
        self._writing = threading.Lock()
        self._publisher: Publisher | None = None
        self._create()
        self._server: QueryServer | None = QueryServer(self._database, topic=topic)
        self._port = int(self._server.address.rpartition(":")[2])
        limits = Limits(seconds=5.0)
        client = SourceClient(self._server.address, source=NAME, limits=limits)
        self.source = adapter.kind(NAME, [topic], client)
        self.publish()

    def _create(self) -> None:
        rows = {name: self.story.frame(name) for name in self.story.rows}
        self._database = SourceDatabase.create(
            self._file, NAME, self.story.catalog, rows, indexes=self.story.indexes
        )

    @property
    def committed(self) -> Sequence[Committed]:
        return self._committed

    def commit(self, transaction: Transaction) -> None:
        with self._writing:
            since = time.time_ns() // 1_000_000
            version = self._database.commit(transaction)
            until = time.time_ns() // 1_000_000
            self._committed.append(Committed(transaction, since, until))
            assert version == len(self._committed)

    def settle(self) -> None:
        publisher = self._publisher
        assert publisher is not None

        def is_published() -> bool:
            if publisher.error is not None:
                raise publisher.error
            return self._database.published == self._database.version

        eventually(is_published, "all is published")

    def version_of(self, record: bytes) -> int:
        return int(orjson.loads(record)["source"]["version"])

    def publish(self, partitions: int | None = None) -> None:
        self.stop_publishing()
        self._partitions = partitions or self._partitions
        self._publisher = Publisher(
            self._database, Kafka(self.bootstrap), self._topic, partitions=self._partitions
        )
        self._publisher.start()

    def stop_publishing(self) -> None:
        if self._publisher is not None:
            self._publisher.stop()
            self._publisher = None

    def answer(self) -> None:
        self._server = QueryServer(self._database, Endpoint(port=self._port), self._topic)

    def stop_answering(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def back_up(self) -> None:
        self._end()
        shutil.copy(self._file, self._copy)
        self._backed_up = list(self._committed)
        self._database = SourceDatabase.open(self._file)
        self.answer()
        self.publish()

    def restore(self) -> None:
        self._end()
        shutil.copy(self._copy, self._file)
        self._committed = list(self._backed_up)
        self._database = SourceDatabase.open(self._file)
        self.answer()

    def reset(self) -> None:
        self._end()
        self._file.unlink()
        self._committed = []
        self._create()
        self.answer()

    @property
    def _copy(self) -> Path:
        return self._file.with_suffix(".copy")

    def _end(self) -> None:
        self.stop_publishing()
        self.stop_answering()
        self._database.close()

    def close(self) -> None:
        """Ends all of it."""
        self._end()
        self.source.close()
