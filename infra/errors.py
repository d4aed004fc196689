"""The error of infra, for something missing that has to be there before viewsweep can run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class InfraError(Exception):
    """Something in the environment is missing or wrong: Java, a jar, a broker, disk space.

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
