"""Slices of a batch on Spark's executors, by `mapInArrow`.

The data that the slices share is broadcast: each executor gets it once. The input of a task is the
number of its slice; its result names the file of the changes, or is an error.

The executors import this package: on a cluster, `spark-submit --py-files`. They ask the query
servers, read the topics and write into the table themselves, so they need to reach all three, and
need the variables that `token_env` and `[kafka]` name in their environment
(`spark.executorEnv.…`), and the files of `[kafka]`.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from protocols.errors import ViewsweepError
from protocols.exchange.slices import Slice
from streaming.job.slices import Batch, Swept, sweep

#: A slice has no more rows than this, so that its memory does not grow with the batch.
_SLICE_ROWS = 200_000
_OUTCOME = pa.schema([("outcome", pa.binary())])

#: Maps the numbers of slices to their outcomes.
Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Executors:
    """The executors of a Spark session."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        #: Called on first use, because Spark starts while the job does other things.
        self._session = session

    def slices(self, rows: int) -> int:
        """One slice for each core, or more if slices would become too large."""
        return max(self._session().sparkContext.defaultParallelism, -(-rows // _SLICE_ROWS))

    def sweep(self, batch: Batch, slices: Sequence[Slice]) -> list[Swept]:
        """All slices, swept, in their order."""
        spark = self._session()
        # The group belongs to this thread, so sweeps for other views are not in it.
        spark.sparkContext.setJobGroup(_group(batch.view.name), batch.view.name, True)
        shared = spark.sparkContext.broadcast((batch, tuple(slices)))
        numbers = spark.range(0, len(slices), 1, len(slices))
        try:
            table = numbers.mapInArrow(task(shared), "outcome binary").toArrow()
        except (PySparkException, Py4JError) as error:
            raise ViewsweepError(
                f"view {batch.view.name}: the executors did not sweep positions {slices[0].first}"
                f" to {slices[-1].last}: {_last_line(error)}. Nothing of the batch is visible. The"
                " same command goes on; with job.executor_rows = 0 the driver sweeps it"
            ) from error
        finally:
            shared.destroy()
        return sorted(map(_good, table["outcome"]), key=lambda swept: swept.slice.first)

    def cancel(self, view: str) -> None:
        """Ends the Spark jobs that sweep for a view."""
        self._session().sparkContext.cancelJobGroup(_group(view))


def _group(view: str) -> str:
    return f"viewsweep {view}"


def task(shared: Any) -> Task:
    """The function that an executor runs."""

    def outcomes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch, slices = shared.value
        for numbers in batches:
            for number in numbers.column("id").to_pylist():
                outcome = pickle.dumps(_outcome(batch, slices[number]))
                yield pa.RecordBatch.from_pydict({"outcome": [outcome]}, _OUTCOME)

    return outcomes


def _outcome(batch: Batch, stretch: Slice) -> Swept | ViewsweepError:
    """Returns our errors instead of raising them: Spark's retries would end the same way."""
    try:
        return sweep(batch, stretch)
    except ViewsweepError as error:
        return error


def _good(outcome: pa.BinaryScalar) -> Swept:
    found: Swept | ViewsweepError = pickle.loads(outcome.as_buffer())
    if isinstance(found, ViewsweepError):
        raise found
    return found


def _last_line(error: Exception) -> str:
    """The last line of the error, which names the Python exception after its stack."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line[0].isspace()]
    return lines[-1] if lines else type(error).__name__
