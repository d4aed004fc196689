"""Changes of topics that bypass publishers and jobs."""

from collections.abc import Sequence
from functools import cache

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from sources.partitions import Offsets
from sources.topics import CLIENT_LOG
from tests.harness.waiting import eventually, patience


@cache
def admin(bootstrap: str) -> AdminClient:
    """An admin client; it must stay alive, since its requests end with it."""
    return AdminClient({"bootstrap.servers": bootstrap}, logger=CLIENT_LOG)


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **settings: str) -> None:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
    admin(bootstrap).create_topics([new])[topic].result(patience())
    eventually(lambda: topic in admin(bootstrap).list_topics(timeout=10).topics)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin(bootstrap).delete_topics([topic])[topic].result(patience())
    eventually(lambda: topic not in admin(bootstrap).list_topics(timeout=10).topics)


def send(bootstrap: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap}, logger=CLIENT_LOG)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(patience()) == 0


def take_back(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Sends records in a transaction of Kafka's, and aborts it."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"taking-back-{topic}"}
    producer = Producer(settings, logger=CLIENT_LOG)
    producer.init_transactions(patience())
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(patience())
    producer.abort_transaction(patience())


def write_topic(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    """Creates a topic with these records."""
    make_topic(bootstrap, topic)
    send(bootstrap, topic, values)


def add_partitions(bootstrap: str, topic: str, partitions: int) -> None:
    """Gives a topic so many partitions."""
    new = NewPartitions(topic, partitions)
    admin(bootstrap).create_partitions([new])[topic].result(patience())
    eventually(
        lambda: (
            len(admin(bootstrap).list_topics(topic, timeout=10).topics[topic].partitions)
            == partitions
        )
    )


def delete_records(bootstrap: str, offsets: Offsets) -> None:
    """Deletes the records of partitions before these offsets, as retention does."""
    # The client looks up where a partition is in what it knows of the topic: maybe an earlier one.
    admin(bootstrap).list_topics(timeout=10)
    places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
    for deleted in admin(bootstrap).delete_records(places).values():
        deleted.result(patience())


def configure_topic(bootstrap: str, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin(bootstrap).incremental_alter_configs([resource])[resource].result(patience())
