"""Kills databases, connectors and the job again and again, and judges every state of the view.

    python -m bench.databasecrashes [--on postgres|mariadb|mixed] [--times 20]
        [--transactions 20000] [--rate 60]

Three databases are written all the time, Debezium publishes, `viewsweep run` keeps a view of their
join. The job, a Connect process and a database server are each killed (SIGKILL; PostgreSQL by an
immediate shutdown) as often as `--times` says, at random moments, and started again. In the end
each position of the view has to equal what DuckDB computes over the databases' own logs; else, or
if something is lost or there twice, it fails, and everything is kept. A connector whose task has
failed is restarted, as whoever runs Connect would do.
"""

import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from infra.localbroker import LocalBroker
from infra.localmariadb import LocalMariaDB
from infra.localpostgres import LocalPostgres
from infra.owned import OwnedProcess
from protocols.views.tree import AnyView
from streaming.settings.configuration import read_configuration
from tests.cases.stories import KEYED
from tests.harness.databases import DatabaseWorld, RealDatabase
from tests.harness.world import start
from warehouse.definition import is_kept
from warehouse.tables import ViewTables

_PARTS = ("job", "connect", "server")
_LONG_SECONDS = 600.0
_MOMENT = 0.5


class _Job:
    """The job's process, which is started again whenever it has ended."""

    def __init__(self, configuration: Path) -> None:
        self._configuration, self._log = configuration, configuration.parent / "job.log"
        #: How often it ended by itself.
        self.gave_up = 0
        self._process: OwnedProcess | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "cli.main", "run", "--config", str(self._configuration)]
        self._process = OwnedProcess("job", command, self._log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def tend(self) -> None:
        """Starts it again if it has given up."""
        assert self._process is not None
        if self._process.ended() is not None:
            self.gave_up += 1
            self.start()


@contextmanager
def _writing(databases: list[RealDatabase], rate: float, seed: int) -> Iterator[None]:
    """Each database is written, about so often a second altogether, whatever happens to it."""
    stopping = threading.Event()

    def write(number: int, database: RealDatabase) -> None:
        dice = random.Random(1000 * seed + number)
        while not stopping.wait(dice.expovariate(rate / len(databases))):
            database.write(dice)

    threads = [
        threading.Thread(target=write, args=each, daemon=True) for each in enumerate(databases)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def main(
    on: Annotated[
        Literal["postgres", "mariadb", "mixed"], typer.Option(help="The databases.")
    ] = "postgres",
    times: Annotated[int, typer.Option(min=0, help="Kills of each part.")] = 20,
    transactions: Annotated[int, typer.Option(min=0, help="Go on up to this position.")] = 0,
    rate: Annotated[float, typer.Option(min=1, help="Transactions a second, altogether.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of order and moments.")] = 1,
) -> None:
    """Kill all parts at random moments; exit code 0 if every state is right."""
    directory = Path(tempfile.mkdtemp(prefix="viewsweep-crashes-"))
    print(f"seed {seed}, {times} kills of each part, in {directory}", flush=True)
    with ExitStack() as stack:
        broker = stack.enter_context(LocalBroker())
        servers: list[Any] = []
        if on != "mariadb":
            servers.append(stack.enter_context(LocalPostgres()))
        if on != "postgres":
            servers.append(stack.enter_context(LocalMariaDB()))
        world = DatabaseWorld(directory, broker.bootstrap, "crashes", KEYED).on(*servers)
        stack.enter_context(world)
        _suffer(world, servers, times, transactions, rate, seed)
        _judge(world)
    shutil.rmtree(directory, ignore_errors=True)


def _suffer(
    world: DatabaseWorld,
    servers: list[Any],
    times: int,
    transactions: int,
    rate: float,
    seed: int,
) -> None:
    dice = random.Random(seed)
    world.publish()
    world.number_from_here()
    configuration = world.write_configuration(patience_seconds=30.0)
    with world.job(read_configuration(configuration)) as checked:
        checked.check()
        view = checked.view
    job = _Job(configuration)
    plan = [part for part in _PARTS for _ in range(times)]
    dice.shuffle(plan)
    # Its numbers begin where the job begins.
    position = _wait_beyond(world, view, job, -1)
    try:
        with _writing(list(world.databases.values()), rate, seed):
            for number, part in enumerate(plan, 1):
                position = _wait_beyond(world, view, job, position)
                time.sleep(dice.uniform(0.0, 2.0))
                victims: dict[str, list[Any]] = {
                    "job": [job],
                    "connect": list(world.connects.values()),
                    "server": servers,
                }
                victim = dice.choice(victims[part])
                victim.kill()
                time.sleep(dice.uniform(0.0, 1.0))
                victim.start()
                print(f"{number:3} of {len(plan)}  position {position:6,}  {part}", flush=True)
            _wait_beyond(world, view, job, max(position, transactions))
        world.wait_until_published()
        _wait_beyond(world, view, job, sum(world.versions.values()) - 1)
    finally:
        job.kill()
    print(f"the job gave up {job.gave_up} times", flush=True)


def _wait_beyond(world: DatabaseWorld, view: AnyView, job: _Job, position: int) -> int:
    """The position of the view, once it is beyond this one."""
    since, last = time.monotonic(), -1
    while True:
        job.tend()
        _tend_connectors(world)
        if is_kept(world.directory / "tables" / "v"):
            found = ViewTables(world.directory / "tables", view).standing().position
            if found > position:
                return found
            if found > last:
                since, last = time.monotonic(), found
        if time.monotonic() - since > _LONG_SECONDS:
            raise TimeoutError(f"the view is still at position {last}")
        time.sleep(_MOMENT)


def _tend_connectors(world: DatabaseWorld) -> None:
    """Restarts tasks that have failed, as whoever runs Connect would."""
    for connect in world.connects.values():
        with suppress(OSError, ValueError):
            for name, cause in connect.restart_failed().items():
                print(f"the connector of {name} had failed: {cause}", flush=True)


def _judge(world: DatabaseWorld) -> None:
    configuration = read_configuration(world.directory / "warehouse.toml")
    with world.job(configuration, protocol="batched-sweep") as job:
        start(job)
        positions = world.assert_complete(job.tables)
        assert job.standing.vector == world.versions, (job.standing.vector, world.versions)
    print(f"{positions:,} positions, each right; nothing lost, nothing twice")


if __name__ == "__main__":
    typer.run(main)
