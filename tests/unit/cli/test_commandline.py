"""The whole command line: help everywhere, Spark only where needed, one message per error."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.harness.places import ROOT
from tests.harness.running import ended

COMMANDS = [
    ["run"],
    [],
    ["trace"],
    ["check"],
    ["demo"],
    ["explain"],
    ["constructs"],
    ["sources"],
    ["sources", "init"],
    ["sources", "serve"],
    ["sources", "apply"],
    ["sources", "status"],
]

ALL_HELP = """
import contextlib, io, json, sys
from cli import main as commandline
commandline._leave = sys.exit
helps = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["viewsweep", *arguments, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            commandline.main()
        except SystemExit as end:
            helps.append([arguments, end.code, out.getvalue()])
    if arguments == ["run"]:
        for_run = sorted(sys.modules)
print(json.dumps([helps, for_run, sorted(sys.modules)]))
"""


def viewsweep(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Exit code and stderr."""
    code, _, said = ended(arguments, capsys, monkeypatch)
    return code, said


def test_every_command_has_help_and_none_imports_others_or_spark_or_kafka_for_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ALL_HELP, orjson.dumps(COMMANDS).decode()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    helps, for_run, modules = orjson.loads(ran.stdout)
    assert [arguments for arguments, *_ in helps] == COMMANDS
    for arguments, code, text in helps:
        assert code == 0, arguments
        assert "Usage: " in text, arguments
    assert {"cli.main", "cli.run"} <= set(for_run)
    others = {"cli.demo", "cli.simulate", "cli.sources", "protocols.simulation"}
    assert others <= set(modules)
    assert not others & set(for_run), "a command waits for the imports of others"
    assert not {"pyspark", "delta", "testcontainers", "confluent_kafka"} & set(modules)


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["run", "--fast"], ["check"], ["trace"], ["sources", "fly"], ["run", "extra"]],
)
def test_wrong_use_of_the_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = viewsweep(arguments, capsys, monkeypatch)
    assert code == 2
    assert "Usage: " in said


@pytest.mark.parametrize("command", ["run", "trace"])
def test_a_configuration_that_is_missing_is_one_message(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "warehouse.toml"
    target = [str(tmp_path / "out.jsonl")] if command == "trace" else []
    code, said = viewsweep([command, *target, "--config", str(file)], capsys, monkeypatch)
    assert code == 2
    [line] = said.splitlines()
    assert line.startswith(f"viewsweep: cannot read {file}: No such file or directory. Name one")


CONFIGURATION = """
[warehouse]
path = "tables"
[kafka]
bootstrap = "127.0.0.1:1"
[sources.a]
address = "grpc://127.0.0.1:1"
[views.v]
sql = "v.sql"
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    (tmp_path / "v.sql").write_text("SELECT id FROM a.r")
    file = tmp_path / "warehouse.toml"
    file.write_text(CONFIGURATION)
    return file


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--view", "w"], "there is no [views.w]; choose one of: v"),
        (["--protocol", "magic"], "there is no protocol 'magic'"),
    ],
)
def test_an_option_that_names_nothing_is_refused_before_anything_is_started(
    configuration: Path,
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, said = viewsweep(["run", "-c", str(configuration), *arguments], capsys, monkeypatch)
    assert code == 2
    assert complaint in said
    assert len(said.splitlines()) == 1


def test_a_trace_of_a_view_that_was_never_made_is_refused(
    configuration: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = configuration.parent / "out.jsonl"
    code, said = viewsweep(["trace", str(target), "-c", str(configuration)], capsys, monkeypatch)
    assert code == 2
    assert "there is no view in" in said
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff\xfe", b"hello\n", b"[1]\n", b"{}\n", b'{"type":"run"}\n', b'{"type":"end"}\n'],
)
def test_checking_garbage_is_one_message_and_code_2(
    content: bytes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(content)
    code, said = viewsweep(["check", str(trace)], capsys, monkeypatch)
    assert code == 2
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_checking_what_cannot_be_read_is_one_message_and_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = viewsweep(["check", str(tmp_path / name)], capsys, monkeypatch)
    assert code == 2
    assert "cannot be read" in said
    assert len(said.splitlines()) == 1


def test_ctrl_c_says_that_nothing_is_lost(
    configuration: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cli.run.read_configuration", interrupted)
    code, said = viewsweep(["run", "-c", str(configuration)], capsys, monkeypatch)
    assert code == 130
    assert said.splitlines() == [
        "viewsweep: stopped; what was committed stays, and the same command goes on"
    ]


def test_the_version_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = ended(["--version"], capsys, monkeypatch)
    assert code == 0
    assert out.startswith("viewsweep 0.")


def test_run_without_a_configuration_says_where_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = viewsweep(["run"], capsys, monkeypatch)
    assert code == 2
    for part in ("warehouse.toml", "--config", "examples/warehouse.toml", "viewsweep demo"):
        assert part in said


def test_two_answers_to_what_relations_there_are_is_one_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["explain", "v.sql", "--config", "warehouse.toml", "--workload", "retail"]
    code, said = viewsweep(arguments, capsys, monkeypatch)
    assert code == 2
    assert "give only one of --config, --catalog and --workload" in said
