"""Does the local broker keep what it acknowledged, stay on this machine, and end with its owner?

kafka-python reads the records of confluent-kafka, so that no client is its own witness.
"""

import signal
import socket
import subprocess
import sys
import time
import uuid
import warnings
from base64 import urlsafe_b64decode
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from infra.broker import BROKER_VARIABLE, which_broker
from infra.brokercheck import answers
from infra.errors import InfraError
from infra.localbroker import LOOPBACK, LocalBroker, free_port
from infra.progress import silent
from tests.harness.waiting import eventually, patience

with warnings.catch_warnings():
    # On import kafka-python reads its schemas with a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition


TOPIC = "claims"


def create_topic(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(patience())


def produce(bootstrap: str, values: list[str]) -> None:
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=on_delivery)
    assert producer.flush(patience()) == 0
    assert not failed


def consume(bootstrap: str, count: int) -> list[str]:
    """All values of the topic up to its end, at least `count`."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        values: list[str] = []
        deadline = time.monotonic() + patience()
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value.decode() for record in records]
        assert consumer.end_offsets([partition])[partition] == len(values)
        return values
    finally:
        consumer.close()


def processes_that_mention(text: str) -> list[psutil.Process]:
    processes = psutil.process_iter(["cmdline"])
    return [each for each in processes if text in " ".join(each.info["cmdline"] or ())]


def test_what_one_client_wrote_another_reads_in_order(broker: LocalBroker) -> None:
    create_topic(broker.bootstrap)
    values = [f"v{i}" for i in range(1000)]
    produce(broker.bootstrap, values)
    assert consume(broker.bootstrap, 1000) == values


def test_a_broker_killed_and_restarted_has_everything_it_acknowledged(
    mortal_broker: LocalBroker,
) -> None:
    create_topic(mortal_broker.bootstrap)
    before = mortal_broker.bootstrap
    produce(before, ["acknowledged"])
    mortal_broker.kill()
    assert not answers(before, seconds=0.5), "or it was not killed, and nothing is tested"
    mortal_broker.restart()
    assert mortal_broker.bootstrap == before
    produce(before, ["later"])
    assert consume(before, 2) == ["acknowledged", "later"]


def test_a_new_broker_on_the_same_directory_has_the_data(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as first:
        create_topic(first.bootstrap)
        produce(first.bootstrap, ["kept"])
    with LocalBroker(tmp_path) as second:
        assert consume(second.bootstrap, 1) == ["kept"]


def test_a_broker_of_nobodys_directory_leaves_nothing_behind() -> None:
    with LocalBroker() as broker:
        directory = broker.data
        assert processes_that_mention(str(directory))
    assert not directory.exists()
    assert not processes_that_mention(str(directory))


OWNER = """
import sys, time
from pathlib import Path
from infra.localbroker import LocalBroker
broker = LocalBroker(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
broker.start()
print(broker.data, flush=True)
time.sleep(600)
"""


def owner_killed_while_its_broker_ran(*arguments: str) -> str:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, *arguments], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        try:
            directory = owner.stdout.readline().strip()
            assert processes_that_mention(f"{directory}/server.properties")
        finally:
            owner.send_signal(signal.SIGKILL)
    return directory


def test_a_killed_owner_takes_its_broker_along() -> None:
    directory = owner_killed_while_its_broker_ran()
    eventually(lambda: not processes_that_mention(directory))
    eventually(lambda: not Path(directory).exists())


def test_the_data_of_a_killed_owner_are_there_for_the_next_one(tmp_path: Path) -> None:
    """At once: the next owner waits until the old broker is gone, and then takes its directory."""
    owner_killed_while_its_broker_ran(str(tmp_path))
    with LocalBroker(tmp_path) as broker:
        create_topic(broker.bootstrap)


def test_a_killed_watchdog_takes_the_broker_along(mortal_broker: LocalBroker) -> None:
    watchdog = java_of(mortal_broker).parent()
    assert watchdog is not None
    watchdog.kill()
    eventually(lambda: not processes_that_mention(str(mortal_broker.data)))


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is a loopback address there only")
def test_the_broker_listens_on_no_address_but_loopbacks_first(broker: LocalBroker) -> None:
    """A wildcard address would answer on 127.0.0.2; the kernel's table shows any other address."""
    port = int(broker.bootstrap.rpartition(":")[2])
    with socket.create_connection((LOOPBACK, port), timeout=patience()):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=patience())
    assert listened_at(java_of(broker)) == {LOOPBACK}


def java_of(broker: LocalBroker) -> psutil.Process:
    [java] = [p for p in processes_that_mention(str(broker.data)) if "java" in p.name()]
    return java


def listened_at(process: psutil.Process) -> set[str]:
    """The addresses of its listening TCP sockets; IPv4 may be mapped into IPv6."""
    sockets = process.net_connections("tcp")
    listening = [each for each in sockets if each.status == psutil.CONN_LISTEN]
    return {each.laddr.ip.removeprefix("::ffff:") for each in listening}


def test_a_topic_that_nobody_created_does_not_come_into_being(broker: LocalBroker) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.list_topics("nobodys", timeout=patience())
    assert "nobodys" not in client.list_topics(timeout=patience()).topics


def test_a_broker_that_dies_at_its_start_is_reported_with_its_log(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InfraError, match=r"(?s)ended while it started.*Address already in use"):
            LocalBroker(tmp_path, port).start()


def test_the_broker_that_is_given_is_taken_and_named(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BROKER_VARIABLE, broker.bootstrap)
    with which_broker(progress=silent) as chosen:
        assert chosen.bootstrap == broker.bootstrap
        assert BROKER_VARIABLE in chosen.description


def test_a_given_broker_that_does_not_answer_is_an_error_and_no_other_is_taken() -> None:
    nobody = f"{LOOPBACK}:{free_port()}"
    with (
        pytest.raises(InfraError, match=rf"no Kafka broker answers at {nobody}"),
        which_broker(nobody, silent),
    ):
        pytest.fail("there is no such broker")


def test_without_a_given_broker_one_is_started_and_described(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(BROKER_VARIABLE, raising=False)
    with which_broker(progress=silent) as chosen:
        assert answers(chosen.bootstrap, patience())
        assert chosen.bootstrap in chosen.description
    assert capfd.readouterr() == ("", ""), "Docker's absence is not worth a word on the terminal"


def test_the_command_prints_the_address_and_stops_at_ctrl_c() -> None:
    command = [sys.executable, "-m", "infra.broker"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with running:
        assert running.stdout is not None
        bootstrap = running.stdout.readline().strip()
        assert answers(bootstrap, patience())
        running.send_signal(signal.SIGINT)
        assert running.wait(patience()) == 0
    assert not answers(bootstrap, seconds=0.5)


def test_a_cluster_id_that_begins_with_a_dash_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    dashed = uuid.UUID(bytes=urlsafe_b64decode(b"-AAAAAAAQACAAAAAAAAAAA=="))
    monkeypatch.setattr("infra.localbroker.uuid.uuid4", lambda: dashed)
    with LocalBroker(progress=silent) as broker:
        assert answers(broker.bootstrap, 10.0)
