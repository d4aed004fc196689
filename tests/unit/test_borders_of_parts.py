"""An exception inside a part, in any thread, is reported: no part ends silently.

The panic of a library written in Rust is a BaseException; code that only catches Exception loses
it, and its thread.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import polars as pl
import pytest
from pyspark.errors import PySparkRuntimeError

from protocols.errors import SourceViolation, Unforeseen
from protocols.exchange.questions import Query
from protocols.failures import as_ours
from protocols.views.catalog import catalog_from_json
from sources.kafka import Kafka
from sources.partitions import Partition
from sources.simulated import publisher as publishing
from sources.simulated.database import SourceDatabase
from sources.simulated.drive import Drive, WorkloadDriver
from sources.simulated.publisher import Publisher
from sources.simulated.queryserver import QueryServer
from sources.wire.client import SourceClient
from streaming.figures.measuring import Measures
from streaming.intake import lookahead
from streaming.spark import sparkjob
from streaming.spark.sparkprocess import spark_process
from streaming.stopping import begun
from warehouse.upkeep import Upkeep, UpkeepSettings

CATALOG = catalog_from_json(
    {"s": {"relations": {"r": {"columns": {"id": "BIGINT"}, "key": ["id"]}}}}
)
QUESTION: Query[Any] = Query(CATALOG.relations[0], ("id",))
KINDS: list[BaseException] = [
    pl.exceptions.PanicException("boom"),
    MemoryError("boom"),
    AssertionError("boom"),
    BufferError("boom"),
]
thrown_kinds = pytest.mark.parametrize("thrown", KINDS, ids=[type(k).__name__ for k in KINDS])


def throwing(error: BaseException) -> Callable[..., Any]:
    def throw(*_: object, **__: object) -> Any:
        raise error

    return throw


def eventually(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SourceDatabase]:
    with SourceDatabase.create(tmp_path / "s.db", "s", CATALOG, {}) as created:
        yield created


@contextmanager
def client_of(database: SourceDatabase) -> Iterator[SourceClient]:
    server = QueryServer(database)
    try:
        with SourceClient(server.address) as client:
            yield client
    finally:
        server.stop()


@thrown_kinds
def test_a_publisher_says_what_ended_it(
    thrown: BaseException, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "ensure_topic", throwing(thrown))
    said: list[str] = []
    publisher = Publisher(database, Kafka("127.0.0.1:1"), "s", said.append)
    publisher.start()
    eventually(lambda: publisher.error)
    publisher.stop()
    assert "boom" in str(publisher.error)
    assert "is no longer published" in said[-1]


@thrown_kinds
def test_a_workload_says_what_ended_it(thrown: BaseException, database: SourceDatabase) -> None:
    def transactions() -> Iterator[Any]:
        raise thrown
        yield

    driver = WorkloadDriver(database, Drive(transactions(), 10.0))
    driver.start()
    eventually(lambda: driver.finished)
    assert "boom" in str(driver.error)


@thrown_kinds
def test_a_query_server_answers_with_what_was_thrown_in_it(
    thrown: BaseException, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceDatabase, "snapshot", throwing(thrown))
    with client_of(database) as client, pytest.raises(SourceViolation, match="boom") as caught:
        client.ask(QUESTION)
    assert "Traceback" not in str(caught.value)


@thrown_kinds
def test_a_client_hands_on_what_is_thrown_in_it(
    thrown: BaseException, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_of(database) as client:
        monkeypatch.setattr("sources.wire.client.object_in", throwing(thrown))
        with pytest.raises(type(thrown), match="boom"):
            client.status()


@thrown_kinds
def test_the_lookahead_hands_on_what_ended_its_thread(
    thrown: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead._Reader, "_read", throwing(thrown))
    changes: Any = SimpleNamespace(source="s", next={Partition("t"): 0}, fault=None)
    reading = lookahead.Lookahead(
        Kafka("127.0.0.1:1"), {"s": changes}, 60.0, print, threading.Event()
    )
    try:
        with pytest.raises(type(thrown), match="boom"):
            reading.read_until(lambda: False, "a record")
    finally:
        reading.close()


@thrown_kinds
def test_the_upkeep_hands_on_what_ended_its_thread(thrown: BaseException) -> None:
    tables: Any = SimpleNamespace(
        view=SimpleNamespace(name="v"),
        keep_for_readers=lambda _: None,
        follow=throwing(thrown),
    )
    settings = UpkeepSettings(current_every_seconds=0.0, upkeep_every_seconds=1e9)

    def look_until_it_fails() -> None:
        for _ in range(6000):
            upkeep.look(quiet=True)
            time.sleep(0.01)

    with Upkeep(tables, settings, print) as upkeep, pytest.raises(type(thrown), match="boom"):
        look_until_it_fails()


@thrown_kinds
def test_a_job_ends_with_what_the_start_of_spark_has_thrown(
    thrown: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm: Any = SimpleNamespace(
        check=lambda: None,
        prepare=lambda: None,
        close=lambda: None,
        stopping=threading.Event(),
        measures=Measures(),
    )
    monkeypatch.setattr(sparkjob, "spark_session", throwing(thrown))
    session: Future[Any] = Future()
    configuration: Any = None
    with pytest.raises(type(thrown), match="boom"):
        sparkjob._keep(calm, configuration, print, session, once=True)


@thrown_kinds
def test_what_a_batch_has_thrown_reaches_spark_and_the_job(
    thrown: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    query: Any = SimpleNamespace(isActive=True)
    job: Any = SimpleNamespace(
        process=throwing(thrown), tend=lambda: None, stopping=threading.Event()
    )
    configuration: Any = None
    records: Any = None
    stream = sparkjob._Stream(job, job, configuration, print)
    monkeypatch.setattr(sparkjob._Stream, "_ends", lambda *_: {})
    callback = begun(lambda: stream._batch(records, 0), "spark")
    with pytest.raises(type(thrown), match="boom"):
        stream._serve(query)
    with pytest.raises(type(thrown), match="boom"):
        callback.result(60)


def test_ours_is_not_wrapped_again() -> None:
    violation = SourceViolation("x")
    assert as_ours(violation) is violation
    assert isinstance(as_ours(KeyError("x")), Unforeseen)


@pytest.mark.parametrize("said", ["[JAVA_GATEWAY_EXITED] gone", "[OTHER] x"])
def test_a_jvm_that_never_came_is_said_as_such(said: str, tmp_path: Path) -> None:
    with (
        mock.patch.object(tempfile, "tempdir", str(tmp_path)),
        # Other tests of this process may have started a JVM.
        mock.patch("streaming.spark.sparkprocess._jvm", return_value=None),
        pytest.raises(Exception, match="JVM has ended" if "GATEWAY" in said else "OTHER"),
        spark_process(),
    ):
        raise PySparkRuntimeError(said)
    assert list(tmp_path.iterdir()) == []
