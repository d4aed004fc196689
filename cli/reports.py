"""Errors for the user: one message on stderr, never a traceback.

If it may be a defect of viewsweep, the traceback goes into a file that the message names. Threads
hand their errors on; an exception that ends one nevertheless is reported as well. Libraries that
print stacks of their own (py4j's log, destructors) are silenced.
"""

import contextlib
import logging
import os
import platform
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from protocols.errors import ViewsweepError
from protocols.failures import as_ours

_WORTH_KNOWING = (
    "viewsweep",
    "pyspark",
    "deltalake",
    "polars",
    "pyarrow",
    "duckdb",
    "confluent-kafka",
)
_SECRET = "--token"
#: Read when the command begins: a job later sets a directory of its own, which it removes.
_PLACE = tempfile.gettempdir()
_GOES_ON = "What was committed stays, and the same command goes on"


def message_of(error: BaseException) -> tuple[str, int]:
    """The message for the user, and the exit code; writes the report if there may be a defect."""
    ours = as_ours(error)
    if not ours.deserves_report:
        return str(ours), ours.exit_code
    file = _written(ours)
    where = f"details are in {file}" if file else "the report on it could not be written"
    return f"{ours}. This may be a defect of viewsweep; {where}. {_GOES_ON}", ours.exit_code


def without_tracebacks(say: Callable[[str], None]) -> None:
    """From now on only `say` reports errors, in every thread."""

    def ended(thread: threading.ExceptHookArgs) -> None:
        if thread.exc_value is not None and not isinstance(thread.exc_value, SystemExit):
            name = thread.thread.name if thread.thread is not None else "?"
            say(f"thread {name} ended: {message_of(thread.exc_value)[0]}")

    threading.excepthook = ended
    # Destructors: nobody can act on their errors.
    sys.unraisablehook = lambda _: None
    # Without any handler, Python prints what libraries log.
    logging.getLogger().addHandler(logging.NullHandler())


def _written(error: ViewsweepError) -> str | None:
    """Writes the report on an error; its file, or None if it could not be written."""
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {' '.join(_arguments())}",
        f"Python {platform.python_version()}, {platform.platform()}",
        ", ".join(f"{name} {_version(name)}" for name in _WORTH_KNOWING),
        "",
        *traceback.format_exception(error),
    ]
    with contextlib.suppress(OSError, UnicodeError, MemoryError):
        handle, file = tempfile.mkstemp(prefix="viewsweep-report-", suffix=".txt", dir=_PLACE)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as report:
            report.write("\n".join(lines))
        return file
    return None


def _arguments() -> list[str]:
    """The arguments as given, without the secret."""
    shown: list[str] = []
    for argument in sys.argv:
        secret = bool(shown) and shown[-1] == _SECRET
        given = argument.startswith(f"{_SECRET}=")
        shown.append("…" if secret else f"{_SECRET}=…" if given else argument)
    return shown


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
