"""What all tests share: a table of the planted defects, and how the test process ends."""

import os
import re
import sys

import pytest

_CAUGHT = re.compile(r"caught in run (\d+)")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many runs each campaign needed to find the defect that was planted for it."""
    found: dict[str, list[int]] = {}
    for report in terminalreporter.stats.get("passed", ()):
        runs = [int(run) for _, text in report.sections for run in _CAUGHT.findall(text)]
        if runs:
            found[report.nodeid.rpartition("::")[2]] = runs
    if not found:
        return
    terminalreporter.section("planted defects, and the run that caught them", "-")
    for test, runs in sorted(found.items(), key=lambda each: max(each[1])):
        name = test.removeprefix("test_").replace("_", " ").replace(" is caught", "")
        terminalreporter.write_line(f"{max(runs):6}  {name}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends without Python's teardown: DuckDB's binding reports leaks there that are not ours, in
    forty lines behind the result that somebody wants to read.
    """
    status = getattr(config, "_viewsweep_status", None)
    if status is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config._viewsweep_status = int(exitstatus)  # type: ignore[attr-defined]
