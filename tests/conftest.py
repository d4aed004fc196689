"""What all tests share: how the test process ends."""

import os
import sys

import pytest


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
