"""A source that is not ours: an SQLite file, its commits in Kafka, its rows over Arrow Flight.

    python examples/sqlite_source.py shop.sqlite --broker 127.0.0.1:9092 --port 8820

docs/sources.md explains every message. Each line of standard input is committed as one transaction:
`put 1 pen 150` adds item 1 or changes it, `del 1` removes it.
"""

import argparse
import io
import json
import sqlite3
import sys
import threading
import time

import confluent_kafka
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import flight

SOURCE, RELATION, KEY = "shop", "item", "id"
COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "price": "BIGINT"}
ARROW = {"BIGINT": pa.int64(), "VARCHAR": pa.string()}
FORM = {"columns": COLUMNS, "key": [KEY]}
SCHEMA = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);
    CREATE TABLE IF NOT EXISTS outbox (version INTEGER PRIMARY KEY, record TEXT);
"""
VERSION = "SELECT coalesce(max(version), 0) FROM outbox"


def commit(database: sqlite3.Connection, line: str) -> None:
    """One change of one row, and its record, in one transaction: both are there or neither."""
    verb, id_, *values = line.split()
    with database:
        database.execute("BEGIN IMMEDIATE")
        before = image(database, int(id_))
        if verb == "put":
            name, price = values
            database.execute("REPLACE INTO item VALUES (?, ?, ?)", [int(id_), name, int(price)])
        else:
            database.execute("DELETE FROM item WHERE id = ?", [int(id_)])
        after = image(database, int(id_))
        if before != after:
            [(last,)] = database.execute(VERSION)
            text = json.dumps(record(last + 1, before, after))
            database.execute("INSERT INTO outbox VALUES (?, ?)", [last + 1, text])


def image(database: sqlite3.Connection, id_: int) -> dict | None:
    """The row with this key as it is now."""
    row = database.execute("SELECT id, name, price FROM item WHERE id = ?", [id_]).fetchone()
    return None if row is None else dict(zip(COLUMNS, row, strict=True))


def record(version: int, before: dict | None, after: dict | None) -> dict:
    """The only record of a transaction that changes one row."""
    now = time.time_ns() // 1_000_000
    return {
        "before": before,
        "after": after,
        "op": "c" if before is None else "d" if after is None else "u",
        "ts_ms": now,
        "source": {"db": SOURCE, "table": RELATION, "version": version, "ts_ms": now},
        "transaction": {"id": f"{SOURCE}:{version}", "total_order": 1, "event_count": 1},
    }


class Publisher(threading.Thread):
    """Sends the outbox in order. After a restart it sends all of it again: repetitions are fine."""

    def __init__(self, file: str, broker: str) -> None:
        super().__init__(daemon=True)
        self._file, self._broker = file, {"bootstrap.servers": broker}
        self.published = 0

    def run(self) -> None:
        """Until the process ends."""
        # One partition, so that the topic has the order of the commits. It may be there already.
        admin = AdminClient(self._broker)
        admin.create_topics([NewTopic(SOURCE, num_partitions=1)])[SOURCE].exception()
        producer = confluent_kafka.Producer(self._broker | {"enable.idempotence": True})
        database = sqlite3.connect(self._file)
        sql = "SELECT version, record FROM outbox WHERE version > ? ORDER BY version"
        while True:
            waiting = database.execute(sql, [self.published]).fetchall()
            # What fails is sent again, with all that came after it.
            if waiting and arrived(producer, [text for _, text in waiting]):
                self.published, _ = waiting[-1]
            time.sleep(0.05)


def arrived(producer: confluent_kafka.Producer, records: list[str]) -> bool:
    """Sends the records and says whether the topic has all of them."""
    outcomes: list[object] = []
    for text in records:
        producer.produce(SOURCE, text, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush()
    return outcomes == [None] * len(records)


class QueryServer(flight.FlightServerBase):
    """Answers questions about the relation as it is now."""

    def __init__(self, file: str, port: int, publisher: Publisher) -> None:
        super().__init__(f"grpc://127.0.0.1:{port}")
        self._file, self._publisher = file, publisher

    def do_action(self, _context: object, action: flight.Action) -> list[bytes]:
        """`status`: what there is."""
        if action.type != "status":
            raise flight.FlightServerError(f"no action {action.type}", extra_info=b"refused")
        [(version,)] = sqlite3.connect(self._file).execute(VERSION)
        status = {"source": SOURCE, "version": version, "published": self._publisher.published}
        status |= {"topic": SOURCE, "relations": {RELATION: FORM}, "indexes": {}}
        return [json.dumps(status).encode()]

    def do_get(self, _context: object, ticket: flight.Ticket) -> flight.RecordBatchStream:
        """The rows that a question asks for, and the version that they were read at."""
        line, _, streams = ticket.ticket.partition(b"\n")
        question = json.loads(line)
        try:
            sql, parameters = select(question, io.BytesIO(streams))
        except (KeyError, TypeError, ValueError) as error:
            # Marked as refused, it is not asked again.
            fault = f"not understood: {error}"
            raise flight.FlightServerError(fault, extra_info=b"refused") from None
        database = sqlite3.connect(self._file, isolation_level=None)
        database.execute("BEGIN")  # both SELECTs see one state
        [(version,)] = database.execute(VERSION)
        rows = database.execute(sql, parameters).fetchall()
        fields = [pa.field(name, ARROW[COLUMNS[name]]) for name in question["columns"]]
        fields = fields or [pa.field("_count", pa.int64())]
        columns = list(zip(*rows, strict=True)) or [[] for _ in fields]
        schema = pa.schema(fields, {"version": str(version)})
        return flight.RecordBatchStream(
            pa.table(list(map(pa.array, columns, schema.types)), schema)
        )


def select(question: dict, streams: io.BytesIO) -> tuple[str, list]:
    """The question in SQL; no value of it gets into the text."""
    if question.get("schema") != FORM or not set(question["columns"]) <= set(COLUMNS):
        raise ValueError(f"{RELATION} is {FORM}")
    where, parameters = ["true"], []
    if question["condition"] is not None:
        where.append(condition(question["condition"], parameters))
    if question["keys"] is not None:
        sets = [pa.ipc.open_stream(streams.read(size)).read_all() for size in question["keys"]]
        where.append(" OR ".join(matching(keys, parameters) for keys in sets) or "false")
    # A question for no columns wants to know how many rows there are: a count of 1 for each.
    columns = ", ".join(question["columns"]) or "1 AS _count"
    sql = f"SELECT {columns} FROM item WHERE " + " AND ".join(f"({part})" for part in where)
    if question["page"] is not None:
        after = question["page"]["after"]
        sql += f" AND {'true' if after is None else f'{KEY} > ?'} ORDER BY {KEY} LIMIT ?"
        parameters += [*(after or []), question["page"]["limit"]]
    return sql, parameters


def matching(keys: pa.Table, parameters: list) -> str:
    """Whether a row matches one of these keys."""
    parts = ", ".join(f"value ->> {number}" for number in range(keys.num_columns))
    parameters.append(json.dumps(list(zip(*keys.to_pydict().values(), strict=True))))
    return f"({', '.join(keys.column_names)}) IN (SELECT {parts} FROM json_each(?))"


def condition(form: list, parameters: list) -> str:
    """A condition in SQL; `viewsweep explain` shows which ones a view asks with."""
    match form:
        case ["and" | "or" as word, *parts]:
            return f" {word} ".join(f"({condition(part, parameters)})" for part in parts)
        case ["not", part]:
            return f"NOT ({condition(part, parameters)})"
        case ["is null", operand]:
            return f"{value(operand, parameters)} IS NULL"
        case ["in", operand, {"values": constants}]:
            text = value(operand, parameters)
            parameters.extend(constants)
            return f"{text} IN ({', '.join('?' * len(constants))})"
        case ["=" | "<>" | "<" | "<=" | ">" | ">=" as sign, left, right]:
            return f"{value(left, parameters)} {sign} {value(right, parameters)}"
    raise ValueError(f"condition {form}")


def value(form: dict, parameters: list) -> str:
    """A column or a constant in SQL."""
    match form:
        case {"column": name} if name in COLUMNS:
            return name
        case {"value": constant, "type": _}:
            parameters.append(constant)
            return "?"
    raise ValueError(f"value {form}")


def main() -> None:
    """Answers and publishes, and commits what standard input says."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("file")
    options.add_argument("--broker", default="127.0.0.1:9092")
    options.add_argument("--port", type=int, default=8820)
    given = options.parse_args()
    database = sqlite3.connect(given.file, isolation_level=None)
    database.executescript(SCHEMA)
    publisher = Publisher(given.file, given.broker)
    publisher.start()
    server = QueryServer(given.file, given.port, publisher)
    print(f"{SOURCE} answers at grpc://127.0.0.1:{server.port}", flush=True)
    for line in sys.stdin:
        commit(database, line)


if __name__ == "__main__":
    main()
