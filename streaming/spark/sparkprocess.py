"""The JVM that a job starts: it gets a directory for its files, and ends with the job.

It may be killed at any time: only commits in Delta count.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from infra.workplace import all_temporary_files_in, workplace
from protocols.errors import ViewsweepError

#: The JVM's connections break a moment before it has ended.
_END_SECONDS = 2.0
#: Part of pyspark's error about a JVM that ended before it could be called.
_NEVER_CAME = "JAVA_GATEWAY_EXITED"


@contextmanager
def spark_process() -> Iterator[None]:
    """The context of everything that starts or calls Spark."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield  # spark-submit's JVM has started us, and is configured there
        return
    with workplace("job") as directory, all_temporary_files_in(directory):
        try:
            yield
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            if not (_has_ended() or _NEVER_CAME in str(error)):
                raise
            raise ViewsweepError(
                "Spark's JVM has ended: it was killed, or could not start. What was committed"
                " stays, and the same command goes on"
            ) from error
        finally:
            _end()


def _has_ended() -> bool:
    process = _jvm()
    if process is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    return process.poll() is not None


def _end() -> None:
    """Kills the JVM: its directory is removed, so it must not write there any more."""
    process = _jvm()
    if process is not None:
        process.kill()
        process.wait()


def _jvm() -> "subprocess.Popen[Any] | None":
    return getattr(SparkContext._gateway, "proc", None)
