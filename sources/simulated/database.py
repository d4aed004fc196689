"""A source: an autonomous database that numbers its commits and remembers each one in an outbox.

One DuckDB file holds the relations (schema `relations`) and the source's own state (schema
`source`): the catalog, the version, the digest of its history (history.py), the outbox and the
published version. A commit changes relations, outbox, version and digest in one DuckDB transaction.
That is the whole guarantee: after a crash a version and its records are both there, or neither is.

`creating.py` creates such a file, `opening.py` opens it. A commit is checked by `admission.py`,
which sees only the transactions, then by `replay.py`, which reads the rows that they touch.
"""

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import orjson
import polars as pl

from protocols.errors import SourceViolation, Unreachable, WrongUse
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from sources.envelope import encode_transaction, head_of
from sources.history import UNKNOWN, CommitHistory
from sources.simulated.access import FEW_KEYS
from sources.simulated.admission import admitted
from sources.simulated.creating import create_file
from sources.simulated.indexes import indexed, make_indexes
from sources.simulated.opening import altered, connect, refuse_altered, self_description
from sources.simulated.recent import RecentRecords
from sources.simulated.replay import replayed
from sources.simulated.rows import Records, all_rows, append, outbox_rows, roll_back
from sources.transaction import Transaction


class SourceDatabase:
    """One source's relations, version and outbox. Many threads may read, one commits at a time."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        name, catalog, origin = self_description(path, connection)
        refuse_altered(path, connection, name, catalog)
        self.source: str = name
        self.catalog: Catalog = catalog_from_json(
            {name: {"relations": orjson.loads(catalog)}}, whole=False
        )
        #: How the source was created, for its creator (a workload's name, scale and seed).
        self.origin: dict[str, Any] = orjson.loads(origin)
        self._relations = {relation.name: relation for relation in self.catalog}
        #: Relation → its columns that have an index.
        self.indexes: dict[str, tuple[str, ...]] = indexed(connection, self.catalog)
        #: Only the holder of `_writing` uses this connection.
        self._connection = connection
        self._writing = threading.Lock()
        #: Idle cursors.
        self._cursors: queue.LifoQueue[duckdb.DuckDBPyConnection] = queue.LifoQueue()
        #: The latest records, which the publisher asks for next: it need not read them back.
        self._recent = RecentRecords()
        #: Guards `_recent` and the fields that a commit changes; notified when a commit is durable.
        self._committed = threading.Condition()
        self._version: int
        self._driven: int
        self._digest: int
        self._last_global: int
        self._published: int
        [(self._version, self._driven, self._digest)] = all_rows(
            connection, "SELECT version, driven, digest FROM source.committed"
        )
        #: Distinguishes this source from another one of the same name.
        self.identity: str
        #: The first version whose history is known, and the digest there.
        self._since: int
        self._first_digest: int
        [(self.identity, self._since, self._first_digest)] = all_rows(
            connection, "SELECT identity, since, digest FROM source.history"
        )
        [(self._published,)] = all_rows(connection, "SELECT * FROM source.published")
        [(self._last_global,)] = all_rows(connection, "SELECT last FROM source.globals")

    @classmethod
    def create(
        cls,
        path: Path,
        source: str,
        catalog: Catalog,
        rows: Mapping[str, pl.DataFrame],
        origin: Mapping[str, Any] | None = None,
        indexes: Mapping[str, Sequence[str]] | None = None,
    ) -> "SourceDatabase":
        """Creates a source whose version 0 holds these rows, completely or not at all.

        `indexes` names columns of relations; each gets a separate index.
        """
        create_file(path, source, catalog, rows, origin or {}, indexes or {})
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "SourceDatabase":
        """Opens the source in this file; the file stays locked until `close`."""
        connection = connect(path)
        try:
            connection.execute(f"SET GLOBAL dynamic_or_filter_threshold = {FEW_KEYS}")
            return cls(path, connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Releases the file. Readers must be done."""
        with self._writing:
            while not self._cursors.empty():
                self._cursors.get_nowait().close()
            self._connection.close()

    def __enter__(self) -> "SourceDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def relation(self, name: str) -> Relation:
        """The relation of that name; if there is none, WrongUse with the existing ones."""
        if name not in self._relations:
            there = ", ".join(self._relations) or "none"
            raise WrongUse(
                f"source {self.source}: no relation {name!r}; its relations are: {there}"
            )
        return self._relations[name]

    def use_threads_per_query(self, threads: int) -> None:
        """Sets how many threads DuckDB uses for one statement."""
        with self._writing:
            self._connection.execute(f"SET threads = {int(threads)}")

    def bound_memory(self, most_bytes: int) -> None:
        """Limits the memory of DuckDB; a statement that needs more fails and does not spill."""
        with self._writing:
            self._connection.execute(f"SET memory_limit = '{int(most_bytes)}B'")
            self._connection.execute("SET max_temp_directory_size = '0B'")

    @property
    def version(self) -> int:
        """The number of the last durable commit."""
        return self._version

    @property
    def standing(self) -> tuple[int, int]:
        """The number of the last durable commit, and the digest of the history up to it."""
        with self._committed:
            return self._version, self._digest

    @property
    def last_global(self) -> int:
        """The last version that is part of a global transaction; 0 if there is none."""
        return self._last_global

    def digest_at(self, version: int) -> int:
        """The digest of the history up to a version; `UNKNOWN` if it is not recorded."""
        last, digest = self.standing
        if version == last:
            return digest
        if version == self._since:
            return self._first_digest
        if not self._since < version < last:
            return UNKNOWN
        return head_of(self.outbox(version - 1, 1)[0][1])[1]

    @property
    def driven(self) -> int:
        """The number of commits of the source's own workload, which resumes after them."""
        return self._driven

    @property
    def published(self) -> int:
        """The topic is known to hold the outbox up to this version; it may hold more."""
        return self._published

    def wait_beyond(self, version: int, timeout: float) -> bool:
        """Waits until there is a later version; False on timeout."""
        with self._committed:
            return self._committed.wait_for(lambda: self._version > version, timeout)

    # ------------------------------------------------------------------------------- reading

    @contextmanager
    def snapshot(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
        """A cursor inside one DuckDB transaction, and the version that it sees."""
        cursor = self._cursor()
        try:
            cursor.begin()
            [(version,)] = all_rows(cursor, "SELECT version FROM source.committed")
            yield cursor, version
            cursor.commit()
        except BaseException:
            cursor.close()
            raise
        self._cursors.put(cursor)

    def outbox(self, after_version: int, limit: int, skip: int = 0) -> list[tuple[int, bytes]]:
        """Up to `limit` records after a version, in order, without the first `skip` of them: so a
        large transaction can be read in pieces."""
        with self._committed:
            recent = self._recent.after(after_version, skip + limit)
        if recent is None:
            return self._stored_outbox(after_version, limit, skip)
        return recent[skip : skip + limit]

    def _stored_outbox(self, after_version: int, limit: int, skip: int) -> list[tuple[int, bytes]]:
        # A version is one INSERT, so its rows are consecutive; the skipped rows are of one version.
        first = "SELECT min(rowid) FROM source.outbox WHERE version > $after"
        sql = (
            "SELECT version, record FROM source.outbox"
            " WHERE version > $after AND version <= $after + $limit"
            f" AND rowid >= ({first}) + $skip ORDER BY rowid LIMIT $limit"
        )
        with self.snapshot() as (cursor, _):
            return all_rows(cursor, sql, {"after": after_version, "limit": limit, "skip": skip})

    def make_indexes(self, indexes: Mapping[str, Sequence[str]]) -> None:
        """Creates a separate index on each of these columns of relations, unless it has one."""
        missing = {
            name: [column for column in columns if column not in self.indexes.get(name, ())]
            for name, columns in indexes.items()
        }
        with self._writing, self._saving("the index"):
            make_indexes(self._connection, self.source, self.catalog, missing)
            self.indexes = indexed(self._connection, self.catalog)

    def mark_published(self, version: int) -> None:
        """Records durably that the topic holds everything up to this version."""
        with self._writing, self._saving("the published version"):
            if version > self._version:
                raise SourceViolation(
                    f"source {self.source}: version {version} cannot be published: the last"
                    f" committed version is {self._version}"
                )
            if version > self._published:
                self._connection.execute("UPDATE source.published SET version = ?", [version])
                self._published = version

    # ---------------------------------------------------------------------------- committing

    def commit(self, transaction: Transaction, *, driven: bool = False) -> int:
        """Commits a transaction and returns the version, which grows only if something changes."""
        return self.commit_many([transaction], driven=driven)

    def commit_many(self, transactions: Sequence[Transaction], *, driven: bool = False) -> int:
        """Commits a group, each transaction under its own version, all visible at once.

        Returns the last version. If one transaction is refused, none is committed.
        """
        netted = [
            admitted(index, each, self.source, self.relation)
            for index, each in enumerate(transactions)
        ]
        with self._writing:
            history = CommitHistory(self._digest)
            with self._saving("the commit"):
                entries = self._write_group(netted, len(netted) if driven else 0, history)
            with self._committed:
                self._recent.extend(self._version, entries)
                self._last_global = self._last_global_with(netted)
                self._version += len(entries)
                self._digest = history.digest
                self._driven += len(netted) if driven else 0
                self._committed.notify_all()
                return self._version

    def _write_group(
        self, transactions: Sequence[Transaction], driven: int, history: CommitHistory
    ) -> list[Records]:
        """Checks and writes the group in one DuckDB transaction; returns its records."""
        connection = self._connection
        connection.begin()
        try:
            for touched in replayed(connection, self.catalog, transactions):
                touched.write(connection)
            entries = self._encoded(transactions, history)
            append(connection, "source.outbox", outbox_rows(entries, self._version + 1))
            connection.execute(
                "UPDATE source.committed SET version = ?, driven = driven + ?, digest = ?",
                [self._version + len(entries), driven, history.digest],
            )
            if (last := self._last_global_with(transactions)) != self._last_global:
                connection.execute("UPDATE source.globals SET last = ?", [last])
            connection.commit()
        except BaseException:
            roll_back(connection)
            raise
        return entries

    def _encoded(
        self, transactions: Sequence[Transaction], history: CommitHistory
    ) -> list[Records]:
        """The records of each of the next versions; adds these to the history."""
        ts_ms = time.time_ns() // 1_000_000
        return [
            encode_transaction(self.source, version, ts_ms, transaction, self.catalog, history)
            for version, transaction in self._numbered(transactions)
        ]

    def _last_global_with(self, transactions: Sequence[Transaction]) -> int:
        """The last version with a part of a global transaction, once these are committed."""
        parts = (version for version, each in self._numbered(transactions) if each.part is not None)
        return max(parts, default=self._last_global)

    def _numbered(self, transactions: Sequence[Transaction]) -> Iterable[tuple[int, Transaction]]:
        """The transactions that change something, with their versions."""
        changing = (transaction for transaction in transactions if transaction.changes)
        return enumerate(changing, self._version + 1)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        try:
            return self._cursors.get_nowait()
        except queue.Empty:
            return self._connection.cursor()

    @contextmanager
    def _saving(self, what: str) -> Iterator[None]:
        try:
            yield
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise SourceViolation(
                f"source {self.source}: {what} is impossible: {altered(error)}"
            ) from error
        except duckdb.Error as error:
            raise Unreachable(
                f"source {self.source}: {what} could not be saved in {self.path}"
                f" and nothing was changed: {error}"
            ) from error
