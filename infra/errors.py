"""What infra says when something that has to run before we run is missing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class InfraError(Exception):
    """The surroundings are not there or not as expected: Java, a jar, a broker, room on the disk.

    The message is complete: what is wrong, and what to do. It is shown without a traceback.
    """

    exit_code = 3


@contextmanager
def without_traceback() -> Iterator[None]:
    """Around the body of a command: an InfraError ends it with its message and its exit code."""
    try:
        yield
    except InfraError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
