"""The configuration of a Debezium connector for a MariaDB source."""

import zlib
from urllib.parse import quote

from sources.mariadb.connecting import address_in

#: What has to be so for the records to be what `sources/debezium` reads.
_NEEDED = {
    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
    # The views' first states are read from the database, not from the topic.
    "snapshot.mode": "no_data",
    "snapshot.locking.mode": "none",
    "provide.transaction.metadata": "true",
    "include.schema.changes": "false",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "decimal.handling.mode": "string",
    "bigint.unsigned.handling.mode": "long",
    "time.precision.mode": "adaptive_time_microseconds",
    "binary.handling.mode": "base64",
    # Year 1 is not 2001.
    "enable.time.adjuster": "false",
    # A statement that its parser does not know would end it, also one about another table.
    "schema.history.internal.skip.unparseable.ddl": "true",
    "schema.history.internal.store.only.captured.tables.ddl": "true",
    # An answer waits for its mark in the topic: the default of 500 ms would be felt.
    "poll.interval.ms": "10",
    "transforms": "one",
    "transforms.one.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.one.regex": ".*",
}
#: Connectors are replicas of the server, with numbers that nobody else has.
_FIRST_ID = 100_000_000


def connector(source: str, topic: str, address: str, bootstrap: str) -> dict[str, str]:
    """The configuration, with the login of an address."""
    place = address_in(address)
    return {
        **_NEEDED,
        "database.hostname": place.host,
        "database.port": str(place.port),
        "database.user": place.user or "debezium",
        "database.password": place.password,
        "database.ssl.mode": "verify_ca" if place.ssl_ca else "disable",
        "database.server.id": str(_FIRST_ID + zlib.crc32(topic.encode()) % _FIRST_ID),
        "database.include.list": place.database,
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"{topic}.schemas",
        "topic.prefix": quote(source, safe=""),
        "transforms.one.replacement": topic,
    }
