"""The topic of a source. It has one partition, because its order is the order of commits, and keeps
its records for ever, because those that a warehouse has not read exist nowhere else in that form.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

# The package's type hints do not export these.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from protocols.errors import SourceViolation, Unreachable, WrongUse

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

#: The logger of all Kafka clients; without one librdkafka writes to stderr. Its own handler keeps
#: it silent until the process configures logging.
CLIENT_LOG = logging.getLogger(__name__ + ".librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())


def ensure_topic(bootstrap: str, topic: str, timeout: float) -> None:
    """Creates the topic if it is missing.

    WrongUse if the topic is unusable as it is, Unreachable if the broker does not answer.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=CLIENT_LOG)
    try:
        partitions = _partitions(admin, topic, timeout)
        if partitions == 0:
            _create(admin, topic, timeout)
        else:
            refuse_compacted(bootstrap, topic, timeout)
    except KafkaException as error:
        raise Unreachable(f"topic {topic}: {error.args[0].str()}") from None
    if partitions > 1:
        raise WrongUse(
            f"topic {topic} has {partitions} partitions, and a source's commits have one order:"
            " name another topic, or delete this one, and it is recreated with one partition"
        )


def refuse_compacted(bootstrap: str, topic: str, timeout: float) -> None:
    """WrongUse for a topic from which Kafka removes records."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=CLIENT_LOG)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=timeout)[resource].result()
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


class TopicReader:
    """Reads single records of a topic, to check its content."""

    def __init__(self, bootstrap: str, topic: str, timeout: float) -> None:
        self._topic, self._timeout = topic, timeout
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "viewsweep-look",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
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
            return first_and_next(self._consumer, self._topic, self._timeout)

    def value_at(self, offset: int) -> bytes:
        """The value of the record at this offset; SourceViolation for a tombstone."""
        with self._failing():
            return _value_at(self._consumer, self._topic, offset, self._timeout)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise Unreachable(f"topic {self._topic}: {error.args[0].str()}") from None


def first_and_next(consumer: Consumer, topic: str, timeout: float) -> tuple[int, int]:
    """The first offset that still exists, and the one that is written next."""
    until = time.monotonic() + timeout
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE_YET or time.monotonic() > until:
                raise
            time.sleep(_MOMENT)
        else:
            return int(low), int(high)


def _partitions(admin: AdminClient, topic: str, timeout: float) -> int:
    """The number of partitions; 0 if there is no such topic."""
    # Lists all topics: asking for this one by name could create it.
    metadata = admin.list_topics(timeout=timeout).topics.get(topic)
    if metadata is None or _is(metadata.error, KafkaError.UNKNOWN_TOPIC_OR_PART):
        return 0
    return len(metadata.partitions)


def _create(admin: AdminClient, topic: str, timeout: float) -> None:
    new = NewTopic(topic, num_partitions=1, replication_factor=-1, config=_FOR_GOOD)
    try:
        admin.create_topics([new], request_timeout=timeout)[topic].result()
    except KafkaException as error:
        if _is(error.args[0], KafkaError.TOPIC_ALREADY_EXISTS):
            # Another client was faster: the next attempt checks its topic.
            raise Unreachable(f"topic {topic} is being created") from None
        if _is(error.args[0], KafkaError.TOPIC_EXCEPTION):
            raise WrongUse(
                f"topic {topic!r} cannot be created: {error.args[0].str()}; name another one"
            ) from None
        raise


def _value_at(consumer: Consumer, topic: str, offset: int, timeout: float) -> bytes:
    consumer.assign([TopicPartition(topic, 0, offset)])
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        message = consumer.poll(timeout / 10)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        value = message.value()
        if value is None:
            raise SourceViolation(
                f"topic {topic}, offset {offset}: a tombstone, which no publisher writes;"
                " name a topic that nobody else writes to"
            )
        return bytes(value)
    raise Unreachable(f"topic {topic}: offset {offset} was not read within {timeout:g} s")


def _is(error: Any, code: int) -> bool:
    return error is not None and error.code() == code
