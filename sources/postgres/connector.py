"""The configuration of a Debezium connector for a PostgreSQL source."""

from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

#: What has to be so for the records to be what `sources/debezium` reads.
_NEEDED = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    # The views' first states are read from the database, not from the topic.
    "snapshot.mode": "no_data",
    "provide.transaction.metadata": "true",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "decimal.handling.mode": "string",
    "time.precision.mode": "adaptive",
    "interval.handling.mode": "string",
    # An answer waits for its message in the topic: the default of 500 ms would be felt.
    "poll.interval.ms": "10",
    "transforms": "one",
    "transforms.one.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.one.regex": ".*",
}


def connector(
    source: str, topic: str, dsn: str, slot: str = "viewsweep", publication: str = "viewsweep"
) -> dict[str, str]:
    """The configuration, with the login of an address."""
    place = conninfo_to_dict(dsn)
    login = {
        "database.hostname": str(place.get("host", "localhost")),
        "database.port": str(place.get("port", 5432)),
        "database.user": str(place.get("user", "debezium")),
        "database.password": str(place.get("password", "")),
        "database.dbname": str(place.get("dbname", "postgres")),
    }
    return {
        **_NEEDED,
        **login,
        "topic.prefix": quote(source, safe=""),
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "transforms.one.replacement": topic,
    }
