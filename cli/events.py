"""The messages of a command on stderr: lines for people or, with `--log json`, events for programs.

An event is one line of JSON: `time` (UTC), `level` (info or error), `event` (the words), and what
it is about, if that is known: `view`, `source`, `position`, figures.
"""

import contextlib
import datetime
import sys
import threading
from enum import StrEnum

import orjson
from rich.console import Console
from rich.markup import escape

from protocols.telling import fields_of


class LogForm(StrEnum):
    """The reader that messages are written for: a person, or a program."""

    TEXT = "text"
    JSON = "json"


_writing = threading.Lock()
_form = LogForm.TEXT


def write_as(form: LogForm) -> None:
    """From now on all messages of this process have this form."""
    global _form
    _form = form


def report(message: str) -> None:
    """Writes a message about the progress."""
    if _form is LogForm.JSON:
        _event("info", message)
    else:
        Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)


def complain(message: str) -> None:
    """Writes the message of an error; a closed stderr is no further one."""
    with contextlib.suppress(OSError):
        if _form is LogForm.JSON:
            _event("error", message)
        else:
            Console(stderr=True).print(f"[red]viewsweep:[/red] {escape(message)}", soft_wrap=True)


def _event(level: str, message: str) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    event = {"time": now, "level": level, "event": str(message), **fields_of(message)}
    with _writing:
        sys.stderr.write(orjson.dumps(event, default=str).decode() + "\n")
        sys.stderr.flush()
