"""The Structured Streaming job: Spark reads the topics and calls us once per micro-batch.

Spark decides what a batch is and remembers in its checkpoint how far it has fed us. Everything else
is decided by `Job`: it knows from Delta what is installed, so a batch that comes again, or comes
after the checkpoint was deleted, changes nothing.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

import orjson
import polars as pl
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from infra.sparksettings import settings
from protocols.errors import ViewsweepError
from streaming.configuration import Configuration, ViewSettings
from streaming.job import Job
from streaming.liveview import LiveView
from streaming.measuring import Measures
from streaming.stopping import Stopped

_LOOK_EVERY_SECONDS = 0.25


def run(
    configuration: Configuration,
    view: ViewSettings,
    report: Callable[[str], None],
    once: bool = False,
) -> Measures:
    """Keeps the view until SIGINT or SIGTERM, or, with `once`, until what is there is installed."""
    job = Job(configuration, view, report)
    # Until the stream runs, both signals just end what is being done.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job.check()
        # Spark takes seconds to start; the first state may take them as well.
        with ThreadPoolExecutor(1, "spark") as starting:
            spark = starting.submit(spark_session, report)
            job.prepare()
            stream = _Stream(job, configuration, report)
            stream.run(spark.result(), once)
        job.follow_now_and_then(force=True)
    finally:
        job.close()
    return job.measures


def spark_session(report: Callable[[str], None]) -> SparkSession:
    """A session with our settings, or the one that spark-submit has prepared."""
    report("starting Spark")
    builder = SparkSession.builder.appName("viewsweep")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        for key, value in settings(progress=report).items():
            builder = builder.config(key, value)
    return builder.getOrCreate()


class _Stream:
    """One streaming query around one job."""

    def __init__(
        self, job: Job, configuration: Configuration, report: Callable[[str], None]
    ) -> None:
        self._job = job
        self._configuration = configuration
        self._report = report
        #: Held while a batch is in work, so that stopping waits for its commit.
        self._working = threading.Lock()
        self._failure: BaseException | None = None

    def run(self, spark: SparkSession, once: bool) -> None:
        with self._signals(), LiveView(self._job.measures) as live:
            query = self._start(spark, once)
            self._report(f"view {self._job.view.name}: keeping it; Ctrl-C stops after the batch")
            try:
                while query.isActive and not self._job.stopping.wait(_LOOK_EVERY_SECONDS):
                    live.look()
                    self._follow()
                if not self._job.stopping.is_set():
                    query.awaitTermination()
            except StreamingQueryException as error:
                if self._failure is None:
                    raise ViewsweepError(f"Spark stopped the stream: {_cause(error)}") from error
            self._stop(query)
        if self._failure is not None:
            raise self._failure

    def _start(self, spark: SparkSession, once: bool) -> StreamingQuery:
        offsets = {
            topic: {"0": self._job.standing.offsets[source]}
            for topic, source in self._job.topics.items()
        }
        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._configuration.bootstrap)
            .option("subscribe", ",".join(offsets))
            .option("startingOffsets", orjson.dumps(offsets).decode())
            .option("maxOffsetsPerTrigger", self._configuration.job.records_per_batch)
            .option("failOnDataLoss", "true")
            .option("kafka.fetch.max.wait.ms", "20")
            .option("fetchOffset.numRetries", "10")
            .load()
            .select("topic", "offset", "value")
        )
        writer = records.writeStream.foreachBatch(self._batch).option(
            "checkpointLocation", str(self._job.tables.directory / "checkpoint")
        )
        return (writer.trigger(availableNow=True) if once else writer).start()

    def _batch(self, records: DataFrame, _batch_id: int) -> None:
        with self._working:
            if self._job.stopping.is_set():
                raise Stopped
            try:
                with self._job.measures.step("fetch"):
                    frame = pl.DataFrame(pl.from_arrow(records.toArrow()))
                self._job.process(frame)
            except Stopped:
                raise
            except BaseException as error:
                self._failure = error
                raise

    def _follow(self) -> None:
        """Lets `current` catch up between batches, so that it is not left behind by a pause."""
        if self._working.acquire(blocking=False):
            try:
                self._job.follow_now_and_then()
            finally:
                self._working.release()

    def _stop(self, query: StreamingQuery) -> None:
        """After the batch at hand. A batch that Spark begins meanwhile is refused, so its
        checkpoint stays behind and nothing is taken for done that is not.

        Spark waits for the batch that it has begun, so the lock must be free when it is told.
        """
        self._job.stopping.set()
        with self._working:
            pass
        query.stop()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the stream; set after Spark has set handlers of its own."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            self._job.stopping.set()

        before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _cause(error: StreamingQueryException) -> str:
    """What Spark says, without the plan and the stack that follow."""
    return str(error).strip().splitlines()[0]
