"""The topic, read with another Kafka client, has the commits of the source."""

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from infra.localbroker import LocalBroker, free_port
from protocols.errors import SourceViolation, WrongUse
from protocols.views.catalog import catalog_from_json
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.simulated import publisher
from sources.simulated.database import SourceDatabase
from sources.simulated.publisher import Publisher
from sources.topics import TopicReader, ends_of, ensure_topic
from sources.transaction import RowChange, Transaction
from tests.harness.waiting import eventually, patience

with warnings.catch_warnings():
    # kafka-python reads the files of its protocol with importlib.resources.read_text.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

CATALOG = catalog_from_json(
    {
        "s": {
            "relations": {
                "keyed": {"columns": {"id": "BIGINT", "x": "VARCHAR"}, "key": ["id"]},
                "bag": {"columns": {"x": "VARCHAR"}},
            }
        }
    }
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SourceDatabase]:
    with SourceDatabase.create(tmp_path / "s.duckdb", "s", CATALOG, {}) as created:
        yield created


class Publishing:
    """A publisher for the length of a `with`, and its reports."""

    def __init__(self, database: SourceDatabase, bootstrap: str, topic: str) -> None:
        self.reports: list[str] = []
        self.publisher = Publisher(database, Kafka(bootstrap), topic, self.reports.append)
        self._database = database

    def __enter__(self) -> "Publishing":
        self.publisher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.publisher.stop()

    def wait(self) -> None:
        """Waits until everything committed is known to be published."""
        eventually(lambda: self._database.published == self._database.version)
        assert self.publisher.error is None


def _commit(database: SourceDatabase, versions: int, rows: int = 1) -> None:
    """Commits transactions that insert rows with the number of the next version."""
    first = database.version + 1
    database.commit_many(
        [
            Transaction(
                tuple(RowChange("keyed", (1000 * version + n, "x"), 1) for n in range(rows))
            )
            for version in range(first, first + versions)
        ]
    )


def _read(bootstrap: str, topic: str) -> list[Any]:
    """All messages of the topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    messages: list[Any] = []
    while consumer.position(partition) < end:
        messages += consumer.poll(1000).get(partition, [])
    consumer.close()
    return messages


def _places(messages: list[Any]) -> list[tuple[int, int, int]]:
    """(version, order, count) of each record."""
    contents = [orjson.loads(message.value) for message in messages]
    return [
        (
            content["source"]["version"],
            content["transaction"]["total_order"],
            content["transaction"]["event_count"],
        )
        for content in contents
    ]


def _expected(versions: int, rows: int = 1) -> list[tuple[int, int, int]]:
    return [(v, n, rows) for v in range(1, versions + 1) for n in range(1, rows + 1)]


def _create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    admin.close()


def _delete_topic(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.delete_topics([topic])
    admin.close()


def _send(bootstrap: str, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, value).get(patience())
    producer.close()


# ------------------------------------------------------------------------------------- claims


def test_a_topic_may_be_asked_for_its_ends_as_soon_as_it_was_created(
    broker: LocalBroker, topic: str
) -> None:
    """For a moment a broker may say that it does not lead or know one of many new topics."""
    names = _new_topics(broker, topic)
    for name in (names[-1], names[0]):
        with TopicReader(Kafka(broker.bootstrap), Partition(name), patience()) as reader:
            assert reader.ends() == (0, 0)


def test_a_job_may_ask_for_them_as_well(broker: LocalBroker, topic: str) -> None:
    names = _new_topics(broker, topic)
    ends = ends_of(Kafka(broker.bootstrap), {"a": [names[-1]], "b": [names[0]]})
    assert ends == {"a": {Partition(names[-1]): (0, 0)}, "b": {Partition(names[0]): (0, 0)}}


def _new_topics(broker: LocalBroker, prefix: str) -> list[str]:
    names = [f"{prefix}-{number}" for number in range(100)]
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(each, num_partitions=1, replication_factor=1) for each in names])
    admin.close()
    return names


def test_the_topic_holds_the_outbox_in_order(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    _commit(database, 500, rows=3)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        _commit(database, 500, rows=3)
        publishing.wait()
    messages = _read(broker.bootstrap, topic)
    assert [message.value for message in messages] == [
        record for _, record in database.outbox(0, 10_000)
    ]
    assert _places(messages) == _expected(1000, rows=3)
    assert publishing.reports == []


def test_the_message_key_is_the_key_of_the_row(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    database.commit(Transaction((RowChange("keyed", (7, "x"), 1), RowChange("bag", ("x",), 2))))
    with Publishing(database, broker.bootstrap, topic) as publishing:
        publishing.wait()
    keys = [message.key for message in _read(broker.bootstrap, topic)]
    assert keys == [b'{"id":7}', None, None]


def test_a_topic_that_is_missing_is_made_with_one_partition_and_kept_for_good(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    _commit(database, 1)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        publishing.wait()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    assert consumer.partitions_for_topic(topic) == {0}
    consumer.close()


def test_a_topic_with_two_partitions_is_refused(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    _create_topic(broker.bootstrap, topic, partitions=2)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        eventually(lambda: publishing.publisher.error is not None)
    assert isinstance(publishing.publisher.error, WrongUse)
    assert f"topic {topic} has 2 partitions" in str(publishing.publisher.error)
    assert len(publishing.reports) == 1


def test_a_new_start_goes_on_where_the_topic_ends(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    for _ in range(4):
        with Publishing(database, broker.bootstrap, topic):
            _commit(database, 200)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        publishing.wait()
    assert _gapless(_places(_read(broker.bootstrap, topic))) == _expected(800)


def _gapless(places: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The records without repetitions; each is followed by its successor or by an earlier one."""
    first_seen = list(dict.fromkeys(places))
    assert first_seen == sorted(first_seen)
    return first_seen


