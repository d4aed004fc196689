"""Topics for engines that read Debezium's `payload` form, and the topics that they write.

The base relations are one Kafka transaction and the burst another: it becomes visible all at once,
at its commit, which starts the clock. The engines write to a topic in which the broker stamps each
record on arrival, and the stamp of the last record stops the clock: one clock for all.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import polars as pl
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

# The package's type hints do not export these.
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.burst import Base, Burst
from protocols.algebra.delta import COUNT
from protocols.algebra.framelog import VERSION
from protocols.errors import Unreachable
from sources.topics import CLIENT_LOG

_RECORDS_AT_ONCE = 10_000
_ANSWER_WITHIN = 60.0
#: With the expected number of rows there, the output ends after so long without a record.
_QUIET_SECONDS = 2.0
#: With rows missing, it ends after so long without a record: they will not come.
_SILENT_SECONDS = 90.0
_BEFORE, _AFTER = "before", "after"
_RECORD = "_record"


class EngineTopics:
    """The topics of one run of one engine."""

    def __init__(self, bootstrap: str, burst: Burst, name: str) -> None:
        self._burst = burst
        self._bootstrap = bootstrap
        self.topics = {b.relation.source: f"{name}-{b.relation.source}" for b in burst.bases}
        self.out = f"{name}-out"
        self._create()
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
        }
        self._producer = Producer(settings, logger=CLIENT_LOG)
        self._producer.init_transactions(_ANSWER_WITHIN)

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap}, logger=CLIENT_LOG)
        stamped = {"message.timestamp.type": "LogAppendTime"}
        new = [NewTopic(topic, 1, 1) for topic in self.topics.values()]
        new.append(NewTopic(self.out, 1, 1, config=stamped))
        try:
            for made in admin.create_topics(new).values():
                made.result()
        except KafkaException as error:
            raise Unreachable(f"the topics of {self.out}: {error.args[0].str()}") from None

    def publish_base(self) -> None:
        """Publishes all rows that the relations begin with."""
        self._publish(lambda base: records(base, _inserted(base.rows)))

    def publish_burst(self) -> float:
        """Publishes the burst; returns the moment at which it became visible."""
        return self._publish(lambda base: records(base, base.changes))

    def _publish(self, of: Callable[[Base], pl.DataFrame]) -> float:
        self._producer.begin_transaction()
        for base in self._burst.bases:
            topic = self.topics[base.relation.source]
            for key, value in of(base).iter_rows():
                self._produce(topic, key, value)
        self._producer.flush()
        now = time.time()
        self._producer.commit_transaction()
        return now

    def _produce(self, topic: str, key: str, value: str) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition=0)
                return
            except BufferError:
                self._producer.poll(0.1)


def _inserted(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows as changes, each a transaction of its own."""
    ones = pl.lit(1, pl.Int64).alias(COUNT)
    return rows.with_columns(ones, pl.int_range(1, pl.len() + 1).alias(VERSION))


def records(base: Base, changes: pl.DataFrame) -> pl.DataFrame:
    """The records of single-row transactions: `key` and `value`, in order."""

    def images(sign: int, name: str) -> pl.DataFrame:
        rows = changes.filter(pl.col(COUNT) == sign)
        return rows.select(
            VERSION, pl.struct(base.names).struct.json_encode().alias(name), "number"
        )

    both = images(-1, _BEFORE).join(
        images(1, _AFTER), on=VERSION, how="full", coalesce=True, suffix="_new"
    )
    inserts = pl.when(pl.col(_BEFORE).is_null()).then(pl.lit("c"))
    kind = inserts.when(pl.col(_AFTER).is_null()).then(pl.lit("d")).otherwise(pl.lit("u"))
    source = f'{{"db":"{base.relation.source}","table":"{base.relation.name}"}}'
    value = pl.format(
        '<"payload":<"before":{},"after":{},"op":"{}","ts_ms":0,"source":{}>>',
        pl.col(_BEFORE).fill_null("null"),
        pl.col(_AFTER).fill_null("null"),
        kind,
        pl.lit(source),
    )
    key = pl.format('<"payload":<"number":{}>>', pl.coalesce("number_new", "number"))
    return both.sort(VERSION).select(_braces(key).alias("key"), _braces(value).alias("value"))


