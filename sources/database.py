"""A source: an autonomous database that numbers its commits and remembers each one in an outbox.

One DuckDB file holds the relations (schema `relations`) and what the source has to know about
itself (schema `source`): the catalog, the version, the digest of its history (history.py), the
outbox and how far it has been published. A commit changes relations, outbox, version and digest in
one DuckDB transaction. That is the whole guarantee: after a crash a version is there with its
records, or neither is.

No relation has a PRIMARY KEY. DuckDB's unique indexes refuse the deletion and insertion of one key
in one transaction, which is what a modification is. So keys are checked here: the stored rows that
a commit touches are fetched with one semi-join per relation, and the group of transactions is
replayed on them in memory before anything is written.

Plain indexes are the owner's choice (access.py says when one is used): which columns others look up
is not for a source to know. With an index a question of a few keys looks at the rows that match and
at no others, however large the relation; without one it is a scan, 3.5 ms per million rows. One on
the key serves the source's own commits in the same way.
"""

import math
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import orjson
import polars as pl
import pyarrow as pa

from protocols.errors import SourceViolation, Unreachable, WrongUse
from protocols.exchange.holdback import GlobalPart
from protocols.views.catalog import Catalog, Relation, catalog_from_json
from sources.envelope import encode_transaction, head_of
from sources.history import UNKNOWN, History, new_identity
from sources.recent import RecentRecords
from sources.transaction import RowChange, Transaction, net_changes

#: What one change may add or remove. Every unit is a row and a record, so more is a slip.
MOST_UNITS = 1_000_000
#: Up to so many keys DuckDB is told to look up in an index, if there is one. Each costs some 10 µs,
#: a scan 3.5 ms per million rows.
FEW_KEYS = 300
_FORMAT = 2
#: The format before sources had a history; a file that has it gets one when it is opened.
_WITHOUT_HISTORY = 1
_SCHEMA = """
    CREATE SCHEMA relations;
    CREATE SCHEMA source;
    CREATE TABLE source.self (format BIGINT, name VARCHAR, catalog VARCHAR, origin VARCHAR);
    CREATE TABLE source.published (version BIGINT);
    CREATE TABLE source.outbox (version BIGINT, record BLOB);
    INSERT INTO source.published VALUES (0);
"""
_SCHEMA_OF_HISTORY = """
    CREATE TABLE source.committed (version BIGINT, driven BIGINT, digest BIGINT);
    CREATE TABLE source.history (identity VARCHAR, since BIGINT, digest BIGINT);
"""
_Row = tuple[Any, ...]
#: The records of one version.
_Records = list[bytes]


