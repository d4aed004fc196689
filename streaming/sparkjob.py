"""The Structured Streaming job: Spark reads the topics and calls us once per micro-batch.

Spark decides what a batch is and writes into its checkpoint, before it calls us, up to which
offsets it reaches. That is all we take from it: the records come through the lookahead, which
has fetched and decoded most of them by then, while Spark would carry each of them through the JVM
and into Python for as long as the whole sweep takes. Everything else is decided by `Job`: it knows
from Delta what is installed, so a batch that comes again, or comes after the checkpoint was
deleted, changes nothing.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import orjson
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from infra.sparksettings import settings
from protocols.errors import ViewsweepError
from streaming.configuration import Configuration, ViewSettings
from streaming.executors import Executors
from streaming.job import Job
from streaming.liveview import LiveView
from streaming.measuring import Measures
from streaming.stopping import Stopped

_LOOK_EVERY_SECONDS = 0.25


def run(
    configuration: Configuration,
    views: Sequence[ViewSettings],
    report: Callable[[str], None],
    once: bool = False,
) -> Measures:
    """Keeps the views until SIGINT or SIGTERM; with `once`, until what is there is installed."""
    session: Future[SparkSession] = Future()
    job = Job(configuration, views, report, Executors(session.result))
    # Until the stream runs, both signals just end what is being done.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        job.check()
        # Spark takes seconds to start; the first state may take them as well.
        with ThreadPoolExecutor(1, "spark") as starting:
            spark = starting.submit(spark_session, report)
            job.prepare()
            session.set_result(spark.result())
            _keep_what_is_loaded()
            stream = _Stream(job, configuration, report)
            stream.run(session.result(), once)
        job.finish()
    finally:
        job.close()
    return job.measures


def _keep_what_is_loaded() -> None:
    """What is loaded by now stays, and the garbage collector looks through it no more.

    Each time it did, some 70 ms, nothing else went on; a burst of messages brings it about.
    """
    gc.collect()
    gc.freeze()


def spark_session(report: Callable[[str], None]) -> SparkSession:
    """A session with our settings, or the one that spark-submit has prepared."""
    report("starting Spark")
    builder = SparkSession.builder.appName("viewsweep")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        # The Python of the executors on this machine, which has all that they import.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
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
            names = " and ".join(view.view.name for view in self._job.views)
            self._report(f"view {names}: keeping it; Ctrl-C stops after the batch")
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
        self._take_up_what_was_fed()
        offsets = {topic: {"0": offset} for topic, offset in self._job.offsets.items()}
        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._configuration.bootstrap)
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
        """Beside the view; for several ones a place of their own. Lost, it is made anew."""
        views = self._job.views
        if len(views) == 1:
            return views[0].tables.directory / "checkpoint"
        names = "+".join(sorted(view.view.name for view in views))
        return self._configuration.warehouse / "_checkpoints" / names

    def _take_up_what_was_fed(self) -> None:
        """What Spark has fed before it was stopped, it does not feed again."""
        fed = [int(file.name) for file in self._offsets.glob("*") if file.name.isdigit()]
        if fed:
            self._job.process(self._ends(max(fed)))

    @property
    def _offsets(self) -> Path:
        return self._checkpoint / "offsets"

    def _ends(self, batch: int) -> dict[str, int]:
        """Source → behind the last offset of a batch: Spark wrote it down before the batch began.

        The file ends with one line of JSON per stream that is read, and we read one.
        """
        lines = (self._offsets / str(batch)).read_text().splitlines()
        topics = self._job.topics
        ends = orjson.loads(lines[-1])
        return {topics[topic]: end for topic, at in ends.items() for end in at.values()}

    def _batch(self, _records: DataFrame, batch: int) -> None:
        with self._working:
            if self._job.stopping.is_set():
                raise Stopped
            try:
                self._job.process(self._ends(batch))
            except Stopped:
                raise
            except BaseException as error:
                self._failure = error
                raise

    def _follow(self) -> None:
        """Looks after the tables between batches, so that a pause leaves nothing behind."""
        if self._working.acquire(blocking=False):
            try:
                self._job.look_after()
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
