"""All errors, by the party that broke the rules.

    ViewsweepError
    ├── WrongUse         the caller: a view, a configuration, a file that cannot be served
    │   ├── ViewRefused  … a place in the SQL of a view
    │   └── NoValue      … an expression that has no value for a row: an overflow, a wrong date
    ├── SourceViolation  a source broke a promise: a gap, a reset, another schema, a bad record
    ├── Unreachable      a broker, a query server or a disk did not answer in time
    ├── ProtocolBug      viewsweep: one of its own invariants does not hold
    └── Unforeseen       a library raised an unexpected error (failures.py)

A message names the thing, the place and the way out. `exit_code` is the exit code of a command.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class ViewsweepError(Exception):
    """Base of all errors that are reported as one message instead of a traceback."""

    exit_code = 3
    #: Whether it may be a defect of viewsweep; then its traceback is written to a file.
    deserves_report = False
    #: The sources that it is about, if views over other sources can go on.
    sources: frozenset[str] = frozenset()


@contextmanager
def about(*sources: str) -> Iterator[None]:
    """The errors inside are about these sources only."""
    try:
        yield
    except ViewsweepError as error:
        error.sources = error.sources or frozenset(sources)
        raise


class WrongUse(ViewsweepError):
    """The request cannot be served as it stands; nothing was done."""

    exit_code = 2


class ViewRefused(WrongUse):
    """A view that cannot be kept, with the place in its SQL (1-based line and column)."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


class NoValue(WrongUse):
    """An expression has no value for some row; a database would raise an error too."""

    def __init__(self, reason: str) -> None:
        # Polars appends a paragraph about its own expression to the error.
        super().__init__(reason.partition("\n\n")[0])


class SourceViolation(ViewsweepError):
    """A source, its topic or its query server broke a promise; to continue would be guessing."""


class Unreachable(ViewsweepError):
    """A required service does not answer; once it is back, the same command continues."""


class ProtocolBug(ViewsweepError):
    """An invariant of viewsweep itself does not hold. It should always be reported."""

    deserves_report = True


class Unforeseen(ViewsweepError):
    """A library raised an unexpected error, or an assertion of ours failed."""

    deserves_report = True