class TransactionRefused(WrongUse):
    """A transaction that the source does not commit; `index` is its place in the group given."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class SourceDatabase:
    """One source's relations, version and outbox. Many threads may read, one commits at a time."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        name, catalog, origin = _self_description(path, connection)
        _refuse_altered(path, connection, name, catalog)
        self.source: str = name
        self.catalog: Catalog = catalog_from_json({name: {"relations": orjson.loads(catalog)}})
        #: What the source was made from, for whoever made it (a workload's name, scale and seed).
        self.origin: dict[str, Any] = orjson.loads(origin)
        self._relations = {relation.name: relation for relation in self.catalog}
        #: Relation → its columns that have an index.
        self.indexes: dict[str, tuple[str, ...]] = _indexed(connection, self.catalog)
        #: Only the holder of `_writing` uses this connection.
        self._connection = connection
        self._writing = threading.Lock()
        #: Cursors that nobody reads with at the moment.
        self._cursors: queue.LifoQueue[duckdb.DuckDBPyConnection] = queue.LifoQueue()
        #: What the publisher will ask for next, so that it need not read what was just written.
        self._recent = RecentRecords()
        #: Guards these and the two counters; notified when a commit is durable.
        self._committed = threading.Condition()
        self._version: int
        self._driven: int
        self._digest: int
        self._published: int
        [(self._version, self._driven, self._digest)] = _all(
            connection, "SELECT version, driven, digest FROM source.committed"
        )
        #: Tells this source from another one of its name.
        self.identity: str
        #: The first version whose history is known, and the digest there.
        self._since: int
        self._first_digest: int
        [(self.identity, self._since, self._first_digest)] = _all(
            connection, "SELECT identity, since, digest FROM source.history"
        )
        [(self._published,)] = _all(connection, "SELECT * FROM source.published")

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
        """A new source whose version 0 holds these rows. It appears whole or not at all.

        `indexes` names columns of relations, each of which gets an index of its own.
        """
        if path.exists():
            raise WrongUse(f"{path} exists already; remove it or choose another database")
        if not path.absolute().parent.is_dir():
            raise WrongUse(
                f"source {source}: there is no directory {path.absolute().parent} for {path.name}"
            )
        part = path.with_name(path.name + ".part")
        _discard(part)
        try:
            with _connected(part) as connection:
                connection.execute(_SCHEMA)
                _describe(connection, source, catalog, origin or {})
                for relation in catalog:
                    _load(connection, relation, rows)
                _make_indexes(connection, source, catalog, indexes or {})
                connection.execute("CHECKPOINT")
            part.rename(path)
        except OSError as error:
            raise WrongUse(f"source {source}: cannot create {path}: {error}") from error
        except duckdb.Error as error:
            raise Unreachable(f"source {source}: cannot create {path}: {error}") from error
        finally:
            _discard(part)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "SourceDatabase":
        """The source in this file; the file stays locked until `close`."""
        if not path.is_file():
            raise WrongUse(f"there is no source database at {path}; make one with 'sources init'")
        try:
            connection = duckdb.connect(str(path))
        except duckdb.Error as error:
            raise _not_opened(path, error) from error
        try:
            connection.execute(f"SET GLOBAL dynamic_or_filter_threshold = {FEW_KEYS}")
            return cls(path, connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Lets go of the file. Readers must be done."""
        with self._writing:
            while not self._cursors.empty():
                self._cursors.get_nowait().close()
            self._connection.close()

    def __enter__(self) -> "SourceDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def relation(self, name: str) -> Relation:
        """The relation of that name; WrongUse lists those there are."""
        if name not in self._relations:
            there = ", ".join(self._relations) or "none"
            raise WrongUse(f"source {self.source}: no relation {name!r}; there are: {there}")
        return self._relations[name]

    def use_threads_per_query(self, threads: int) -> None:
        """How many threads DuckDB gives to one statement."""
        with self._writing:
            self._connection.execute(f"SET threads = {int(threads)}")

    def bound_memory(self, most_bytes: int) -> None:
        """What DuckDB may take in all; what does not fit fails instead of filling the disk."""
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

    def digest_at(self, version: int) -> int:
        """The digest of the history up to a version; `UNKNOWN` where there is none."""
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
        """How many of the commits came from the source's own workload: where to resume it."""
        return self._driven

    @property
    def published(self) -> int:
        """Up to here the outbox is known to be in the topic; it may be further in truth."""
        return self._published

    def wait_beyond(self, version: int, timeout: float) -> bool:
        """Waits until there is a later version; False when the time is over."""
        with self._committed:
            return self._committed.wait_for(lambda: self._version > version, timeout)

    # ------------------------------------------------------------------------------- reading

    @contextmanager
    def snapshot(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
        """A cursor inside one DuckDB transaction, and the version that it sees."""
        cursor = self._cursor()
        try:
            cursor.begin()
            [(version,)] = _all(cursor, "SELECT version FROM source.committed")
            yield cursor, version
            cursor.commit()
        except BaseException:
            cursor.close()
            raise
        self._cursors.put(cursor)

    def outbox(self, after_version: int, limit: int, skip: int = 0) -> list[tuple[int, bytes]]:
        """The records after a version, in order, without the first `skip` of them: `limit`, if
        there are so many, so that a large transaction is read in pieces."""
        with self._committed:
            recent = self._recent.after(after_version, skip + limit)
        if recent is None:
            return self._stored_outbox(after_version, limit, skip)
        return recent[skip : skip + limit]

    def _stored_outbox(self, after_version: int, limit: int, skip: int) -> list[tuple[int, bytes]]:
        # A version is one INSERT, so its rows follow each other; what is skipped is of one version.
        first = "SELECT min(rowid) FROM source.outbox WHERE version > $after"
        sql = (
            "SELECT version, record FROM source.outbox"
            " WHERE version > $after AND version <= $after + $limit"
            f" AND rowid >= ({first}) + $skip ORDER BY rowid LIMIT $limit"
        )
        with self.snapshot() as (cursor, _):
            return _all(cursor, sql, {"after": after_version, "limit": limit, "skip": skip})

    def make_indexes(self, indexes: Mapping[str, Sequence[str]]) -> None:
        """An index of its own on each of these columns of relations, unless it has one."""
        missing = {
            name: [column for column in columns if column not in self.indexes.get(name, ())]
            for name, columns in indexes.items()
        }
        with self._writing, self._saving("the index"):
            _make_indexes(self._connection, self.source, self.catalog, missing)
            self.indexes = _indexed(self._connection, self.catalog)

    def mark_published(self, version: int) -> None:
        """Remembers durably that the topic holds everything up to this version."""
        with self._writing, self._saving("the published version"):
            if version > self._version:
                raise SourceViolation(
                    f"source {self.source}: version {version} cannot be published,"
                    f" {self._version} is the last one committed"
                )
            if version > self._published:
                self._connection.execute("UPDATE source.published SET version = ?", [version])
                self._published = version

    # ---------------------------------------------------------------------------- committing

    def commit(self, transaction: Transaction, *, driven: bool = False) -> int:
        """Commits it and returns its version; one that changes nothing leaves the version alone."""
        return self.commit_many([transaction], driven=driven)

    def commit_many(self, transactions: Sequence[Transaction], *, driven: bool = False) -> int:
        """Commits a group, each transaction under its own version, all visible at once.

        The last version is returned. If one of them is refused, none is committed.
        """
        netted = [self._typed(index, each) for index, each in enumerate(transactions)]
        with self._writing:
            history = History(self._digest)
            with self._saving("the commit"):
                entries = self._write_group(netted, len(netted) if driven else 0, history)
            with self._committed:
                self._recent.extend(self._version, entries)
                self._version += len(entries)
                self._digest = history.digest
                self._driven += len(netted) if driven else 0
                self._committed.notify_all()
                return self._version

    def _typed(self, index: int, transaction: Transaction) -> Transaction:
        """The transaction with values of the declared types, net."""
        changes = []
        for change in transaction.changes:
            try:
                changes.append(_typed(self.relation(change.relation), change))
            except WrongUse as error:
                raise TransactionRefused(index, str(error)) from None
        net = net_changes(changes)
        self._check_part(index, transaction.part, net)
        return Transaction(net, transaction.part)

    def _check_part(self, index: int, part: GlobalPart | None, net: Sequence[RowChange]) -> None:
        """Whoever waits for the other parts has to be told of this one, and by this source."""
        if part is None:
            return
        if self.source not in part.participants:
            raise TransactionRefused(
                index,
                f"global transaction {part.id!r} has the participants"
                f" {', '.join(sorted(part.participants))}; this is source {self.source}",
            )
        if not net:
            raise TransactionRefused(
                index,
                f"global transaction {part.id!r} changes nothing at source {self.source}, so"
                " nothing would be published, and the other parts would be waited with for ever",
            )

    def _write_group(
        self, transactions: Sequence[Transaction], driven: int, history: History
    ) -> list[_Records]:
        """Checks and writes the group in one DuckDB transaction; returns what it published."""
        connection = self._connection
        connection.begin()
        try:
            for touched in self._replayed(transactions):
                touched.write(connection)
            entries = self._encoded(transactions, history)
            _append(connection, "source.outbox", _outbox_rows(entries, self._version + 1))
            connection.execute(
                "UPDATE source.committed SET version = ?, driven = driven + ?, digest = ?",
                [self._version + len(entries), driven, history.digest],
            )
            connection.commit()
        except BaseException:
            _roll_back(connection)
            raise
        return entries

    def _replayed(self, transactions: Sequence[Transaction]) -> Iterable["_Touched"]:
        """What the group leaves of the rows it touches; refuses what breaks a rule on the way."""
        changes: dict[str, list[RowChange]] = {}
        for transaction in transactions:
            for change in transaction.changes:
                changes.setdefault(change.relation, []).append(change)
        touched = {
            name: _Touched(self._connection, self._relations[name], of_relation)
            for name, of_relation in changes.items()
        }
        for index, transaction in enumerate(transactions):
            for change in transaction.changes:
                touched[change.relation].apply(index, change)
            for change in transaction.changes:
                touched[change.relation].check_key(index, change.row)
        return touched.values()

    def _encoded(self, transactions: Sequence[Transaction], history: History) -> list[_Records]:
        """The records of each of the versions that follow, which the history then has as well."""
        ts_ms = time.time_ns() // 1_000_000
        changing = [transaction for transaction in transactions if transaction.changes]
        return [
            encode_transaction(self.source, version, ts_ms, transaction, self.catalog, history)
            for version, transaction in enumerate(changing, self._version + 1)
        ]

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


class _Touched:
    """The rows of one relation that a group of transactions touches, as they are replayed."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        relation: Relation,
        changes: Sequence[RowChange],
    ) -> None:
        self._relation = relation
        self._places = tuple(relation.column_names.index(column) for column in relation.key)
        #: Stored rows that may be concerned, with the rowids of all their copies.
        self._stored: dict[_Row, list[int]] = {}
        #: How many there are of each row, at the point the replay has reached.
        self._counts: dict[_Row, int] = {}
        #: … and of each key.
        self._keys: dict[_Row, int] = {}
        for rowid, *values in _stored_rows(connection, relation, self._wanted(changes)):
            row = tuple([_one_nan(value) for value in values])
            self._stored.setdefault(row, []).append(rowid)
            self._add(row, 1)

    def _wanted(self, changes: Sequence[RowChange]) -> list[_Row]:
        """What to look for: all keys that occur; in a bag only rows that are deleted."""
        if self._relation.key:
            return list(dict.fromkeys(self._key(change.row) for change in changes))
        return list(dict.fromkeys(change.row for change in changes if change.count < 0))

    def apply(self, index: int, change: RowChange) -> None:
        """One step of the replay."""
        there = self._counts.get(change.row, 0)
        if there + change.count < 0:
            raise TransactionRefused(
                index,
                f"relation {self._relation}: cannot delete row {_show(change.row)}"
                f" {-change.count} time(s), it is there {max(there, 0)} time(s)",
            )
        self._add(change.row, change.count)

    def check_key(self, index: int, row: _Row) -> None:
        """After a whole transaction: no two rows have this row's key."""
        if self._relation.key and self._keys[self._key(row)] > 1:
            key = ", ".join(self._relation.key)
            raise TransactionRefused(
                index,
                f"relation {self._relation}: row {_show(row)}: there is a row with this key"
                f" ({key}) already; delete it in the same transaction to replace it",
            )

    def write(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes the stored rows what the replay arrived at."""
        gone: list[int] = []
        new: list[_Row] = []
        for row, count in self._counts.items():
            rowids = self._stored.get(row, [])
            gone += rowids[max(count, 0) :]
            new += [row] * (count - len(rowids))
        _delete(connection, self._relation, gone)
        _append(connection, table_name(self._relation), _table(self._relation, new))

    def _key(self, row: _Row) -> _Row:
        return tuple([row[place] for place in self._places])

    def _add(self, row: _Row, count: int) -> None:
        self._counts[row] = self._counts.get(row, 0) + count
        if self._relation.key:
            key = self._key(row)
            self._keys[key] = self._keys.get(key, 0) + count


# ------------------------------------------------------------------------------------ checking


def _typed(relation: Relation, change: RowChange) -> RowChange:
    """The change with each value as its column's type has it, NULL nowhere in the key."""
    row, count = change.row, change.count
    if not isinstance(count, int) or isinstance(count, bool) or abs(count) > MOST_UNITS:
        raise WrongUse(
            f"relation {relation}: row {_show(row)}: the count is {count!r},"
            f" it has to be a whole number within ±{MOST_UNITS}"
        )
    if len(row) != len(relation.columns):
        raise WrongUse(
            f"relation {relation}: row {_show(row)} has {len(row)} values,"
            f" the relation has {len(relation.columns)} columns"
        )
    values = []
    for (name, type_), value in zip(relation.columns, row, strict=True):
        try:
            decoded = type_.decode(value)
            if type_.family == "VARCHAR" and value is not None:
                value.encode()
        except ValueError as error:
            where = f"relation {relation}, column {name}, row {_show(row)}"
            raise WrongUse(f"{where}: {error}") from None
        if decoded is None and name in relation.key:
            raise WrongUse(f"relation {relation}, row {_show(row)}: key column {name} is NULL")
        values.append(decoded)
    return RowChange(change.relation, tuple(values), count)


def _show(row: _Row) -> str:
    text = "(" + ", ".join(repr(value) if isinstance(value, str) else str(value) for value in row)
    return (text if len(text) < 200 else text[:200] + " …") + ")"


def _one_nan(value: Any) -> Any:
    """NaN as the one object that `ColumnType.decode` yields, so that rows are equal as keys."""
    return math.nan if value != value else value


# ----------------------------------------------------------------------------- rows in and out


def quoted(identifier: str) -> str:
    """An identifier for SQL text."""
    return '"' + identifier.replace('"', '""') + '"'


def table_name(relation: Relation) -> str:
    """Where the relation's rows are."""
    return f"relations.{quoted(relation.name)}"


def _stored_rows(
    connection: duckdb.DuckDBPyConnection, relation: Relation, wanted: list[_Row]
) -> list[_Row]:
    """(rowid, *row) of the rows with one of these keys; of a bag, of the rows equal to one."""
    columns = relation.key or relation.column_names
    # A key has no NULL; the whole row of a bag may have.
    equal = "=" if relation.key else "IS NOT DISTINCT FROM"
    on = " AND ".join(f"r.{quoted(name)} {equal} w.{quoted(name)}" for name in columns)
    stored = f"SELECT r.rowid, r.* FROM {table_name(relation)} r SEMI JOIN given w ON {on}"
    return _with(connection, stored, _table(relation, wanted, columns))


def _table(relation: Relation, rows: list[_Row], columns: Sequence[str] = ()) -> pa.Table:
    schema = {name: relation.type_of(name).dtype for name in columns or relation.column_names}
    return pl.DataFrame(rows, schema=schema, orient="row").to_arrow()


def _outbox_rows(entries: list[_Records], first: int) -> pa.Table:
    """(version, record) per record of versions that follow each other."""
    rows = [(version, r) for version, records in enumerate(entries, first) for r in records]
    return pl.DataFrame(rows, {"version": pl.Int64, "record": pl.Binary}, orient="row").to_arrow()


def _append(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table) -> None:
    _with(connection, f"INSERT INTO {table} SELECT * FROM given", rows)


def _delete(connection: duckdb.DuckDBPyConnection, relation: Relation, rowids: list[int]) -> None:
    gone = f"DELETE FROM {table_name(relation)} WHERE rowid IN (SELECT id FROM given)"
    _with(connection, gone, pl.DataFrame({"id": rowids}, {"id": pl.Int64}).to_arrow())


def _with(connection: duckdb.DuckDBPyConnection, sql: str, given: pa.Table) -> list[Any]:
    """Runs SQL over the table `given`; without rows there is nothing to do.

    DuckDB finds the table by the name of the local variable. To register it under a name, which is
    to create a view, and to drop that again costs as much as a small statement itself.
    """
    return connection.execute(sql).fetchall() if given.num_rows else []


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> Iterator[None]:
    """The table under a name that this connection alone can see."""
    connection.register(name, table)
    try:
        yield
    except BaseException:
        # An error in SQL may have aborted the transaction, which then refuses this as well.
        with suppress(duckdb.Error):
            connection.unregister(name)
        raise
    connection.unregister(name)


def _all(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None) -> list[Any]:
    return connection.execute(sql, parameters).fetchall()


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.rollback()
    except duckdb.Error:
        # What broke the transaction has ended it as well; that error is the one to show.
        return


# -------------------------------------------------------------------------- creating and opening


@contextmanager
def _connected(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(str(path))
    try:
        yield connection
    finally:
        connection.close()


def _discard(part: Path) -> None:
    for file in (part, part.with_name(part.name + ".wal")):
        file.unlink(missing_ok=True)


def _describe(
    connection: duckdb.DuckDBPyConnection, source: str, catalog: Catalog, origin: Mapping[str, Any]
) -> None:
    foreign = [str(relation) for relation in catalog if relation.source != source]
    hidden = [str(r) for r in catalog if "rowid" in map(str.lower, r.column_names)]
    if hidden:
        raise WrongUse(f"relation {hidden[0]} has a column rowid, a name of DuckDB's; rename it")
    if foreign:
        raise WrongUse(f"source {source} cannot hold {foreign[0]}, a relation of another source")
    relations = {relation.name: relation.to_json() for relation in catalog}
    connection.execute(
        "INSERT INTO source.self VALUES (?, ?, ?, ?)",
        [_FORMAT, source, orjson.dumps(relations).decode(), orjson.dumps(origin).decode()],
    )
    _begin_history(connection, 0, 0)


def _begin_history(connection: duckdb.DuckDBPyConnection, version: int, driven: int) -> None:
    """What is known of the past begins at this version."""
    connection.execute(_SCHEMA_OF_HISTORY)
    [(catalog,)] = _all(connection, "SELECT catalog FROM source.self")
    identity = new_identity()
    begun = History.begun(identity, catalog, version).digest
    connection.execute("INSERT INTO source.history VALUES (?, ?, ?)", [identity, version, begun])
    connection.execute("INSERT INTO source.committed VALUES (?, ?, ?)", [version, driven, begun])


def _give_history(connection: duckdb.DuckDBPyConnection) -> None:
    """Upgrades a file from the time when sources had no history, whole or not at all."""
    [(version, driven)] = _all(connection, "SELECT version, driven FROM source.committed")
    connection.begin()
    try:
        connection.execute("DROP TABLE source.committed")
        _begin_history(connection, version, driven)
        connection.execute("UPDATE source.self SET format = ?", [_FORMAT])
        connection.commit()
    except BaseException:
        _roll_back(connection)
        raise


def _load(
    connection: duckdb.DuckDBPyConnection, relation: Relation, rows: Mapping[str, pl.DataFrame]
) -> None:
    columns = ", ".join(f"{quoted(name)} {type_.name}" for name, type_ in relation.columns)
    connection.execute(f"CREATE TABLE {table_name(relation)} ({columns})")
    if relation.name not in rows:
        return
    frame = rows[relation.name]
    _check_initial_rows(relation, frame)
    _append(connection, table_name(relation), frame.select(relation.column_names).to_arrow())


def _make_indexes(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    catalog: Catalog,
    indexes: Mapping[str, Sequence[str]],
) -> None:
    for name, columns in indexes.items():
        relation = catalog.find(source, name)
        if relation is None:
            raise WrongUse(f"an index on {name}: source {source} has no such relation")
        for column in dict.fromkeys(columns):
            if column not in relation.column_names:
                raise WrongUse(
                    f"an index on {relation}.{column}: there is no such column, there are"
                    f" {', '.join(relation.column_names)}"
                )
            index, table = quoted(_index_name(name, column)), table_name(relation)
            connection.execute(f"CREATE INDEX {index} ON {table} ({quoted(column)})")


def _index_name(relation: str, column: str) -> str:
    """Says what the index is on, in a form that no other index of the source has."""
    return orjson.dumps([relation, column]).decode()


def _indexed(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> dict[str, tuple[str, ...]]:
    names = {name for (name,) in _all(connection, "SELECT index_name FROM duckdb_indexes()")}
    return {
        relation.name: tuple(
            column
            for column in relation.column_names
            if _index_name(relation.name, column) in names
        )
        for relation in catalog
    }


def _check_initial_rows(relation: Relation, frame: pl.DataFrame) -> None:
    declared = {name: type_.dtype for name, type_ in relation.columns}
    if dict(frame.schema) != declared:
        raise WrongUse(
            f"relation {relation}: its rows have the columns {dict(frame.schema)},"
            f" declared are {declared}"
        )
    if not relation.key:
        return
    keys = frame.select(relation.key)
    for name in relation.key:
        if keys[name].null_count():
            raise WrongUse(f"relation {relation}: key column {name} is NULL in an initial row")
    twice = keys.filter(keys.is_duplicated())
    if twice.height:
        raise WrongUse(
            f"relation {relation}: {twice.height} initial rows share their key"
            f" ({', '.join(relation.key)}), the first is {_show(twice.row(0))}"
        )


def _self_description(path: Path, connection: duckdb.DuckDBPyConnection) -> tuple[str, str, str]:
    try:
        [(format_, *description)] = _all(connection, "SELECT * FROM source.self")
    except duckdb.CatalogException:
        raise WrongUse(
            f"{path} is a DuckDB database but not a source; make one with 'sources init'"
        ) from None
    if format_ == _WITHOUT_HISTORY:
        _give_history(connection)
    elif format_ != _FORMAT:
        raise WrongUse(f"{path} has format {format_}, this viewsweep reads format {_FORMAT}")
    name, catalog, origin = description
    return name, catalog, origin


def _refuse_altered(
    path: Path, connection: duckdb.DuckDBPyConnection, source: str, catalog: str
) -> None:
    """SourceViolation when a table is not what the source says of it."""
    found: dict[str, dict[str, str]] = {}
    for table, column, type_ in _all(
        connection,
        "SELECT table_name, column_name, data_type FROM duckdb_columns()"
        " WHERE schema_name = 'relations' ORDER BY table_name, column_index",
    ):
        found.setdefault(table, {})[column] = type_
    for name, form in orjson.loads(catalog).items():
        if found.get(name) != form["columns"]:
            raise SourceViolation(
                f"source {source}: relation {name} was altered in {path}: it has the columns"
                f" {_columns(found.get(name, {}))}, and the source was made with"
                f" {_columns(form['columns'])}. Give it these back, or make a new source with"
                " 'sources init' and the views over it anew"
            )


def _columns(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in types.items()) or "none"


def altered(error: duckdb.Error) -> str:
    """What is to be said when DuckDB does not find what the catalog names."""
    first = str(error).partition("\n")[0]
    return (
        f"its tables are not what they were when it was started ({first}). Give the relation its"
        " columns back and start the source again; what they are now, it says then"
    )


def _not_opened(path: Path, error: duckdb.Error) -> Exception:
    text = str(error)
    if "lock" in text.lower():
        return WrongUse(
            f"{path} is in use by another process; stop its 'sources serve',"
            f" or talk to it with --address ({text})"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        return WrongUse(f"{path} cannot be read and written: {text}")
    return WrongUse(f"{path} cannot be opened as a source database: {text}")
