"""Creates a source: a DuckDB file with its relations and its own state."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import orjson
import polars as pl

from protocols.errors import Unreachable, WrongUse
from protocols.views.catalog import Catalog, ForeignKey, Relation
from sources.history import CommitHistory, new_identity
from sources.simulated.indexes import make_indexes
from sources.simulated.rows import all_rows, append, quoted, shown, table_name

#: The format of new files.
FORMAT = 3
_SCHEMA = """
    CREATE SCHEMA relations;
    CREATE SCHEMA source;
    CREATE TABLE source.self (format BIGINT, name VARCHAR, catalog VARCHAR, origin VARCHAR);
    CREATE TABLE source.published (version BIGINT);
    CREATE TABLE source.outbox (version BIGINT, record BLOB);
    CREATE TABLE source.globals (last BIGINT);
    INSERT INTO source.published VALUES (0);
    INSERT INTO source.globals VALUES (0);
"""
_SCHEMA_OF_HISTORY = """
    CREATE TABLE source.committed (version BIGINT, driven BIGINT, digest BIGINT);
    CREATE TABLE source.history (identity VARCHAR, since BIGINT, digest BIGINT);
"""


def create_file(
    path: Path,
    source: str,
    catalog: Catalog,
    rows: Mapping[str, pl.DataFrame],
    origin: Mapping[str, Any],
    indexes: Mapping[str, Sequence[str]],
) -> None:
    """Creates the file of a source whose version 0 holds these rows, completely or not at all."""
    refuse_name_of_schema(path)
    if path.exists():
        raise WrongUse(f"{path} already exists; remove it or choose another database")
    if not path.absolute().parent.is_dir():
        raise WrongUse(
            f"source {source}: there is no directory {path.absolute().parent} for {path.name}"
        )
    part = path.with_name(path.name + ".part")
    _discard(part)
    try:
        with _connected(part) as connection:
            connection.execute(_SCHEMA)
            _describe(connection, source, catalog, origin)
            for relation in catalog:
                _load(connection, relation, rows)
            for key in catalog.foreign_keys:
                _check_references(connection, key)
            make_indexes(connection, source, catalog, indexes)
            connection.execute("CHECKPOINT")
        part.rename(path)
    except OSError as error:
        raise WrongUse(f"source {source}: cannot create {path}: {error}") from error
    except duckdb.Error as error:
        raise Unreachable(f"source {source}: cannot create {path}: {error}") from error
    finally:
        _discard(part)


def refuse_name_of_schema(path: Path) -> None:
    """WrongUse for a file whose name DuckDB would mistake for a schema in it."""
    name = path.name.partition(".")[0].lower()
    if name in ("relations", "source"):
        raise WrongUse(
            f"{path}: the file of a source cannot be called {name}, which is the name of a schema"
            " in it; give it another name"
        )


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
        raise WrongUse(
            f"relation {hidden[0]} has a column named rowid, which DuckDB reserves; rename it"
        )
    if foreign:
        raise WrongUse(f"source {source} cannot hold {foreign[0]}, a relation of another source")
    catalog.refuse_impossible_references(whole=False)
    relations = {relation.name: relation.to_json() for relation in catalog}
    connection.execute(
        "INSERT INTO source.self VALUES (?, ?, ?, ?)",
        [FORMAT, source, orjson.dumps(relations).decode(), orjson.dumps(origin).decode()],
    )
    begin_history(connection, 0, 0)


def begin_history(connection: duckdb.DuckDBPyConnection, version: int, driven: int) -> None:
    """Begins the recorded history at this version."""
    connection.execute(_SCHEMA_OF_HISTORY)
    [(catalog,)] = all_rows(connection, "SELECT catalog FROM source.self")
    identity = new_identity()
    begun = CommitHistory.begun(identity, catalog, version).digest
    connection.execute("INSERT INTO source.history VALUES (?, ?, ?)", [identity, version, begun])
    connection.execute("INSERT INTO source.committed VALUES (?, ?, ?)", [version, driven, begun])


def _load(
    connection: duckdb.DuckDBPyConnection, relation: Relation, rows: Mapping[str, pl.DataFrame]
) -> None:
    columns = ", ".join(f"{quoted(name)} {type_.name}" for name, type_ in relation.columns)
    connection.execute(f"CREATE TABLE {table_name(relation)} ({columns})")
    if relation.name not in rows:
        return
    frame = rows[relation.name]
    _check_initial_rows(relation, frame)
    append(connection, table_name(relation), frame.select(relation.column_names).to_arrow())


def _check_initial_rows(relation: Relation, frame: pl.DataFrame) -> None:
    declared = {name: type_.dtype for name, type_ in relation.columns}
    if dict(frame.schema) != declared:
        raise WrongUse(
            f"relation {relation}: its rows have the columns {dict(frame.schema)},"
            f" but the declared columns are {declared}"
        )
    for name in relation.never_null:
        if frame[name].null_count():
            what = relation.why_never_null(name)
            raise WrongUse(f"relation {relation}: {what} {name} is NULL in an initial row")
    for key in relation.all_keys:
        keys = frame.select(key)
        twice = keys.filter(keys.is_duplicated())
        if twice.height:
            raise WrongUse(
                f"relation {relation}: {twice.height} initial rows have the same key"
                f" ({', '.join(key)}) as another; the first of them is {shown(twice.row(0))}"
            )


def _check_references(connection: duckdb.DuckDBPyConnection, key: ForeignKey) -> None:
    """WrongUse if the row that an initial row references is missing; NULL references nothing."""
    pairs = zip(key.columns, key.parent_columns, strict=True)
    on = " AND ".join(f"c.{quoted(ours)} = p.{quoted(theirs)}" for ours, theirs in pairs)
    some = " AND ".join(f"c.{quoted(ours)} IS NOT NULL" for ours in key.columns)
    orphans = all_rows(
        connection,
        f"SELECT c.* FROM {table_name(key.child)} c ANTI JOIN {table_name(key.parent)} p ON {on}"
        f" WHERE {some} LIMIT 1",
    )
    for row in orphans:
        raise WrongUse(
            f"foreign key {key}: the initial row {shown(row)} of {key.child} references a row"
            f" that {key.parent} does not have"
        )
