"""Our whole path: sources in their own processes, Kafka, Spark, Delta.

The job makes the first state while the sources are at version 0, and warms up on the first updates,
as the other engines do on the base rows. When it is idle, like them, it is stopped (SIGSTOP) while
the sources commit and publish the burst. When it goes on, it finds all updates in the topics and
all sources at their newest version, so every answer has to be corrected. The clock runs from that
moment to the Delta commit with the last update. (A burst that comes while `current` still takes
over earlier updates takes a quarter longer. For the measurements at a steady rate, and of a
restarted job, another process has made the first state, so the job remembers nothing of it.)
"""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import polars as pl

from bench.burst import Burst, folded
from bench.engines.engine import EngineOutcome, EnginePlace
from bench.memory import PeakMemory, descendants
from infra.owned import OwnedProcess
from protocols.algebra.delta import POSITION
from protocols.errors import Unreachable, ViewsweepError
from protocols.maintenance.registry import DEFAULT
from sources.wire.client import SourceClient
from streaming.local.load import Load
from streaming.local.system import STREAMS, LocalSystem
from warehouse.tables import ViewTables

_PATIENCE_SECONDS = 3600
#: Faster than any source can commit.
_AT_ONCE = 1e6
#: The first batches of a fresh process say nothing about the steady state.
_WARMING = timedelta(seconds=10)
#: Before the burst come so many batches, which together have one part in so many of it.
_WARM_BATCHES, _WARM_SHARE = 5, 20


