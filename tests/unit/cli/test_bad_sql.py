"""Bad SQL through the command line: exit code 2, one message that points at it, nothing created."""

import re
from pathlib import Path

import orjson
import pytest

from tests.harness.places import ROOT
from tests.harness.running import ended

FIGURE_5 = ROOT / "examples" / "scenarios" / "figure-5.json"
CONFIGURATION = """
[warehouse]
path = "tables"
[kafka]
bootstrap = "localhost:1"
[sources.a]
address = "localhost:1"
[views.v]
sql = "v.sql"
"""
BAD = [
    ("", "line 1, column 1: there is no SELECT in it"),
    ("SELECT D FROM b.R2 ORDER BY D", "line 1, column 29: ORDER BY is not supported"),
    ("SELECT A FROM a.R1;\nDROP TABLE a.R1", "line 2, column 1: .* a second statement begins"),
    ("EXPLAIN SELECT A FROM a.R1", "line 1, column 1: .* this is EXPLAIN"),
    ("SELECT A, rank() OVER () AS n FROM a.R1", "line 1, column 11: without PARTITION BY"),
    ("SELECT A FROM a.R1\nWHERE A = 'x\0'", "line 2, column 13: .* not text"),
    (f"SELECT {10_000 * '('}A{10_000 * ')'} AS x FROM a.R1", "nested too deeply"),
]


def _said(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Exit code, and the one message."""
    code, _, error = ended(words, capsys, monkeypatch)
    assert re.findall(r"^\w+: ", error, re.MULTILINE) in (["viewsweep: "], ["simulate: "])
    return code, " ".join(error.split())


@pytest.mark.parametrize(("sql", "reason"), BAD)
def test_a_scenario_with_bad_sql_is_refused_and_leaves_nothing(
    sql: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = tmp_path / "bad.json"
    scenario.write_bytes(orjson.dumps({**orjson.loads(FIGURE_5.read_bytes()), "view": sql}))
    words = ["simulate", str(scenario), "--protocol", "sweep", "--seed", "1"]
    words += ["--trace", str(tmp_path / "trace"), "--failures", str(tmp_path / "failures")]
    code, said = _said(words, capsys, monkeypatch)
    assert code == 2
    assert re.search(reason, said), said
    assert list(tmp_path.iterdir()) == [scenario]


@pytest.mark.parametrize(("sql", "reason"), BAD)
def test_a_bad_view_is_not_explained(
    sql: str,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = tmp_path / "v.sql"
    view.write_text(sql)
    words = ["explain", str(view), "--catalog", str(FIGURE_5), "--svg", str(tmp_path / "v.svg")]
    code, said = _said(words, capsys, monkeypatch)
    assert code == 2
    assert re.search(reason, said), said
    assert list(tmp_path.iterdir()) == [view]


def test_a_view_that_is_a_binary_file_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = tmp_path / "v.sql"
    view.write_bytes(b"\x7fELF\x02\x01\x01\x00\xff\xfe")
    config = tmp_path / "warehouse.toml"
    config.write_text(CONFIGURATION)
    code, said = _said(["run", "--config", str(config)], capsys, monkeypatch)
    assert code == 2
    assert "is not UTF-8 text; save the file as UTF-8" in said
    code, said = _said(["explain", str(view), "--catalog", str(FIGURE_5)], capsys, monkeypatch)
    assert code == 2
    assert str(view) in said
    assert sorted(tmp_path.iterdir()) == [view, config]
