"""Runs a command like its entry point."""

import sys
from collections.abc import Iterable

import pytest

from cli import main as commandline


def ended(
    arguments: Iterable[object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `viewsweep …`, which never shows a traceback."""
    monkeypatch.setattr(sys, "argv", ["viewsweep", *map(str, arguments)])
    monkeypatch.setattr(commandline, "_leave", sys.exit)
    with pytest.raises(SystemExit) as end:
        commandline.main()
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return int(end.value.code or 0), said.out, said.err