@dataclass(frozen=True)
class WholePath:
    """`viewsweep run` over `viewsweep sources serve`."""

    name: str = "viewsweep"
    about: str = "whole path: Kafka, Spark, Delta; complete and durable, nothing copied"
    #: The view that is kept, if not the inner join of all relations.
    view: str | None = None
    #: Lines of the section [job] of its configuration.
    job: str = ""
    #: Whether an earlier process makes the first state, so that the job remembers nothing of it.
    restarted: bool = False

    def missing(self) -> str | None:
        return None

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        settings = burst.settings
        load = Load(
            settings.workload,
            burst.updates,
            _AT_ONCE,
            settings.seed,
            settings.base_rows,
            self.view,
        )
        bootstrap, memory = place.bootstrap(), PeakMemory()
        running = LocalSystem(place.directory, bootstrap, load, DEFAULT, self.job)
        with running as system, memory:
            place.say("the sources and the first state of the view")
            if self.restarted:
                _make_first_state(system)
            else:
                _make_sources_at_rest(system)
            sources = _Sources(burst, system.serve())
            job = system.start_job()
            _when_it_streams(job)
            for part in range(1, _WARM_BATCHES + 1):
                sources.commit_up_to(part * burst.share // _WARM_SHARE // _WARM_BATCHES)
                _caught_up(system, job, sources.version)
            warm = sources.version
            _come_to_rest(system, job)
            place.say("the burst is committed and published")
            with _asleep(job):
                sources.commit_up_to(burst.share)
                place.say("the job catches up")
                begun = time.time()
            with PeakMemory(job.pid) as of_job:
                tables = _caught_up(system, job, burst.share)
            summary = system.stop_job(job)
            ended = tables.progress()["installed_at"].max()
            assert isinstance(ended, datetime)
            seconds = ended.replace(tzinfo=UTC).timestamp() - begun
            outcome = _outcome(burst, tables, seconds, summary, memory.bytes, self.view)
            updates = (burst.share - warm) * len(load.sources)
            return replace(outcome, updates=updates, job_peak_rss_bytes=of_job.bytes)


class _Sources:
    """The sources of a burst, which commit on demand."""

    def __init__(self, burst: Burst, addresses: dict[str, str]) -> None:
        settings = burst.settings
        self._addresses = addresses
        self._transactions = {
            name: burst.workload.source(name, settings.base_rows, settings.seed).transactions()
            for name in addresses
        }
        #: The version that all of them have committed and published.
        self.version = 0

    def commit_up_to(self, version: int) -> None:
        """Lets all sources commit at once; returns when everything is in the topics."""
        with ThreadPoolExecutor(len(self._addresses)) as threads:
            list(threads.map(partial(self._commit, version), self._addresses))
        self.version = version

    def _commit(self, version: int, source: str) -> None:
        new = list(islice(self._transactions[source], version - self.version))
        with SourceClient(self._addresses[source], source=source) as client:
            client.commit(new)
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while _published(client) < version:
                if time.monotonic() > deadline:
                    raise Unreachable(f"source {source} has not published {version} versions")
                time.sleep(0.2)


@contextlib.contextmanager
def _asleep(job: OwnedProcess) -> Iterator[None]:
    """Stops all processes of the job inside the context."""
    processes = descendants(job.pid)
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def _make_sources_at_rest(system: LocalSystem) -> None:
    """Creates sources that commit only on demand."""
    system.make_sources()
    system.load = replace(system.load, transactions=0)


def _make_first_state(system: LocalSystem) -> None:
    _make_sources_at_rest(system)
    system.serve()
    first = system.start("first", "run --config warehouse.toml --once")
    if first.wait(_PATIENCE_SECONDS):
        raise ViewsweepError(f"the first state failed:\n{first.last_words()}")
    system.stop_sources()


def _published(client: SourceClient) -> int:
    """The last published version; 0 if a source is too busy with commits to answer in time."""
    with contextlib.suppress(Unreachable):
        return int(client.status()["published"])
    return 0


def _when_it_streams(job: OwnedProcess) -> float:
    """The moment at which the job says that it reads the topics."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while STREAMS not in job.last_words(1000):
        if job.ended() is not None or time.monotonic() > deadline:
            raise ViewsweepError(f"the job did not start:\n{job.last_words()}")
        time.sleep(0.02)
    return time.time()


def _wait_beside(job: OwnedProcess, seconds: float) -> None:
    """Waits and checks only that the job lives: more would take time from the measurement."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if job.ended() is not None:
            raise ViewsweepError(f"the job stopped under way:\n{job.last_words()}")
        time.sleep(min(left, 1.0))


def _caught_up(system: LocalSystem, job: OwnedProcess, version: int) -> ViewTables:
    """The view's tables, once they contain this version of every source."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        time.sleep(0.5)
        tables = system.tables()
        if tables is not None and min(tables.standing().vector.values()) >= version:
            return tables
        if job.ended() is not None or time.monotonic() > deadline:
            raise ViewsweepError(f"the job does not catch up:\n{job.last_words()}")


def _come_to_rest(system: LocalSystem, job: OwnedProcess) -> None:
    """Waits until the job is idle: `current` has taken over all earlier updates."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (tables := system.tables()) is None or tables.followed() != tables.standing().position:
        if job.ended() is not None or time.monotonic() > deadline:
            raise ViewsweepError(f"current does not follow:\n{job.last_words()}")
        time.sleep(0.5)


def _outcome(
    burst: Burst,
    tables: ViewTables,
    seconds: float,
    summary: dict[str, Any],
    memory: int,
    view: str | None = None,
) -> EngineOutcome:
    changes, progress = tables.changes().collect(), tables.progress()
    last = tables.standing().position
    cuts = [position for position in burst.cuts_of(view) if position <= last]

    def at(position: int) -> pl.DataFrame:
        return folded(changes.filter(pl.col(POSITION) <= position).drop(POSITION))

    def vector(position: int) -> dict[str, int]:
        there = progress.filter(pl.col("position") <= position)
        return dict(there.group_by("source").agg(pl.col("version").max()).iter_rows())

    return EngineOutcome(
        seconds,
        burst.updates,
        at(last),
        [at(position) for position in cuts],
        memory,
        steps=summary["step_seconds"],
        sql=None if view is None else burst.workload.view_named(view),
        vectors=[] if view is None else [vector(position) for position in cuts],
    )


@dataclass(frozen=True)
class SteadyPath:
    """The same at a steady rate of commits: measures how fresh the view is.

    Freshness is the time from the commit at the source to the Delta commit after which everybody
    can read the update. The sources begin when the job reads the topics: they are restarted with
    their workload, at the same addresses.
    """

    rate: float
    name: str = "viewsweep"
    about: str = "whole path at a steady rate"
    #: Lines of the section [job] of its configuration.
    job: str = ""

    def missing(self) -> str | None:
        return None

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        settings = burst.settings
        load = Load(settings.workload, burst.updates, self.rate, settings.seed, settings.base_rows)
        bootstrap, memory = place.bootstrap(), PeakMemory()
        with LocalSystem(place.directory, bootstrap, load, DEFAULT, self.job) as system, memory:
            _make_first_state(system)
            system.serve()
            job = system.start_job()
            _when_it_streams(job)
            system.stop_sources()
            system.load = load
            place.say(f"{burst.updates / self.rate:,.0f} s at {self.rate:g} updates/s")
            system.serve()
            warm = datetime.now(UTC).replace(tzinfo=None) + _WARMING
            _wait_beside(job, burst.updates / self.rate)
            tables = _caught_up(system, job, load.share)
            summary = system.stop_job(job)
        return _with_freshness(burst, tables, warm, summary, memory.bytes)


def _with_freshness(
    burst: Burst, tables: ViewTables, warm: datetime, summary: dict[str, Any], memory: int
) -> EngineOutcome:
    progress = tables.progress()
    delays = progress.filter(pl.col("committed_at") > warm).select(
        (pl.col("installed_at") - pl.col("committed_at")).dt.total_microseconds() / 1000
    )
    if delays.is_empty():
        raise ViewsweepError("the run ended before the job was warm; make it longer (--seconds)")
    first, last = progress["committed_at"].min(), progress["committed_at"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    whole = _outcome(burst, tables, (last - first).total_seconds(), summary, memory)
    p50, p99 = (delays.to_series().quantile(share) for share in (0.5, 0.99))
    return replace(whole, updates=progress.height, p50_ms=p50, p99_ms=p99)
