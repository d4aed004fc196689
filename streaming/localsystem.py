"""The whole system as processes of this machine: sources, job, configuration.

For the demo and the measurements. Everything is started exactly as a user would start it by hand
(README, "By hand"); this file does it step by step and watches.
"""

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from infra.owned import OwnedProcess
from protocols.errors import Unreachable, ViewsweepError
from protocols.views.sql import sources_named_in
from sources.simulated.workloads import workload
from streaming.settings.configuration import Configuration, read_configuration
from warehouse.definition import stored_view
from warehouse.standing import Standing
from warehouse.tables import ViewTables

VIEW = "demo"
#: The job's message contains this once it reads the topics.
STREAMS = "keeping it"
_BEGIN = "begin"
_PATIENCE_SECONDS = 240
_CONFIGURATION = """\
# Made by viewsweep itself; it is a complete configuration like any other.
[warehouse]
path = "lake"

[kafka]
bootstrap = "{bootstrap}"
{sources}
[views.{view}]
sql = "view.sql"
protocol = "{protocol}"
{job}"""


@dataclass(frozen=True)
class Load:
    """The load on the sources: a workload, its size and its rate."""

    workload: str
    #: Transactions over all sources, and how many of them per second.
    transactions: int
    rate: float
    seed: int = 7
    scale: int = 1000
    #: The view of the workload that is kept; None for its inner join.
    view: str | None = None

    @property
    def sql(self) -> str:
        """The view's text."""
        return workload(self.workload).view_named(self.view)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of the view."""
        named = sources_named_in(self.sql)
        return tuple(source for source in workload(self.workload).sources if source in named)

    @property
    def share(self) -> int:
        """The number of transactions that each source commits."""
        return -(-self.transactions // len(self.sources))


class LocalSystem:
    """Processes in one directory, ended together at the end of `with`."""

    def __init__(
        self, directory: Path, bootstrap: str, load: Load, protocol: str, job: str = ""
    ) -> None:
        """`job`: lines of the configuration's section of that name."""
        self.directory = directory
        self._job = job
        self.load = load
        self._bootstrap = bootstrap
        self._protocol = protocol
        self._running = contextlib.ExitStack()
        self._servers: dict[str, OwnedProcess] = {}
        #: The sources' ports so far: a running job expects them there after a restart.
        self._ports: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self, name: str, arguments: str) -> OwnedProcess:
        """Runs one viewsweep command in the directory, its output in NAME.log."""
        viewsweep = [sys.executable, "-m", "cli.main"]
        command = ["env", "-C", str(self.directory), *viewsweep, *arguments.split()]
        process = OwnedProcess(name, command, self.directory / f"{name}.log")
        self._running.callback(process.stop)
        return process

    def make_sources(self) -> None:
        """The sources' databases, filled for the workload."""
        load = self.load
        makers = [
            self.start(
                f"init-{name}",
                f"sources init {name}.db --source {name} --workload {load.workload}"
                f" --seed {load.seed} --scale {load.scale}",
            )
            for name in load.sources
        ]
        for maker in makers:
            if maker.wait(_PATIENCE_SECONDS):
                raise ViewsweepError(f"{maker.name} failed:\n{maker.last_words()}")

    def serve(self, at_rest: bool = False) -> dict[str, str]:
        """Starts the sources, which begin to commit at once, or with `begin` if `at_rest`.

        Returns their addresses.
        """
        for name in self.load.sources:
            (self.directory / f"{name}.address").unlink(missing_ok=True)
        self._servers = {
            name: self.start(
                name,
                f"sources serve {name}.db --broker {self._bootstrap} --topic {self.topic(name)}"
                f" --address-file {name}.address --port {self._ports.get(name, '0')}"
                f" --workload {self.load.workload}"
                f" --transactions {self.load.share}"
                f" --rate {self.load.rate / len(self.load.sources):.3f}"
                + (f" --after {_BEGIN}" if at_rest else ""),
            )
            for name in self.load.sources
        }
        addresses = {name: self._address(name, server) for name, server in self._servers.items()}
        self._ports = {name: at.rpartition(":")[2] for name, at in addresses.items()}
        self._write_configuration(addresses)
        return addresses

    def begin(self) -> None:
        """Lets sources that were started with `at_rest` begin to commit."""
        (self.directory / _BEGIN).touch()

    def stop_sources(self) -> None:
        """Ends them; `serve` starts them again at the same ports, to go on with the workload."""
        for server in self._servers.values():
            server.stop()

    def topic(self, source: str) -> str:
        """A topic name of this run's own: a given broker may have topics of earlier runs."""
        return f"{source}-{self.directory.name}"

    def _address(self, name: str, server: OwnedProcess) -> str:
        file = self.directory / f"{name}.address"
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not file.exists():
            if server.ended() is not None or time.monotonic() > deadline:
                raise ViewsweepError(f"source {name} did not start:\n{server.last_words()}")
            time.sleep(0.05)
        return file.read_text().strip()

    def _write_configuration(self, addresses: dict[str, str]) -> None:
        sources = "".join(
            f'\n[sources.{name}]\naddress = "{address}"\ntopic = "{self.topic(name)}"\n'
            for name, address in addresses.items()
        )
        text = _CONFIGURATION.format(
            bootstrap=self._bootstrap,
            sources=sources,
            view=VIEW,
            protocol=self._protocol,
            job=f"\n[job]\n{self._job}\n" if self._job else "",
        )
        (self.directory / "view.sql").write_text(self.load.sql)
        (self.directory / "warehouse.toml").write_text(text)

    def configuration(self) -> Configuration:
        """The written configuration, read back."""
        return read_configuration(self.directory / "warehouse.toml")

    def start_job(self) -> OwnedProcess:
        """The streaming job; its figures go to summary.json when it ends."""
        return self.start("job", "run --config warehouse.toml --summary summary.json")

    def stop_job(self, job: OwnedProcess) -> dict[str, Any]:
        """Ends the job after its batch; returns its figures."""
        code = job.stop()
        if code:
            raise ViewsweepError(f"the job ended with exit code {code}:\n{job.last_words()}")
        figures: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return figures

    def tables(self) -> ViewTables | None:
        """The view's tables, once its first state is there."""
        directory = self.directory / "lake" / VIEW
        if not (directory / "changes").exists():
            return None
        with contextlib.suppress(ViewsweepError):
            tables = ViewTables(directory.parent, stored_view(directory))
            # The directory is there a moment before the first commit in it.
            return tables if tables.exists else None
        return None

    def standing(self) -> Standing | None:
        """The standing of the view's last commit; None before the first."""
        tables = self.tables()
        return None if tables is None else tables.standing()

    def everything_is_installed(self) -> bool:
        """Whether the view has all transactions of the workload."""
        standing = self.standing()
        return standing is not None and min(standing.vector.values()) >= self.load.share

    def refuse_to_wait_for(self, job: OwnedProcess, since: float) -> None:
        """An error when the job has ended, or has had far more time than it needs."""
        if job.ended() is not None:
            raise ViewsweepError(f"the job ended by itself:\n{job.last_words()}")
        if time.monotonic() - since > _PATIENCE_SECONDS + self.load.transactions / self.load.rate:
            raise Unreachable(f"the job is not catching up:\n{job.last_words()}")
