"""The Structured Streaming job: Spark reads the topics and calls us once per micro-batch.

Spark decides the extent of a batch and writes its end offsets into the checkpoint before it calls
us. That is all we take from it. The records come through the lookahead, which has fetched and
decoded most of them by then; through Spark they would pass the JVM on their way into Python, which
takes as long as the whole sweep. `Job` decides everything else: it knows from Delta which updates
are installed, so a batch that comes again, or after the checkpoint was deleted, changes nothing.
"""

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, Self

import orjson
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from infra.sparksettings import settings
from protocols.errors import ViewsweepError
from sources.partitions import Offsets
from streaming.figures.status import JobStatus
from streaming.job.job import Job
from streaming.job.running import Running
from streaming.liveview import LiveView
from streaming.settings.configuration import CHECKPOINTS, Configuration, ViewSettings
from streaming.spark.access import allow_token_url, options_of
from streaming.spark.calls import Calls
from streaming.spark.checkpoint import NotUsable, fed_offsets, offsets_in
from streaming.spark.executors import Executors
from streaming.stopping import Stopped, begun, is_done, told_by_signals, wait_for
from warehouse.delta import set_aside

_LOOK_EVERY_SECONDS = 0.25
#: While one batch follows the other, the views are tended this often. The gap between two batches
#: is no quiet moment: work that begins there competes with the next batch.
_TEND_EVERY_SECONDS = 2.0
#: The interval of the message that Spark is still starting.
_SPARK_SECONDS = 10.0


