"""The records of topics as Spark would put them into batches, cut as a test likes."""

import random
import time
from contextlib import closing

import polars as pl
from confluent_kafka import Consumer, TopicPartition

from sources.partitions import Offsets, Partition
from sources.topics import CLIENT_LOG
from tests.harness.waiting import patience


def whole_topic(bootstrap: str, topic: str) -> pl.DataFrame:
    """All records of a topic of one partition."""
    return records(bootstrap, {Partition(topic): 0})


def records(bootstrap: str, offsets: Offsets) -> pl.DataFrame:
    """The records in the partitions from these offsets on, as Spark returns them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
    }
    found: list[tuple[str | None, int | None, int | None, bytes | None]] = []
    with closing(Consumer(settings, logger=CLIENT_LOG)) as consumer:
        # Without this, the first request for each topic waits half a second for its leader.
        consumer.list_topics(timeout=30)
        for partition, offset in offsets.items():
            _, end = consumer.get_watermark_offsets(TopicPartition(*partition), 30)
            consumer.assign([TopicPartition(*partition, offset)])
            until, at = time.monotonic() + patience(), offset
            # The last offsets may have no records: Kafka's transactions take some for themselves.
            while at < end:
                assert time.monotonic() < until
                message = consumer.poll(0.2)
                if message is None:
                    continue
                at = int(message.offset() or 0) + (not message.error())
                if not message.error() and at <= end:
                    place = message.topic(), message.partition(), message.offset()
                    found.append((*place, message.value()))
    schema = {"topic": pl.String, "partition": pl.Int64, "offset": pl.Int64, "value": pl.Binary}
    return pl.DataFrame(found, schema=schema, orient="row")


def ends(batch: pl.DataFrame) -> dict[Partition, int]:
    """The offsets after the last of these records."""
    last = batch.group_by("topic", "partition").agg(pl.col("offset").max() + 1)
    return {Partition(topic, number): end for topic, number, end in last.iter_rows()}


def cut(batch: pl.DataFrame, dice: random.Random, batches: int) -> list[pl.DataFrame]:
    """Cuts the records into batches, each with a stretch of every partition (or none of it)."""
    parts: list[list[pl.DataFrame]] = [[] for _ in range(batches)]
    for part in batch.partition_by("topic", "partition", maintain_order=True):
        edges = sorted(dice.randint(0, part.height) for _ in range(batches - 1))
        borders = [0, *edges, part.height]
        for number in range(batches):
            parts[number].append(part[borders[number] : borders[number + 1]])
    return [pl.concat(dice.sample(part, len(part))) for part in parts]
