"""Any exception of a library ends in one message and exit code 3, without a traceback.

Each kind of exception is thrown at the end of each command, and in the threads that pass their
errors on.
"""

import errno
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JNetworkError
from pyarrow import flight
from pyspark.errors import PySparkRuntimeError
from typer.models import CommandInfo

from cli import main as commandline
from cli import reports
from cli.sources import app as sources_app
from infra.errors import InfraError
from protocols.errors import ProtocolBug, Unreachable, ViewsweepError
from protocols.failures import as_ours
from streaming.job.commits import Commits
from streaming.stopping import begun
from tests.harness.places import ROOT
from tests.harness.running import ended

#: (exception, text that the message must contain).
THROWN: list[tuple[BaseException, str]] = [
    (Py4JNetworkError("Answer from Java side is empty"), "Spark's JVM: Py4JNetworkError"),
    (PySparkRuntimeError("[JAVA_GATEWAY_EXITED] gone"), "Spark: PySparkRuntimeError"),
    (pl.exceptions.PanicException("out of range\nat line 7"), "a library written in Rust"),
    (pl.exceptions.ColumnNotFoundError("x"), "Polars: ColumnNotFoundError: x"),
    (pa.ArrowKeyError("scheme http"), "Arrow: ArrowKeyError"),
    (flight.FlightInternalError("closed"), "Arrow: FlightInternalError: closed"),
    (KafkaException(KafkaError(KafkaError._TRANSPORT)), "Kafka's client: KafkaException"),
    (BufferError("Local: Queue full"), "BufferError: Local: Queue full"),
    (duckdb.OutOfMemoryException("no room"), "DuckDB: OutOfMemoryException: no room"),
    (deltalake.exceptions.DeltaError("no log"), "delta-rs: DeltaError: no log"),
    (OSError(errno.ENOSPC, "No space left on device", "/lake/x"), "/lake/x: No space left"),
    (MemoryError(), "there is not enough memory"),
    (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "a text is not in the enc"),
    (AssertionError(), "AssertionError"),
    (KeyError("version"), "KeyError: 'version'"),
    (ProtocolBug("an invariant"), "an invariant"),
]
APP = commandline.command_line()
COMMANDS = [
    *((info, ["sources"]) for info in sources_app.registered_commands),
    *((info, list[str]()) for info in APP.registered_commands),
]


def name_of(thrown: BaseException) -> str:
    return type(thrown).__name__


def command_name(info: CommandInfo) -> str:
    assert info.callback is not None
    return info.name or info.callback.__name__


@pytest.fixture(autouse=True)
def reports_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of reports."""
    monkeypatch.setattr(reports, "_PLACE", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes settings that a command makes for its process."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def complained(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, list[str]]:
    """Exit code and the lines on stderr."""
    code, _, said = ended(arguments, capsys, monkeypatch)
    return code, said.splitlines()


@pytest.mark.parametrize(("thrown", "words"), THROWN, ids=[name_of(each) for each, _ in THROWN])
@pytest.mark.parametrize(
    ("info", "group"), COMMANDS, ids=[" ".join([*g, command_name(i)]) for i, g in COMMANDS]
)
def test_what_any_command_throws_is_one_message_with_exit_3_and_its_way_is_in_a_file(
    info: CommandInfo,
    group: list[str],
    thrown: BaseException,
    words: str,
    reports_in: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def throwing() -> None:
        raise thrown

    monkeypatch.setattr(commandline, "command_line", lambda _: APP)
    monkeypatch.setattr(info, "name", command_name(info))
    monkeypatch.setattr(info, "callback", throwing)
    code, said = complained([*group, info.name or ""], capsys, monkeypatch)
    assert code == 3
    assert len(said) == 1, said
    assert words in said[0]
    [report] = reports_in.glob("viewsweep-report-*")
    assert str(report) in said[0]
    assert "in throwing" in report.read_text()


@pytest.mark.parametrize("thrown", [Unreachable("the broker is away"), InfraError("no Java")])
def test_what_we_say_ourselves_needs_no_report(
    thrown: Exception,
    reports_in: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def throwing(*_: object) -> None:
        raise thrown

    monkeypatch.setattr("cli.run.read_configuration", throwing)
    assert complained(["run"], capsys, monkeypatch) == (3, [f"viewsweep: {thrown}"])
    assert list(reports_in.iterdir()) == []


def test_a_token_is_in_no_report(
    reports_in: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def throwing(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("cli.sources.SourceClient", throwing)
    for token in (["--token", "secret1"], ["--token=secret2"]):
        complained(["sources", "status", "--address", "grpc://h:1", *token], capsys, monkeypatch)
    for report in reports_in.iterdir():
        assert "sources status --address grpc://h:1 --token" in report.read_text()
        assert "secret" not in report.read_text()


def test_without_room_for_a_report_the_message_is_there_all_the_same(
    reports_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_PLACE", str(reports_in / "missing"))
    message, code = reports.message_of(AssertionError("x"))
    assert code == 3
    assert "AssertionError: x. " in message
    assert "could not be written" in message


@pytest.mark.parametrize(("thrown", "words"), THROWN, ids=[name_of(each) for each, _ in THROWN])
def test_what_ends_a_thread_is_said_in_one_line(thrown: BaseException, words: str) -> None:
    said: list[str] = []
    reports.without_tracebacks(said.append)

    def throwing() -> None:
        raise thrown

    thread = threading.Thread(target=throwing, name="callback")
    thread.start()
    thread.join()
    [message] = said
    assert message.startswith("thread callback ended: ")
    assert words in message


def by_commits(throwing: Callable[[], None]) -> None:
    commits = Commits("commits")
    try:
        commits.hand_over(throwing)
        commits.settle()
    finally:
        commits.close()


def by_the_jobs_thread(throwing: Callable[[], None]) -> None:
    begun(throwing, "job").result()


@pytest.mark.parametrize("border", [by_commits, by_the_jobs_thread])
@pytest.mark.parametrize(("thrown", "words"), THROWN, ids=[name_of(each) for each, _ in THROWN])
def test_what_is_thrown_in_a_thread_of_the_job_reaches_the_job(
    thrown: BaseException, words: str, border: Callable[[Callable[[], None]], None]
) -> None:
    def throwing() -> None:
        raise thrown

    with pytest.raises(type(thrown)) as caught:
        border(throwing)
    assert words in str(as_ours(caught.value))
    assert isinstance(as_ours(caught.value), ViewsweepError)


_NOISY = """
import logging, sys, threading
from cli import main as commandline
from streaming.settings import configuration

def throwing(*_):
    try:
        raise KeyError("inner")
    except KeyError:
        logging.getLogger("py4j.clientserver").exception("There was an exception")
    thread = threading.Thread(target=lambda: 1 / 0, name="callback")
    thread.start()
    thread.join()

    class Destroyed:
        def __del__(self):
            raise OSError("gone")

    Destroyed()
    raise AssertionError

from cli import run
run.read_configuration = throwing
sys.argv = ["viewsweep", "run"]
commandline.main()
"""


def test_neither_logs_of_libraries_nor_destructors_nor_threads_print_a_stack(
    tmp_path: Path,
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _NOISY],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={"PATH": "/usr/bin", "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 3
    lines = ran.stderr.splitlines()
    assert len(lines) == 2, ran.stderr
    assert "thread callback ended: ZeroDivisionError" in lines[0]
    assert "AssertionError" in lines[1]


def test_output_that_cannot_be_written_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "cli.main", "protocols"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert ran.returncode == 3
    assert len(ran.stderr.splitlines()) == 1
    assert "No space left" in ran.stderr
