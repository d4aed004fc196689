"""Every type that docs/mariadb.md lists: in records and in answers as committed."""

import datetime
from contextlib import closing
from decimal import Decimal
from pathlib import Path

from infra.localbroker import LocalBroker
from infra.localmariadb import LocalMariaDB
from sources.kafka import Kafka
from sources.mariadb.connecting import DatabaseConnections
from sources.mariadb.source import MARKS, MariaDBSource
from sources.topics import ends_of
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld
from tests.harness.typed import TypedColumn, assert_types, create_table, inserts


def _numbers(stored: str, *values: int) -> TypedColumn:
    return TypedColumn(stored, "BIGINT", {str(value): value for value in values})


def _texts(stored: str, *values: str) -> TypedColumn:
    return TypedColumn(stored, "VARCHAR", {f"'{value}'": value for value in values})


def _times(stored: str, digits: int) -> TypedColumn:
    last = datetime.datetime(9999, 12, 31, 23, 59, 59)
    if stored.startswith("timestamp"):
        last = datetime.datetime(2038, 1, 19, 3, 14, 7)
    micros = int("123456"[:digits].ljust(6, "0"))
    values = [datetime.datetime(2024, 3, 31, 2, 30, 0, micros), last]
    return TypedColumn(stored, "TIMESTAMP", {f"'{value}'": value for value in values})


COLUMNS = {
    "ti": _numbers("tinyint", -128, 127),
    "tu": _numbers("tinyint unsigned", 0, 255),
    "t1": _numbers("tinyint(1)", 0, 1, 7),
    "si": _numbers("smallint", -32768, 32767),
    "su": _numbers("smallint unsigned", 65535),
    "mi": _numbers("mediumint", -8388608),
    "mu": _numbers("mediumint unsigned", 16777215),
    "it": _numbers("int", -2147483648),
    "iu": _numbers("int unsigned", 4294967295),
    "bi": _numbers("bigint", -(2**63), 2**63 - 1, 0),
    "bu": TypedColumn(
        "bigint unsigned",
        "DECIMAL(20,0)",
        {"0": Decimal(0), "18446744073709551615": Decimal(2**64 - 1)},
    ),
    "ye": _numbers("year", 1901, 2024),
    "fl": TypedColumn("float", "DOUBLE", {"0.1": 0.10000000149011612, "-1.25e10": -12499999744.0}),
    "db": TypedColumn(
        "double", "DOUBLE", {"0.1": 0.1, "-1.7976931348623157e308": -1.7976931348623157e308}
    ),
    "de": TypedColumn(
        "decimal(38,10)",
        "DECIMAL(38,10)",
        {
            "-1234.5": Decimal("-1234.5000000000"),
            "9999999999999999999999999999.9999999999": Decimal(
                "9999999999999999999999999999.9999999999"
            ),
        },
    ),
    "ch": _texts("char(5)", "ab", "", "äöüß€"),
    "vc": _texts("varchar(20)", "Ab", "ab", "ab ", " ab"),
    "la": _texts("varchar(20) CHARACTER SET latin1", "ä", "Ä", "a"),
    "te": _texts("text", "ä𝄞", "x" * 3000),
    "lo": _texts("longtext", "", "null"),
    "en": _texts("enum('small', 'Größe')", "small", "Größe"),
    "se": _texts("set('a', 'b', 'c')", "a,c", ""),
    "js": _texts("json", '{"a": [1, null]}'),
    "bo": TypedColumn("bit(1)", "BOOLEAN", {"b'0'": False, "b'1'": True}),
    "da": TypedColumn(
        "date",
        "DATE",
        {
            "'1000-01-01'": datetime.date(1000, 1, 1),
            "'2024-02-29'": datetime.date(2024, 2, 29),
            "'9999-12-31'": datetime.date(9999, 12, 31),
        },
    ),
    "d0": _times("datetime", 0),
    "d3": _times("datetime(3)", 3),
    "d6": _times("datetime(6)", 6),
    "s0": _times("timestamp NULL", 0),
    "s6": _times("timestamp(6) NULL", 6),
}


def test_values_of_all_types_come_as_they_were_committed(
    broker: LocalBroker, server: LocalMariaDB, topic: str, tmp_path: Path
) -> None:
    with DatabaseWorld(tmp_path, broker.bootstrap, topic, KEYED).on(server) as world:
        world.publish()
        database = world.databases["a"]
        connections = DatabaseConnections("a", database.address, 10.0, MARKS)
        with closing(MariaDBSource("a", [database.topic], connections, 10.0)) as source:
            kafka = Kafka(database.bootstrap)
            source.begin(kafka, ends_of(kafka, {"": [database.topic]})[""], None)
            with database.cursor() as cursor:
                # What a value is does not depend on a session's time zone.
                cursor.execute("SET time_zone = '+00:00'")
                for statement in [create_table(COLUMNS), *inserts(COLUMNS)]:
                    cursor.execute(statement)
                cursor.execute("UPDATE typed SET id = id + 100")
                cursor.execute("UPDATE typed SET id = id - 100")
            database.wait_for_the_topic()
            assert_types(source, database, COLUMNS)
