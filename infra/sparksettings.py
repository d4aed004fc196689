"""Every Spark setting, in one place: for the job, for the tests and for `spark-submit`.

    builder = SparkSession.builder.appName("viewsweep")
    for key, value in settings().items():
        builder = builder.config(key, value)

or, on the command line,

    spark-submit $(python -m infra.sparksettings) job.py

Nothing here imports pyspark; the session is built where it is used. In plain Python the settings of
the driver's JVM take effect as well, since pyspark starts that JVM after it has read them.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from infra.classarchives import driver_options
from infra.errors import InfraError, without_traceback
from infra.jars import cache_directory, spark_jars
from infra.progress import Progress, on_stderr

DEFAULT_MASTER = "local[2]"

_LOG4J = Path(__file__).parent / "log4j2.properties"

_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The log of a view's table is small: 50 tasks cost more than the reading.
    "spark.databricks.delta.snapshotPartitions": "2",
}

_LOOPBACK_ONLY = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}

#: What Spark shows as *** in its pages, logs and plans: a setting whose name or value has such a
#: word. No secret of ours is among its settings; a user's may be, as in `spark.executorEnv.…`.
_SECRETS = {
    "spark.redaction.regex": "(?i)secret|password|passwd|token|access[.]?key|jaas|keystore[.]key",
}

_SMALL_BATCHES = {
    # The default of 200 makes 200 tasks of a batch of ten rows.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Data that Arrow cannot take is an error to be shown, not a reason to go row by row.
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}

_STREAMING = {
    # A batch without data would only advance watermarks, and there are none.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The checkpoint only says what to read: Delta knows what was installed, so a little history is
    # enough.
    "spark.sql.streaming.minBatchesToRetain": "20",
    # With the default manager each of a batch's two files costs 40 ms instead of 12: it runs system
    # programs to ask for permissions and links.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # A query that does not stop is reported instead of awaited for ever.
    "spark.sql.streaming.stopTimeout": "60s",
}

_QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
}


def settings(master: str = DEFAULT_MASTER, progress: Progress = on_stderr) -> dict[str, str]:
    """All settings of a session, jars included; the jars are fetched if they are not there yet."""
    return {
        "spark.master": master,
        "spark.jars": ",".join(str(jar) for jar in spark_jars(progress)),
        # Views have paths of their own; Spark must not leave a directory where it was started.
        "spark.sql.warehouse.dir": (cache_directory() / "spark-warehouse").as_uri(),
        **_DELTA,
        **_LOOPBACK_ONLY,
        **_SECRETS,
        **_SMALL_BATCHES,
        **_STREAMING,
        **_QUIET,
        "spark.driver.defaultJavaOptions": f'-XX:VMOptionsFile="{driver_options()}"',
    }


def submit_arguments(master: str = DEFAULT_MASTER, progress: Progress = on_stderr) -> list[str]:
    """The same settings as arguments of `spark-submit`."""
    return [
        argument
        for key, value in settings(master, progress).items()
        for argument in ("--conf", f"{key}={value}")
    ]


def main(
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = DEFAULT_MASTER,
) -> None:
    """Print Spark's settings in one line: spark-submit $(python -m infra.sparksettings) job.py"""
    with without_traceback():
        typer.echo(_one_line(submit_arguments(master)))


def _one_line(arguments: list[str]) -> str:
    """The arguments in one line for `$(…)`, where a shell splits at spaces and ignores quotes."""
    if torn := next((word for word in arguments if re.search(r"\s", word)), None):
        raise InfraError(
            f"a shell would split {torn!r} at its spaces: set VIEWSWEEP_CACHE to a directory"
            " without spaces, or use infra.sparksettings.submit_arguments() in Python"
        )
    return " ".join(arguments)


if __name__ == "__main__":
    typer.run(main)
