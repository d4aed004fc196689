"""The transactions in an answer: those that its snapshot sees, whatever the topic's order says."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from protocols.errors import SourceViolation, Unreachable, WrongUse
from protocols.exchange.questions import Query
from protocols.views.sql import parse_view
from sources.kafka import Kafka
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.lookup import PostgresLookup
from sources.postgres.source import PostgresSource
from sources.topics import ends_of
from streaming.intake.asking import catalog_in
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.postgres import PostgresDatabase


@pytest.fixture
def database(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path
) -> Iterator[PostgresDatabase]:
    """The first database of a story, whose connector runs."""
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        yield next(iter(world.databases.values()))


def opened(database: PostgresDatabase, dsn: str | None = None, seconds: float = 10.0) -> Any:
    connections = DatabaseConnections(database.name, dsn or database.address, seconds)
    source = PostgresSource(database.name, [database.topic], connections, seconds)
    ends = ends_of(Kafka(database.bootstrap), {"": [database.topic]})[""]
    return closing(source), lambda: source.begin(Kafka(database.bootstrap), ends, None)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happening: Callable[[], None]) -> None:
    """Lets something happen between an answer's rows and the commit of its message."""
    rows = PostgresLookup.rows

    def then(self: PostgresLookup, cursor: Any, query: Any) -> Any:
        found = rows(self, cursor, query)
        happening()
        return found

    monkeypatch.setattr(PostgresLookup, "rows", then)


def insert(connection: psycopg.Connection, id_: int) -> None:
    connection.execute("INSERT INTO r VALUES (%s, 1, 'p')", (id_,))


def test_a_transaction_that_commits_after_the_snapshot_is_an_exception(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the topic it stands before the message, and the snapshot does not see it."""
    closing_, begin = opened(database)
    with closing_ as source, database.connected() as other, database.connected() as third:
        begin()
        relation = source.describe().relations["r"]
        other.execute("BEGIN")
        insert(other, 1001)

        def commit() -> None:
            insert(third, 1002)
            other.execute("COMMIT")

        meanwhile(monkeypatch, commit)
        answer = source.ask(Query(relation, relation.column_names))
        assert answer.inclusion.upto == 2
        assert answer.inclusion.without == (1, 2)
        assert not {1001, 1002} & set(answer.rows.data["id"])
        monkeypatch.undo()
        later = source.ask(Query(relation, relation.column_names))
        assert (later.inclusion.upto, later.inclusion.without) == (2, ())
        assert {1001, 1002} <= set(later.rows.data["id"])


def test_a_role_that_may_only_select_suffices(database: PostgresDatabase) -> None:
    role = f"reader_{database.database}"
    with database.connected() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT SELECT ON r TO {role}")
    closing_, begin = opened(database, database.address.replace("postgres@", f"{role}@"))
    with closing_ as source:
        begin()
        described = source.describe()
        assert list(described.relations) == ["r"]
        relation = described.relations["r"]
        assert len(source.ask(Query(relation, ("id",))).rows.data) == 1


def test_a_job_does_not_begin_while_a_transaction_runs(database: PostgresDatabase) -> None:
    """It may stand in the topic before the beginning, and not be visible yet."""
    closing_, begin = opened(database, seconds=1.0)
    with closing_, database.connected() as other:
        other.execute("BEGIN")
        insert(other, 1001)
        with pytest.raises(Unreachable, match="have not ended within 1 s; views cannot begin"):
            begin()
        other.execute("COMMIT")
        begin()


def test_a_table_whose_changes_show_no_whole_rows_is_left_out(database: PostgresDatabase) -> None:
    with database.connected() as connection:
        connection.execute("ALTER TABLE r REPLICA IDENTITY DEFAULT")
    closing_, begin = opened(database)
    with closing_ as source:
        begin()
        assert "r" not in source.describe().relations


_OTHER = "DROP PUBLICATION viewsweep; CREATE PUBLICATION viewsweep FOR TABLE"
_PARTS = """
CREATE TABLE parts (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE first_part PARTITION OF parts FOR VALUES FROM (0) TO (100);
ALTER TABLE parts REPLICA IDENTITY FULL
"""


def test_a_table_whose_changes_are_not_all_published_is_left_out(
    database: PostgresDatabase,
) -> None:
    """Else its view would stay as it is, without a word."""
    closing_, begin = opened(database)
    with closing_ as source, database.connected() as connection:
        begin()
        assert "r" in source.describe().relations
        connection.execute("CREATE TABLE other (id bigint PRIMARY KEY)")
        connection.execute(_PARTS)
        for statement, table, reason, mend in (
            (f"{_OTHER} other", "r", "does not have it", "ADD TABLE public.r"),
            (f"{_OTHER} r WHERE (x > 1)", "r", "leaves out some of its rows", "DROP TABLE"),
            ("DROP PUBLICATION viewsweep", "r", "there is no publication", "CREATE PUBLICATION"),
            (
                "CREATE PUBLICATION viewsweep FOR ALL TABLES",
                "parts",
                "shows its partitions instead",
                "SET (publish_via_partition_root = true)",
            ),
        ):
            connection.execute(statement)
            found = source.describe()
            assert table not in found.relations, statement
            assert reason in found.left_out[table]
            assert mend in found.left_out[table]
        connection.execute(found.left_out["parts"].partition(": ")[2])
        assert "parts" in source.describe().relations
        with pytest.raises(
            WrongUse, match=r"a\.other cannot be used: its changes do not show whole"
        ):
            parse_view("v", "SELECT id FROM a.other", catalog_in({"a": source.describe()}))


def test_wrong_addresses_are_named(database: PostgresDatabase) -> None:
    with pytest.raises(WrongUse, match="not the address of a PostgreSQL database"):
        DatabaseConnections("a", "host = = x", 1.0)
    closing_, begin = opened(database, database.address.replace(database.database, "nowhere"))
    with closing_, pytest.raises(WrongUse, match='database "nowhere" does not exist'):
        begin()
    closing_, begin = opened(database, "postgresql://127.0.0.1:1/x", 1.0)
    with closing_, pytest.raises(Unreachable, match="does not answer"):
        begin()


def test_a_table_that_was_altered_since_is_refused(database: PostgresDatabase) -> None:
    closing_, begin = opened(database)
    with closing_ as source:
        begin()
        relation = source.describe().relations["r"]
        with database.connected() as connection:
            connection.execute("ALTER TABLE r DROP COLUMN t")
        with pytest.raises(SourceViolation, match="refuses a question"):
            source.ask(Query(relation, relation.column_names))
        source.describe()
        with pytest.raises(SourceViolation, match="table r has changed since"):
            source.ask(Query(relation, relation.column_names))
