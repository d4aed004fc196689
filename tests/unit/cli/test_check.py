"""`viewsweep check`: exit codes, both forms of the answer, and no traceback on any input."""

from pathlib import Path

import orjson
import pytest
import typer
from typer.testing import CliRunner

from cli.check import check
from tests.harness.places import TESTS

REPLAY = TESTS / "replay"
app = typer.Typer()
app.command()(check)
run = CliRunner()


def test_a_valid_trace_exits_0_and_says_so_first() -> None:
    result = run.invoke(app, [str(REPLAY / "figure_5.jsonl")])
    assert result.exit_code == 0
    assert result.stdout.startswith("VALID")


def test_an_invalid_trace_exits_1_with_the_contradiction() -> None:
    result = run.invoke(app, [str(REPLAY / "figure_5_uncompensated.jsonl")])
    assert result.exit_code == 1
    assert "A contradiction." in " ".join(result.stdout.split())


def test_json_is_one_object() -> None:
    result = run.invoke(app, [str(REPLAY / "figure_5.jsonl"), "--json", "--level", "strong"])
    answer = orjson.loads(result.stdout)
    assert (answer["verdict"], answer["asked"]) == ("valid", "strong")
    assert answer["reached"] == "complete-in-delivery-order"


def test_a_dash_reads_stdin() -> None:
    text = (REPLAY / "figure_5.jsonl").read_bytes()
    assert run.invoke(app, ["-"], input=text).exit_code == 0


def test_an_unknown_level_is_wrong_use() -> None:
    result = run.invoke(app, [str(REPLAY / "figure_5.jsonl"), "--level", "perfect"])
    assert result.exit_code == 2
    assert "unknown level 'perfect'" in result.stderr


def test_a_protocol_of_which_nothing_is_known_needs_a_level(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    text = (REPLAY / "figure_5.jsonl").read_bytes()
    file.write_bytes(text.replace(b'"protocol":"sweep"', b'"protocol":"guessing"'))
    result = run.invoke(app, [str(file)])
    assert result.exit_code == 2
    assert (
        "the level that protocol 'guessing' claims is unknown; specify a level with --level:"
    ) in result.stderr
    assert run.invoke(app, [str(file), "--level", "complete"]).exit_code == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\x01\xff", b"{}", b'{"type":"run"', b'{"type":"run"}', b"null\n", b"\n" * 9],
)
def test_garbage_is_wrong_use(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_bytes(content)
    result = run.invoke(app, [str(file)])
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)


def test_a_trace_cut_off_anywhere_is_no_crash(tmp_path: Path) -> None:
    text = (REPLAY / "figure_5.jsonl").read_bytes()
    file = tmp_path / "trace.jsonl"
    for length in range(0, len(text), 41):
        file.write_bytes(text[:length])
        result = run.invoke(app, [str(file)])
        assert result.exit_code in (0, 1, 2)
        assert isinstance(result.exception, SystemExit | None)


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_wrong_use(tmp_path: Path, name: str) -> None:
    result = run.invoke(app, [str(tmp_path / name)])
    assert result.exit_code == 2
    assert "cannot be read" in " ".join(result.stderr.split())


def test_states_that_are_right_at_other_vectors_only_need_the_weaker_question() -> None:
    asked = [str(REPLAY / "forged_moved.jsonl"), "--level", "strong"]
    result = run.invoke(app, asked)
    assert result.exit_code == 1
    assert "--any-vectors accepts these" in " ".join(result.stdout.split())
    assert run.invoke(app, [*asked, "--any-vectors"]).exit_code == 0