_ENDLESS = """
import sys
from pathlib import Path
from sources.kafka import Kafka
from sources.simulated import publisher
from sources.simulated.database import SourceDatabase
from sources.simulated.publisher import Publisher
from sources.transaction import RowChange, Transaction
database = SourceDatabase.open(Path(sys.argv[1]))
Publisher(database, Kafka(sys.argv[2]), sys.argv[3]).start()
while True:
    rows = [(1000 * (database.version + 1) + n, "x") for n in range(3)]
    database.commit(Transaction(tuple(RowChange("keyed", row, 1) for row in rows)))
    if database.version % 50 == 0:
        print(database.version, flush=True)
"""


def test_a_killed_process_leaves_neither_hole_nor_disorder(
    broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.duckdb"
    SourceDatabase.create(path, "s", CATALOG, {}).close()
    dice = random.Random(5)
    for _ in range(5):
        command = [sys.executable, "-c", _ENDLESS, str(path), broker.bootstrap, topic]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(dice.random())
            os.kill(child.pid, signal.SIGKILL)
    with SourceDatabase.open(path) as database:
        with Publishing(database, broker.bootstrap, topic) as publishing:
            publishing.wait()
        places = _places(_read(broker.bootstrap, topic))
        assert _gapless(places) == _expected(database.version, rows=3)


def test_a_killed_broker_leaves_no_hole(
    mortal_broker: LocalBroker,
    topic: str,
    database: SourceDatabase,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Publishing(database, mortal_broker.bootstrap, topic) as publishing:
        _commit(database, 20_000)
        eventually(lambda: database.published > 0)
        mortal_broker.kill()
        _commit(database, 100)
        eventually(lambda: len(publishing.reports) == 1)
        mortal_broker.restart()
        _commit(database, 100)
        publishing.wait()
    assert _gapless(_places(_read(mortal_broker.bootstrap, topic))) == _expected(20_200)
    lost, back = publishing.reports
    assert "cannot publish" in lost
    assert "publishing again" in back
    assert "rdkafka#" not in capfd.readouterr().err


def test_without_a_broker_commits_go_on_and_one_message_says_so(
    topic: str, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def noting(kafka: Kafka, topic: str, seconds: float, partitions: int) -> None:
        tried.append(topic)
        ensure_topic(kafka, topic, seconds, partitions)

    monkeypatch.setattr(publisher, "_ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(publisher, "ensure_topic", noting)
    with Publishing(database, f"127.0.0.1:{free_port()}", topic) as publishing:
        eventually(lambda: len(publishing.reports) == 1)
        _commit(database, 100)
        assert publishing.publisher.outage is not None
        before = len(tried)
        eventually(lambda: len(tried) > before + 2, "it has failed twice more")
    assert database.version == 100
    assert database.published == 0
    assert len(publishing.reports) == 1


def test_a_deleted_topic_is_filled_again_from_version_1(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    with Publishing(database, broker.bootstrap, topic) as publishing:
        _commit(database, 100)
        publishing.wait()
        _delete_topic(broker.bootstrap, topic)
        _commit(database, 100)
        publishing.wait()
    assert _gapless(_places(_read(broker.bootstrap, topic))) == _expected(200)
    assert any("sending the lost records again" in report for report in publishing.reports)


def test_a_topic_made_anew_behind_its_back_is_noticed(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    _commit(database, 2)
    _create_topic(broker.bootstrap, topic, partitions=1)
    [_, (_, second)] = database.outbox(0, 10)
    _send(broker.bootstrap, topic, second)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        eventually(lambda: publishing.publisher.error is not None)
    assert isinstance(publishing.publisher.error, SourceViolation)
    assert "begins with version 2 of source s" in str(publishing.publisher.error)


def test_a_half_transaction_at_the_end_is_sent_again_whole(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    _commit(database, 2, rows=2)
    _create_topic(broker.bootstrap, topic, partitions=1)
    for _, record in database.outbox(0, 10)[:3]:
        _send(broker.bootstrap, topic, record)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        publishing.wait()
    places = _places(_read(broker.bootstrap, topic))
    assert places == [(1, 1, 2), (1, 2, 2), (2, 1, 2), (2, 1, 2), (2, 2, 2)]


def test_a_source_that_is_behind_its_topic_was_reset(
    broker: LocalBroker, topic: str, database: SourceDatabase, tmp_path: Path
) -> None:
    _commit(database, 3)
    with Publishing(database, broker.bootstrap, topic) as publishing:
        publishing.wait()
    with (
        SourceDatabase.create(tmp_path / "again.duckdb", "s", CATALOG, {}) as reset,
        Publishing(reset, broker.bootstrap, topic) as again,
    ):
        eventually(lambda: again.publisher.error is not None)
    assert "the source was reset" in str(again.publisher.error)


def test_a_topic_with_somebody_elses_records_is_refused(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    _create_topic(broker.bootstrap, topic, partitions=1)
    _send(broker.bootstrap, topic, b"hello")
    with Publishing(database, broker.bootstrap, topic) as publishing:
        eventually(lambda: publishing.publisher.error is not None)
    assert f"topic {topic} holds a record that is not ours" in str(publishing.publisher.error)


def test_a_record_too_large_for_the_topic_ends_publishing_with_its_version(
    broker: LocalBroker, topic: str, database: SourceDatabase
) -> None:
    with Publishing(database, broker.bootstrap, topic) as publishing:
        _commit(database, 1)
        database.commit(Transaction((RowChange("bag", ("x" * 17_000_000,), 1),)))
        eventually(lambda: publishing.publisher.error is not None)
    assert "a record of version 2 is larger" in str(publishing.publisher.error)
    assert database.published <= 1
