"""The job's view of Kafka: checks before the start, and the checked ends of topics."""

import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException

from protocols.errors import SourceViolation, Unreachable, WrongUse
from sources.topics import CLIENT_LOG, first_and_next, refuse_compacted

#: How long the broker may take to answer before it counts as away.
_PATIENCE = 15.0
#: A source that has just started creates its topic within this time.
_NEW_TOPIC_SECONDS = 5.0


def consumer(bootstrap: str, bounds: Mapping[str, int] | None = None) -> Consumer:
    """A consumer that belongs to no group and commits nothing; bounds are further settings."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
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


def ends_of_topics(bootstrap: str, topics: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Source → (first offset still there, next offset to be written), all topics checked."""
    asking = consumer(bootstrap)
    try:
        return {
            source: _ends_of(asking, bootstrap, source, topic) for source, topic in topics.items()
        }
    except KafkaException as error:
        raise Unreachable(
            f"no Kafka broker answers at {bootstrap} ({error.args[0].str()}); start it, or correct"
            " kafka.bootstrap"
        ) from None
    finally:
        asking.close()


def _ends_of(asking: Consumer, bootstrap: str, source: str, topic: str) -> tuple[int, int]:
    deadline = time.monotonic() + _NEW_TOPIC_SECONDS
    while (metadata := _metadata(asking, topic)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if metadata is None:
        raise WrongUse(
            f"source {source}: there is no topic {topic!r} on the broker at {bootstrap}; start the"
            f" source so that it publishes, or set sources.{source}.topic"
        )
    if len(metadata.partitions) != 1:
        raise SourceViolation(
            f"source {source}: topic {topic!r} has {len(metadata.partitions)} partitions; it must"
            " have exactly one, or the order of commits is lost. Recreate it with one partition"
        )
    try:
        refuse_compacted(bootstrap, topic, _PATIENCE)
    except WrongUse as error:
        raise WrongUse(f"source {source}: {error}") from None
    return first_and_next(asking, topic, _PATIENCE)


def _metadata(asking: Consumer, topic: str) -> Any:
    """The broker's metadata of a topic; None if it has no such topic."""
    found = asking.list_topics(topic, timeout=_PATIENCE).topics.get(topic)
    return None if found is None or found.error is not None else found


def refuse_lost(bootstrap: str, read: Mapping[str, int]) -> None:
    """SourceViolation if a topic has lost records that were read; `read`: topic → next offset.

    A broker that does not answer says nothing about its topics.
    """
    with closing(consumer(bootstrap)) as asking, suppress(KafkaException):
        for topic, offset in read.items():
            if _metadata(asking, topic) is None:
                raise lost(topic, "the broker has no such topic")
            _, end = first_and_next(asking, topic, _PATIENCE)
            if end < offset:
                raise lost(topic, f"it ends at offset {end}, and {offset} was reached before")


def lost(topic: str, reason: str) -> SourceViolation:
    """The error for a topic that has lost records while it was read."""
    return SourceViolation(
        f"topic {topic!r} was deleted, recreated or cut while it was read ({reason}). Its source"
        " creates the topic again, and fills it from version 1, with its next commit or at its next"
        " start. What is installed stays; then the same command goes on, or says why it cannot"
    )
