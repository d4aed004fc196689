"""Archives of the classes that the JVMs of Spark and of the broker load: a start with one costs a
third less CPU time (class data sharing).

    python -m infra.classarchives

makes both, in the Python environment, by a short run of each program. Without an archive a start
only takes longer; a JVM ignores one that does not fit itself or its class path.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from infra.errors import InfraError, without_traceback
from infra.progress import Progress, on_stderr

#: The driver plans one small batch after the other. Compiling that twice, and collecting garbage in
#: parallel threads, doubled the JVM's time, on the cores that the batch itself needs.
_DRIVER_OPTIONS = Path(__file__).parent / "driver.options"
_NAMES = _BROKER, _SPARK, _OPTIONS = "broker.jsa", "spark.jsa", "spark.options"
#: A JVM that makes its archive ends late.
_END_SECONDS = 300.0
#: Else a JVM says of each class why it is left out, and of an archive that it does not fit.
_SILENT = "-Xlog:cds*=off"


def driver_options() -> Path:
    """The file with the options of Spark's JVM: one name, as a shell would split several options.

    One that was made for other options of ours is not used.
    """
    made, ours = _place(_OPTIONS), _DRIVER_OPTIONS
    if made.exists() and made.read_text().startswith(ours.read_text()):
        return made
    return ours


def broker_options() -> list[str]:
    """The options of the broker's JVM for its archive, if there is one."""
    made = _place(_BROKER)
    return [f"-XX:SharedArchiveFile={made}", _SILENT] if made.exists() else []


def make_archives(progress: Progress = on_stderr) -> None:
    """Makes both archives, replacing those that are there."""
    progress("archiving the classes of the broker and of Spark, once (about a minute)")
    for name in _NAMES:  # a JVM cannot use one and make one
        _place(name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="viewsweep-classes-", dir=sys.prefix) as directory:
        broker, spark, options = (Path(directory, name) for name in ("broker", "spark", "options"))
        _run_broker(broker, progress)
        _run_spark(spark, progress)
        if not (broker.exists() and spark.exists()):
            raise InfraError("Java has made no archive of classes; nothing needs one")
        broker.replace(_place(_BROKER))
        spark.replace(_place(_SPARK))
        ours = _DRIVER_OPTIONS.read_text()
        options.write_text(f'{ours}-XX:SharedArchiveFile="{_place(_SPARK)}"\n{_SILENT}\n')
        options.replace(_place(_OPTIONS))


def _place(name: str) -> Path:
    """In this environment: an archive fits its jars only, and goes with them."""
    return Path(sys.prefix, f"viewsweep-{name}")


def _recording(into: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={into}"


def _run_broker(archive: Path, progress: Progress) -> None:
    # Imported here, since the broker imports this module.
    from infra.localbroker import LocalBroker

    class Recorded(LocalBroker):
        def _java(self) -> list[str]:
            java, *options = super()._java()
            return [java, _recording(archive), _SILENT, *options]

    with (
        tempfile.TemporaryDirectory(prefix="viewsweep-broker-") as data,
        Recorded(Path(data), progress=progress),
    ):
        pass


def _run_spark(archive: Path, progress: Progress) -> None:
    """A stream over a Delta table, like the job's over topics."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from infra.sparksettings import settings

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("viewsweep-classes")
    known = settings(progress=progress)
    known["spark.driver.extraJavaOptions"] += f' "{_recording(archive)}" {_SILENT}'
    for key, value in known.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory(prefix="viewsweep-spark-") as directory:
        spark.range(3).write.format("delta").save(f"{directory}/table")
        stream = spark.readStream.format("delta").load(f"{directory}/table").writeStream
        stream = stream.foreachBatch(_collect)
        stream = stream.option("checkpointLocation", f"{directory}/checkpoint")
        stream.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    # The JVM ends by itself when nobody can give it orders any more.
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS)


def _collect(batch: Any, _number: int) -> None:
    batch.collect()


if __name__ == "__main__":
    with without_traceback():
        make_archives()