class Line(Protocol):
    """Shows the progress of a job."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def look(self) -> None:
        """Called often; shows something new when it is time."""
        ...


def run(
    configuration: Configuration,
    views: Sequence[ViewSettings],
    report: Callable[[str], None],
    once: bool = False,
    beside: Callable[[Job], AbstractContextManager[object]] = nullcontext,
    line: Callable[[Callable[[], JobStatus]], Line] = LiveView,
) -> tuple[JobStatus, BaseException | None]:
    """Keeps the views until SIGINT or SIGTERM; with `once`, until the topics' ends are installed.

    `beside` is entered with the job before its first step, and left after the last one; `line`
    shows its progress. Returns the status at the end, and the error of the first view that failed
    while others went on.
    KeyboardInterrupt if it was stopped before it read the topics.
    """
    session: Future[SparkSession] = Future()
    job = Job(configuration, views, report, Executors(session.result))
    with beside(job), told_by_signals(job.stopping) as told, line(job.status) as live:
        work = begun(partial(_keep, job, configuration, report, session, once), "job")
        ended = wait_for(work, told, live.look)
    try:
        if ended:
            work.result()
    except Stopped:
        raise KeyboardInterrupt from None
    if not ended and job.measures.phase != "keeping":
        raise KeyboardInterrupt
    if not ended:
        report("stopped without waiting longer; unfinished work is done again at the next start")
    return job.status(), job.failure


def _keep(
    job: Job,
    configuration: Configuration,
    report: Callable[[str], None],
    session: "Future[SparkSession]",
    once: bool,
) -> None:
    """Runs the job from the first check to the end."""
    try:
        job.check()
        # Spark takes seconds to start; the first state may take them as well.
        spark = begun(partial(spark_session, report), "spark")
        running = job.prepare()
        job.measures.phase = "starting Spark"
        while not is_done(spark, job.stopping, _SPARK_SECONDS):
            report("Spark is still starting; on a busy machine that may take a minute")
        session.set_result(spark.result())
        _keep_what_is_loaded()
        _Stream(job, running, configuration, report).run(session.result(), once)
        running.finish()
    finally:
        job.close()


def _keep_what_is_loaded() -> None:
    """Freezes the objects loaded so far: the garbage collector does not scan them any more.

    Each scan took some 70 ms, in which nothing else ran; a burst of messages triggers it.
    """
    gc.collect()
    gc.freeze()


def spark_session(report: Callable[[str], None]) -> SparkSession:
    """A session with our settings, or the one of spark-submit."""
    report("starting Spark, some 5 to 15 s")
    builder = SparkSession.builder.appName("viewsweep")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # The executors on this machine use this Python, which has all that they import.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for key, value in settings(progress=report).items():
            builder = builder.config(key, value)
    return builder.getOrCreate()


class _Stream:
    """One streaming query around one job."""

    def __init__(
        self,
        job: Job,
        running: Running,
        configuration: Configuration,
        report: Callable[[str], None],
    ) -> None:
        self._job = job
        self._running = running
        self._configuration = configuration
        self._report = report
        #: The batches that Spark's callback hands to this thread.
        self._calls = Calls()

    def run(self, spark: SparkSession, once: bool) -> None:
        """Processes the batches that Spark begins, and tends the views between them.

        When it has to stop, it finishes the current batch unless that waits, and refuses the next
        one, so Spark's checkpoint does not count that as done.
        """
        kafka = self._configuration.kafka
        allow_token_url(spark, kafka)
        with options_of(kafka) as options:
            self._run(self._start(spark, once, options))

    def _run(self, query: StreamingQuery) -> None:
        names = " and ".join(view.view.name for view in self._running.views if not view.failed)
        self._report(f"view {names}: keeping it; Ctrl-C stops it")
        self._job.measures.phase = "keeping"
        try:
            with suppress(Stopped):
                self._serve(query)
        except StreamingQueryException as error:
            # For a deleted topic Spark shows the error of Kafka's client, without its name.
            self._running.refuse_lost_topics()
            cause = self._configuration.kafka.without_secret(_cause(error))
            raise ViewsweepError(f"Spark stopped the stream: {cause}") from error
        finally:
            # Before Spark is told to stop: it waits for the callback.
            self._calls.close()
        query.stop()

    def _serve(self, query: StreamingQuery) -> None:
        tended = time.monotonic()
        while query.isActive and not self._job.stopping.is_set():
            came = self._calls.make_next(_LOOK_EVERY_SECONDS)
            if not came or time.monotonic() - tended >= _TEND_EVERY_SECONDS:
                self._running.tend()
                tended = time.monotonic()
        if not self._job.stopping.is_set():
            query.awaitTermination()

    def _start(self, spark: SparkSession, once: bool, options: Mapping[str, str]) -> StreamingQuery:
        self._take_up_what_was_fed()
        offsets: dict[str, dict[str, int]] = {}
        for partition, offset in self._running.offsets.items():
            offsets.setdefault(partition.topic, {})[str(partition.number)] = offset
        records = (
            spark.readStream.format("kafka")
            .options(**options)
            .option("subscribe", ",".join(offsets))
            .option("startingOffsets", orjson.dumps(offsets).decode())
            .option("maxOffsetsPerTrigger", self._configuration.job.records_per_batch)
            .option("failOnDataLoss", "true")
            .option("fetchOffset.numRetries", "10")
            .load()
        )
        writer = records.writeStream.foreachBatch(self._batch).option(
            "checkpointLocation", str(self._checkpoint)
        )
        return (writer.trigger(availableNow=True) if once else writer).start()

    @property
    def _checkpoint(self) -> Path:
        """Beside the view, or in a directory for several views. If lost, it is recreated."""
        views = self._running.views
        if len(views) == 1:
            return views[0].tables.directory / "checkpoint"
        names = "+".join(sorted(view.view.name for view in views))
        return self._configuration.warehouse / CHECKPOINTS / names

    def _take_up_what_was_fed(self) -> None:
        """Processes what Spark fed before it was stopped: it does not feed that again."""
        try:
            fed = fed_offsets(self._checkpoint, self._running.partition_ends)
        except NotUsable as why:
            aside = set_aside(self._checkpoint)
            self._report(
                f"Spark's checkpoint cannot be used: {why}. It is kept as {aside}; going on from"
                " where Delta stands"
            )
        else:
            if fed:
                self._running.process(self._running.by_source(fed))

    def _ends(self, batch: int) -> dict[str, Offsets]:
        """Source → the offsets after the last records of a batch, as Spark noted before it began.

        The file ends with one line of JSON for each stream that is read, and we read one.
        """
        return self._running.by_source(offsets_in(self._checkpoint / "offsets" / str(batch)))

    def _batch(self, _records: DataFrame, batch: int) -> None:
        """Spark's callback, in a thread of Spark's: the job's thread processes the batch."""
        self._calls.call(lambda: self._running.process(self._ends(batch)))


def _cause(error: StreamingQueryException) -> str:
    """The first line of Spark's error, without the plan and the stack that follow, and what began
    it: "Failed to create new KafkaAdminClient" alone helps nobody.
    """
    said = str(error).strip().splitlines()[0]
    began = getattr(error, "_origin", None)
    while began is not None and began.getCause() is not None:
        began = began.getCause()
    first = str(began.getMessage() or "").strip().splitlines() if began is not None else []
    return said if not first or first[0] in said else f"{said}: {first[0]}"
