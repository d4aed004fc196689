"""Every type that docs/postgres.md lists: in records and in answers as committed."""

import datetime
from contextlib import closing
from decimal import Decimal
from pathlib import Path

from infra.localbroker import LocalBroker
from infra.localpostgres import LocalPostgres
from sources.kafka import Kafka
from sources.postgres.connecting import DatabaseConnections
from sources.postgres.source import PostgresSource
from sources.topics import ends_of
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.typed import TypedColumn, assert_types, create_table, inserts


def _numbers(stored: str, *values: int) -> TypedColumn:
    return TypedColumn(stored, "BIGINT", {f"'{value}'": value for value in values})


def _texts(stored: str, *values: str) -> TypedColumn:
    return TypedColumn(stored, "VARCHAR", {f"'{value}'": value for value in values})


def _doubles(stored: str, *values: float) -> TypedColumn:
    return TypedColumn(stored, "DOUBLE", {f"'{value!r}'": value for value in values})


def _times(stored: str, *values: str) -> TypedColumn:
    return TypedColumn(
        stored, "TIMESTAMP", {f"'{v}'": datetime.datetime.fromisoformat(v) for v in values}
    )


_UUID = "123e4567-e89b-12d3-a456-426655440000"
COLUMNS = {
    "si": _numbers("smallint", -32768, 32767),
    "it": _numbers("integer", -2147483648, 2147483647),
    "bi": _numbers("bigint", -(2**63), 2**63 - 1, 0),
    "f4": TypedColumn(
        "real",
        "DOUBLE",
        {
            "0.1": 0.10000000149011612,
            "16777216": 16777216.0,
            "-3.4028235e38": -3.4028234663852886e38,
            "'infinity'": float("inf"),
        },
    ),
    "f8": _doubles("double precision", 0.1, -1.7976931348623157e308, 5e-324, float("-inf")),
    "nu": TypedColumn(
        "numeric(10,3)",
        "DECIMAL(10,3)",
        {"-1234.5": Decimal("-1234.500"), "9999999.999": Decimal("9999999.999")},
    ),
    "nl": TypedColumn(
        "numeric(38,0)", "DECIMAL(38,0)", {str(10**38 - 1): Decimal(10**38 - 1), "0": Decimal(0)}
    ),
    "te": _texts("text", "ä𝄞", "", "Ab", "ab", "x" * 3000),
    "vc": _texts("varchar(10)", "ab ", " ab", "null"),
    "ch": _texts("char(5)", "ab", "", "äöüß€"),
    "uu": _texts("uuid", _UUID),
    "js": _texts("json", '{"a":  [1, null]}'),
    "jb": _texts("jsonb", '{"a": [1, null]}'),
    "en": _texts("size", "small", "Größe"),
    "bo": TypedColumn("boolean", "BOOLEAN", {"false": False, "true": True}),
    "da": TypedColumn(
        "date",
        "DATE",
        {
            f"'{v}'": datetime.date.fromisoformat(v)
            for v in ("0001-01-01", "2024-02-29", "9999-12-31")
        },
    ),
    "ts": _times(
        "timestamp",
        "2024-03-31 02:30:00.123456",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
    ),
    "t3": _times("timestamp(3)", "2024-03-31 02:30:00.123", "1969-12-31 23:59:59.999"),
    "tz": TypedColumn(
        "timestamptz",
        "TIMESTAMP",
        {
            "'2024-03-31 02:30:00.123456+02'": datetime.datetime(2024, 3, 31, 0, 30, 0, 123456),
            "'1969-12-31 23:59:59+00'": datetime.datetime(1969, 12, 31, 23, 59, 59),
        },
    ),
}


def test_values_of_all_types_come_as_they_were_committed(
    broker: LocalBroker, server: LocalPostgres, topic: str, tmp_path: Path
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        database = world.databases["a"]
        connections = DatabaseConnections("a", database.address, 10.0)
        with closing(PostgresSource("a", [database.topic], connections, 10.0)) as source:
            kafka = Kafka(database.bootstrap)
            source.begin(kafka, ends_of(kafka, {"": [database.topic]})[""], None)
            with database.connected() as connection:
                connection.execute("CREATE TYPE size AS ENUM ('small', 'Größe')")
                connection.execute(create_table(COLUMNS))
                connection.execute("ALTER TABLE typed REPLICA IDENTITY FULL")
                for statement in inserts(COLUMNS):
                    connection.execute(statement)
                connection.execute("UPDATE typed SET id = id + 100")
                connection.execute("UPDATE typed SET id = id - 100")
            database.wait_for_the_topic()
            assert_types(source, database, COLUMNS)
