"""Runs a command like its entry point."""

import contextlib
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

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


def ran(arguments: Iterable[object], directory: Path) -> "subprocess.CompletedProcess[str]":
    """`viewsweep …` in a directory, as a process would end, but in this one: its imports are here.

    What a command changes in its process is restored: hooks and the handlers of logs.
    """
    words = ["viewsweep", *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(directory),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", words),
        mock.patch.object(commandline, "_leave", sys.exit),
        mock.patch.object(threading, "excepthook", threading.excepthook),
        mock.patch.object(sys, "unraisablehook", sys.unraisablehook),
        mock.patch.object(logging.getLogger(), "handlers", []),
    ):
        try:
            commandline.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
