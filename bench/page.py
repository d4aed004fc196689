"""The cost of its page to a job: python -m bench.page [--repeats 3]

Bursts, and updates at a steady rate, with and without a page, in turns. The page is looked at by
five readers, who keep live pages open, and its metrics are scraped each second. Then an idle job is
measured with and without these readers: the difference is the processor time of the page alone.
"""

import contextlib
import re
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from bench.burst import Burst, BurstSettings
from bench.engines.engine import EngineOutcome, EnginePlace
from bench.engines.path import SteadyPath, WholePath
from bench.sidebyside import side_by_side
from infra.broker import which_broker
from infra.localbroker import free_port
from protocols.errors import ViewsweepError
from protocols.maintenance.registry import DEFAULT
from streaming.local.load import Load
from streaming.local.system import STREAMS, VIEW, LocalSystem

#: What the five readers look at.
_OPEN = ("/", "/", f"/view/{VIEW}", f"/view/{VIEW}", "/source/{source}")
_SECTION = '\n[page]\nlisten = "127.0.0.1:{port}"\n'
_PATIENCE_SECONDS = 300.0
_CPU = re.compile(r"^process_cpu_seconds_total ([\d.e+]+)", re.MULTILINE)


def main(
    updates: Annotated[int, typer.Option(help="Updates of a burst.")] = 100_000,
    base_rows: Annotated[int, typer.Option(help="Rows at the sources.")] = 100_000,
    rate: Annotated[float, typer.Option(help="Updates a second, for freshness.")] = 500.0,
    seconds: Annotated[int, typer.Option(help="Duration at that rate.")] = 60,
    idle_seconds: Annotated[int, typer.Option(help="Duration of the idle job.")] = 20,
    repeats: Annotated[int, typer.Option(help="Runs with and without a page.")] = 3,
) -> None:
    """Measure a job with and without its page; print the figures as JSON."""
    burst = BurstSettings(base_rows=base_rows, updates=updates, states=2)
    steady = replace(burst, updates=int(rate * seconds))
    paths = WholePath(name="off"), _Looked(WholePath(name="on"))
    fresh = SteadyPath(rate, name="off"), _Looked(SteadyPath(rate, name="on"))
    found = {
        "updates_per_s": _compared(paths, burst, repeats, "updates_per_s"),
        "freshness_p50_ms": _compared(fresh, steady, repeats, "p50_ms"),
        "cpu_share": _idle(burst, idle_seconds),
    }
    sys.stdout.write(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() + "\n")


def _say(words: str) -> None:
    Console(stderr=True).print(f"  {words}", highlight=False)


def _compared(
    engines: Sequence[Any], settings: BurstSettings, repeats: int, figure: str
) -> dict[str, Any]:
    """The medians of a figure without and with a page."""
    rows = side_by_side(engines, settings, repeats, _say).to_json()["rows"]
    for row in rows:
        if row["failure"]:
            raise ViewsweepError(row["failure"])
    off, on = (row[figure] for row in rows)
    return {"off": off, "on": on, "on / off": round(on / off, 3)}


@dataclass(frozen=True)
class _Looked:
    """A job with a page, and readers who look at it."""

    path: WholePath | SteadyPath

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def about(self) -> str:
        return self.path.about

    def missing(self) -> str | None:
        return self.path.missing()

    def measure(self, burst: Burst, place: EnginePlace) -> EngineOutcome:
        port = free_port()
        path = replace(self.path, job=self.path.job + _SECTION.format(port=port))
        with _readers(port, burst.workload.sources[0]):
            return path.measure(burst, place)


@contextlib.contextmanager
def _readers(port: int, source: str) -> Iterator[None]:
    """Inside, five live pages are open and the metrics are scraped, once the job is there."""
    over = threading.Event()

    def begin(read: Callable[[], None]) -> None:
        def insist() -> None:
            while not over.wait(0.5):
                with contextlib.suppress(OSError, ValueError):
                    read()

        threading.Thread(target=insist, daemon=True).start()

    def look(path: str) -> None:
        with urllib.request.urlopen(_url(port, f"/live{path}"), timeout=30) as news:
            while not over.is_set() and news.readline():
                pass

    def scrape() -> None:
        while not over.wait(1.0):
            _metrics(port)

    for path in _OPEN:
        begin(partial(look, path.format(source=source)))
    begin(scrape)
    try:
        yield
    finally:
        over.set()


def _url(port: int, path: str) -> str:
    return f"http://127.0.0.1:{port}{path}"


def _metrics(port: int) -> str:
    with urllib.request.urlopen(_url(port, "/metrics"), timeout=30) as answer:
        return str(answer.read().decode())


# -- the processor time of the page ----------------------------------------------------------------


def _idle(settings: BurstSettings, seconds: int) -> dict[str, Any]:
    """Processor time per second of an idle job, without and with readers."""
    port = free_port()
    load = Load(settings.workload, 0, 1.0, settings.seed, settings.base_rows)
    with (
        tempfile.TemporaryDirectory() as directory,
        which_broker(None, _say) as kafka,
        LocalSystem(
            Path(directory), kafka.bootstrap, load, DEFAULT, _SECTION.format(port=port)
        ) as system,
    ):
        system.make_sources()
        system.serve()
        job = system.start_job()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while STREAMS not in job.last_words(1000):
            if job.ended() is not None or time.monotonic() > deadline:
                raise ViewsweepError(f"the job did not start:\n{job.last_words()}")
            time.sleep(0.5)
        time.sleep(5.0)
        alone = _share(port, seconds)
        with _readers(port, load.sources[0]):
            time.sleep(3.0)
            looked_at = _share(port, seconds)
        system.stop_job(job)
    return {"alone": alone, "looked at": looked_at, "page": round(looked_at - alone, 4)}


def _share(port: int, seconds: int) -> float:
    """The processor time of the job's process per second, in cores."""
    before, began = _cpu(port), time.monotonic()
    time.sleep(seconds)
    return round((_cpu(port) - before) / (time.monotonic() - began), 4)


def _cpu(port: int) -> float:
    found = _CPU.search(_metrics(port))
    assert found is not None, "every Python process exports it"
    return float(found.group(1))


if __name__ == "__main__":
    typer.run(main)
