"""Progress messages of infra for a person: one finished line at a time, nothing else."""

import sys
from collections.abc import Callable

Progress = Callable[[str], None]


def on_stderr(line: str) -> None:
    """The default: a fetch takes a minute, and nobody should wait a minute without a word."""
    print(line, file=sys.stderr, flush=True)


def silent(_line: str) -> None:
    """Drops the messages."""