def _braces(text: pl.Expr) -> pl.Expr:
    """Puts braces for brackets: Polars' format cannot escape braces, and no text has brackets."""
    return text.str.replace_all("<", "{", literal=True).str.replace_all(">", "}", literal=True)


@dataclass
class EngineOutput:
    """An engine's output so far, decoded: view columns, `_count`, and `time` if it has one."""

    burst: Burst
    frames: list[pl.DataFrame] = field(default_factory=list)
    #: The number of rows of the view so far.
    rows: int = 0
    #: The time at which the last record reached the broker, in seconds since the epoch.
    last_stamp: float = 0.0

    def take(self, values: list[bytes], stamp: int) -> None:
        decoded = decoded_output(self.burst, values)
        self.frames.append(decoded)
        self.rows += int(decoded[COUNT].sum())
        self.last_stamp = stamp / 1000

    @property
    def changes(self) -> pl.DataFrame:
        return pl.concat(self.frames)


TIME = "time"


def decoded_output(burst: Burst, values: list[bytes]) -> pl.DataFrame:
    """Signed rows of the view from records of any of the engines.

    A record is either a flat row with `diff` (+1 if missing) and perhaps a `time` that groups the
    records of one update, or Debezium's `before` and `after`.
    """
    row = dict.fromkeys(burst.view.schema, pl.Int64())
    images = {_BEFORE: pl.Struct(row), _AFTER: pl.Struct(row)}
    schema: dict[str, pl.DataType] = {**row, "diff": pl.Int64(), TIME: pl.Int64(), **images}
    text = pl.Series("value", values, dtype=pl.Binary).cast(pl.String)
    cells = text.str.json_decode(pl.Struct(schema)).struct.unnest().with_row_index(_RECORD)
    flat = cells.filter(pl.col(_BEFORE).is_null() & pl.col(_AFTER).is_null())
    parts = [flat.select(*row, pl.col("diff").fill_null(1).alias(COUNT), TIME, _RECORD)]
    for image, sign in ((_BEFORE, -1), (_AFTER, 1)):
        there = cells.filter(pl.col(image).is_not_null())
        counted = (pl.lit(sign, pl.Int64).alias(COUNT), TIME, _RECORD)
        parts.append(there.select(pl.col(image), *counted).unnest(image))
    # States on the way need the records in the order of the topic.
    return pl.concat(parts).sort(_RECORD, maintain_order=True).drop(_RECORD)


class Drain:
    """Reads an engine's output."""

    def __init__(self, bootstrap: str, feed: EngineTopics, burst: Burst) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": feed.out,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        self._consumer = Consumer(settings, logger=CLIENT_LOG)
        self._consumer.assign([TopicPartition(feed.out, 0, 0)])
        self._burst = burst
        self._rows = 0

    def close(self) -> None:
        self._consumer.close()

    def until(self, rows: int, alive: Callable[[], None]) -> EngineOutput:
        """The output until the view has so many rows and no record comes any more.

        If the engine falls silent with another number of rows, returns the output so far, to be
        judged. `alive` raises when the engine has ended.
        """
        output = EngineOutput(self._burst, rows=self._rows)
        news = time.monotonic()
        for values, stamp in self._batches():
            if values:
                output.take(values, stamp)
                news = time.monotonic()
            alive()
            quiet = _QUIET_SECONDS if output.rows == rows else _SILENT_SECONDS
            if time.monotonic() - news > quiet:
                break
        self._rows = output.rows
        return output

    def _batches(self) -> Iterator[tuple[list[bytes], int]]:
        while True:
            messages = self._consumer.consume(_RECORDS_AT_ONCE, 0.2)
            good = [m for m in messages if m.error() is None]
            values = [bytes(m.value() or b"") for m in good]
            yield values, good[-1].timestamp()[1] if good else 0
