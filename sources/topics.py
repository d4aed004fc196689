"""The topics of sources: what a publisher creates, and what a warehouse checks and reads of them.

A topic keeps its records for ever, because those that a warehouse has not read exist nowhere else
in that form. It has one partition, or as many as its source was told.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# The package's type hints do not export these.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from protocols.errors import SourceViolation, Unreachable, WrongUse
from sources.access import admin, let_in
from sources.kafka import Kafka
from sources.partitions import Ends, Offsets, Partition

#: The largest record, in the topics created here and for their producers.
LARGEST_RECORD = 16 * 1024 * 1024
_FOR_GOOD = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(LARGEST_RECORD),
}

#: Errors for a topic that was just created, while some brokers do not know it yet.
_NOT_THERE_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
_MOMENT = 0.05
#: How long the broker may take to answer before it counts as away.
_PATIENCE = 15.0
#: A source that has just started creates its topic within this time.
_NEW_TOPIC_SECONDS = 5.0

#: The logger of all Kafka clients; without one librdkafka writes to stderr. Its own handler keeps
#: it silent until the process configures logging.
CLIENT_LOG = logging.getLogger(__name__ + ".librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())


# -- for a publisher -----------------------------------------------------------------------------


def ensure_topic(kafka: Kafka, topic: str, timeout: float, partitions: int = 1) -> None:
    """Creates the topic with so many partitions if it is missing.

    WrongUse if the topic is unusable as it is, Unreachable if the broker does not answer.
    """
    let_in(kafka, timeout)
    client = admin(kafka, CLIENT_LOG)
    try:
        found = _partitions(client, topic, timeout)
        if found == 0:
            _create(client, topic, timeout, partitions)
        else:
            refuse_compacted(kafka, topic, timeout)
    except KafkaException as error:
        raise Unreachable(f"topic {topic}: {error.args[0].str()}") from None
    if found not in (0, partitions):
        raise WrongUse(
            f"topic {topic} has {_counted(found)}, but this source publishes to"
            f" {_counted(partitions)}: pass --partitions {found}, name another topic, or delete"
            f" this one so that it is recreated with {_counted(partitions)}"
        )


def _counted(partitions: int) -> str:
    return "one partition" if partitions == 1 else f"{partitions} partitions"


def refuse_compacted(kafka: Kafka, topic: str, timeout: float) -> None:
    """WrongUse for a topic from which Kafka removes records."""
    client = admin(kafka, CLIENT_LOG)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = client.describe_configs([resource], request_timeout=timeout)[resource].result()
    except KafkaException:
        # The client may lack the permission; a lost record is still detected as a gap.
        return
    policy = found["cleanup.policy"].value if "cleanup.policy" in found else ""
    if "compact" in policy:
        raise WrongUse(
            f"topic {topic} is compacted (cleanup.policy={policy}): Kafka keeps only the"
            " last record of each key, and transactions lose the others. Set cleanup.policy=delete,"
            " or delete the topic: its source recreates it and fills it from version 1"
        )


class NoRecord(SourceViolation):
    """At an offset there is the mark of a transaction, or a record that was taken back."""


class TopicReader:
    """Reads single records of a partition, to check its content."""

    def __init__(self, kafka: Kafka, partition: Partition, timeout: float) -> None:
        self._partition, self._timeout = partition, timeout
        settings = {
            **kafka.consumer(),
            "group.id": "viewsweep-look",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
        self._consumer = Consumer(settings, logger=CLIENT_LOG)

    def __enter__(self) -> "TopicReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def ends(self) -> tuple[int, int]:
        """The first offset that still exists, and the one that is written next."""
        with self._failing():
            return first_and_next(self._consumer, self._partition, self._timeout)

    def value_at(self, offset: int) -> bytes:
        """The value of the record at this offset; SourceViolation for a tombstone.

        NoRecord where there is none.
        """
        with self._failing():
            return _value_at(self._consumer, self._partition, offset, self._timeout)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise Unreachable(f"topic {self._partition.topic}: {error.args[0].str()}") from None


def first_and_next(consumer: Consumer, partition: Partition, timeout: float) -> tuple[int, int]:
    """The first offset that still exists, and the one that is written next."""
    until = time.monotonic() + timeout
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(*partition), timeout)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE_YET or time.monotonic() > until:
                raise
            time.sleep(_MOMENT)
        else:
            return int(low), int(high)


def _partitions(client: AdminClient, topic: str, timeout: float) -> int:
    """The number of partitions; 0 if there is no such topic."""
    # Lists all topics: asking for this one by name could create it.
    metadata = client.list_topics(timeout=timeout).topics.get(topic)
    if metadata is None or _is(metadata.error, KafkaError.UNKNOWN_TOPIC_OR_PART):
        return 0
    return len(metadata.partitions)


def _create(client: AdminClient, topic: str, timeout: float, partitions: int) -> None:
    new = NewTopic(topic, partitions, replication_factor=-1, config=_FOR_GOOD)
    try:
        client.create_topics([new], request_timeout=timeout)[topic].result()
    except KafkaException as error:
        if _is(error.args[0], KafkaError.TOPIC_ALREADY_EXISTS):
            # Another client was faster: the next attempt checks its topic.
            raise Unreachable(f"topic {topic} is being created") from None
        if _is(error.args[0], KafkaError.TOPIC_EXCEPTION):
            raise WrongUse(
                f"topic {topic!r} cannot be created: {error.args[0].str()}; name another one"
            ) from None
        raise


def _value_at(consumer: Consumer, partition: Partition, offset: int, timeout: float) -> bytes:
    consumer.assign([TopicPartition(*partition, offset)])
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        message = consumer.poll(timeout / 10)
        if message is None:
            continue
        error = message.error()
        at_the_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is not None and not at_the_end:
            raise KafkaException(error)
        if at_the_end or message.offset() != offset:
            raise NoRecord(
                f"topic {partition.topic} has no record at offset {offset}: what is there belongs"
                " to a transaction of Kafka's, and no publisher writes those; name a topic that"
                " nobody else writes to"
            )
        value = message.value()
        if value is None:
            raise SourceViolation(
                f"topic {partition.topic}, offset {offset}: a tombstone, which no publisher writes;"
                " name a topic that nobody else writes to"
            )
        return bytes(value)
    raise Unreachable(f"topic {partition.topic}: offset {offset} was not read within {timeout:g} s")


def _is(error: Any, code: int) -> bool:
    return error is not None and error.code() == code


# -- for a warehouse -----------------------------------------------------------------------------


def consumer(kafka: Kafka, bounds: Mapping[str, Any] | None = None) -> Consumer:
    """A consumer that belongs to no group and commits nothing; bounds are further settings."""
    return Consumer(
        {
            **kafka.consumer(),
            "group.id": "viewsweep-lookahead",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 10,
            **(bounds or {}),
        },
        logger=CLIENT_LOG,
    )


def ends_of(kafka: Kafka, topics: Mapping[str, Sequence[str]]) -> dict[str, Ends]:
    """Source → the ends of all partitions of its topics, which are checked."""
    let_in(kafka, _PATIENCE)
    asking = consumer(kafka)
    try:
        return {
            source: {
                partition: first_and_next(asking, partition, _PATIENCE)
                for topic in names
                for partition in _partitions_of(asking, kafka, source, topic)
            }
            for source, names in topics.items()
        }
    except KafkaException as error:
        raise Unreachable(
            f"no Kafka broker answers at {kafka.bootstrap} ({error.args[0].str()}); start it, or"
            " correct kafka.bootstrap"
        ) from None
    finally:
        asking.close()


def _partitions_of(asking: Consumer, kafka: Kafka, source: str, topic: str) -> list[Partition]:
    deadline = time.monotonic() + _NEW_TOPIC_SECONDS
    while (metadata := _metadata(asking, topic)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if metadata is None:
        raise WrongUse(
            f"source {source}: there is no topic {topic!r} on the broker at {kafka.bootstrap};"
            f" create it, start the source so that it publishes, or correct sources.{source}.topic"
        )
    try:
        refuse_compacted(kafka, topic, _PATIENCE)
    except WrongUse as error:
        raise WrongUse(f"source {source}: {error}") from None
    return [Partition(topic, number) for number in sorted(metadata.partitions)]


def _metadata(asking: Consumer, topic: str) -> Any:
    """The broker's metadata of a topic; None if it has no such topic."""
    found = asking.list_topics(topic, timeout=_PATIENCE).topics.get(topic)
    return None if found is None or found.error is not None else found


def refuse_lost(kafka: Kafka, read: Offsets) -> None:
    """SourceViolation if a partition has lost records below these offsets, which were read.

    A broker that does not answer says nothing about its topics.
    """
    with closing(consumer(kafka)) as asking, suppress(KafkaException):
        for partition, offset in read.items():
            if _metadata(asking, partition.topic) is None:
                raise lost(partition.topic, "the broker has no such topic")
            _, end = first_and_next(asking, partition, _PATIENCE)
            if end < offset:
                reason = f"it ends at offset {end}, and {offset} was reached before"
                raise lost(partition.topic, reason)


def lost(topic: str, reason: str) -> SourceViolation:
    """The error for a topic that lost records while it was being read."""
    return SourceViolation(
        f"topic {topic!r} was deleted, recreated or cut while it was read ({reason}). Its source"
        " creates the topic again, and fills it from version 1, with its next commit or at its next"
        " start. Updates already in the view stay there. When the topic has been refilled, run the"
        " same command again: it resumes, or says why it cannot"
    )
