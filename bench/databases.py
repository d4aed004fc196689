"""The whole path from a commit at a database to Delta, beside the same load on simulated sources.

    python -m bench.databases [--on simulated,postgres,mariadb] [--rates 500,2000] [--seconds 40]

One run for each rate and kind, in turns. Three sources commit the retail workload; a job keeps the
join of them. Freshness is the time from a commit to the Delta commit that contains it, without the
first ten seconds (MariaDB's log has commit times in whole seconds, so there it is up to a second
more). Beside it: the processor time that the database server needs, and of that what is due to the
job's look-ups, to Debezium, and to the writers. Of MariaDB's threads nobody says whose they are.
"""

import json
import statistics
import threading
import time
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import polars as pl
import psutil
import psycopg
import typer
from rich.console import Console
from rich.table import Table

from infra.broker import which_broker
from infra.progress import silent
from infra.workplace import workplace
from streaming.local.load import Load
from streaming.local.system import STREAMS, Kind, LocalSystem
from warehouse.tables import ViewTables

_WARMING = timedelta(seconds=10)
_MOMENT = 0.5
_BACKENDS = """
SELECT pid, CASE WHEN application_name = 'viewsweep' THEN 'look-ups'
                 WHEN backend_type = 'walsender' THEN 'Debezium'
                 WHEN backend_type = 'client backend' THEN 'writers' ELSE 'server' END
FROM pg_stat_activity
"""


class ServerTime:
    """The processor time of a database server, by what it is spent for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        #: Process → what it works for, and its seconds.
        self._spent: dict[int, tuple[str, float]] = {}
        self._begun: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ServerTime":
        self._look()
        self._begun = {pid: seconds for pid, (_, seconds) in self._spent.items()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> dict[str, float]:
        """Purpose → seconds since the beginning."""
        found: dict[str, float] = defaultdict(float)
        for pid, (purpose, seconds) in self._spent.items():
            found[purpose] += seconds - self._begun.get(pid, 0.0)
        return found

    def _watch(self) -> None:
        while not self._ended.wait(_MOMENT):
            self._look()

    def _look(self) -> None:
        purposes = self._purposes()
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name() in ("postgres", "mariadbd"):
                    times = process.cpu_times()
                    purpose = purposes.get(process.pid, "server")
                    self._spent[process.pid] = purpose, times.user + times.system

    def _purposes(self) -> dict[int, str]:
        addresses = [each.read_text() for each in self._directory.glob("*.address")]
        for address in addresses:
            if address.startswith("postgresql"):
                with psycopg.connect(address, autocommit=True) as connection:
                    return dict(connection.execute(_BACKENDS).fetchall())
        return {}


def main(
    on: Annotated[str, typer.Option(help="Kinds of sources.")] = "simulated,postgres,mariadb",
    rates: Annotated[str, typer.Option(help="Transactions a second, altogether.")] = "500,2000",
    seconds: Annotated[int, typer.Option(min=20, help="Length of a run.")] = 40,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Measure freshness and the database's load."""
    kinds = cast("list[Kind]", on.split(","))
    runs: dict[str, list[dict[str, float]]] = {}
    for _ in range(repeats):
        for rate in map(int, rates.split(",")):
            for kind in kinds:
                runs.setdefault(f"{kind} {rate}", []).append(_run(kind, rate, seconds))
    found = {name: _medians(each) for name, each in runs.items()}
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(found)


def _run(kind: Kind, rate: int, seconds: int) -> dict[str, float]:
    load = Load("retail", rate * seconds, rate, scale=10_000)
    with (
        workplace("bench") as place,
        which_broker(progress=silent) as broker,
        LocalSystem(place, broker.bootstrap, load, "batched-sweep", on=kind) as system,
    ):
        system.make_sources()
        system.serve(at_rest=True)
        job = system.start_job()
        _wait(system, job, lambda: STREAMS in job.log.read_text(errors="replace"))
        with ServerTime(place) as server:
            system.begin()
            _wait(system, job, system.everything_is_installed)
        summary = system.stop_job(job)
        tables = system.tables()
        assert tables is not None
        return {**_figures(tables), **_per_thousand(server, load), **_questions(summary)}


def _wait(system: LocalSystem, job: Any, done: Any) -> None:
    since = time.monotonic()
    while not done():
        system.refuse_to_wait_for(job, since)
        time.sleep(_MOMENT)


def _figures(tables: ViewTables) -> dict[str, float]:
    progress = tables.progress()
    begun, ended = progress["committed_at"].min(), progress["installed_at"].max()
    warm = progress.filter(pl.col("committed_at") > cast("Any", begun) + _WARMING)
    delays = warm.select(
        (pl.col("installed_at") - pl.col("committed_at")).dt.total_microseconds() / 1000
    ).to_series()
    return {
        "updates/s": progress.height / cast("Any", ended - cast("Any", begun)).total_seconds(),
        "p50 ms": cast("float", delays.quantile(0.5)),
        "p99 ms": cast("float", delays.quantile(0.99)),
    }


def _per_thousand(server: ServerTime, load: Load) -> dict[str, float]:
    """Milliseconds of the server's processor time per thousand transactions."""
    return {
        f"{purpose} ms/1000": spent * 1000 / (load.transactions / 1000)
        for purpose, spent in server.seconds.items()
    }


def _questions(summary: dict[str, Any]) -> dict[str, float]:
    return {
        "questions/update": summary["queries"] / summary["updates"],
        "corrected": summary["corrected_answers"] / max(1, summary["queries"]),
    }


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(each[name] for each in runs) for name in runs[0]}


def _show(found: dict[str, dict[str, float]]) -> None:
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    table = Table("", *names, box=None)
    for run, each in found.items():
        table.add_row(run, *(f"{each[n]:,.2f}" if n in each else "" for n in names))
    Console(width=200).print(table)


if __name__ == "__main__":
    typer.run(main)
