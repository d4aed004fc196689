"""A whole system on this machine: sources, job, configuration.

Everything is started exactly as a user would start it by hand (README, "By hand"); this file does
it step by step and watches.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from infra.owned import OwnedProcess
from infra.progress import Progress, silent
from protocols.errors import Unreachable, ViewsweepError
from streaming.local.databases import MariaDBDatabases, PostgresDatabases
from streaming.local.load import BEGIN, Load, LocalSources
from streaming.local.processes import PATIENCE_SECONDS, Processes
from streaming.local.simulated import SimulatedSources
from streaming.settings.configuration import Configuration, read_configuration
from warehouse.definition import stored_view
from warehouse.standing import Standing
from warehouse.tables import ViewTables

#: The kinds of sources; "mixed" has one of each, in turn.
Kind: TypeAlias = Literal["simulated", "postgres", "mariadb", "mixed"]
_KINDS: dict[Kind, tuple[str, ...]] = {
    "simulated": ("simulated",),
    "postgres": ("postgres",),
    "mariadb": ("mariadb",),
    "mixed": ("postgres", "mariadb", "simulated"),
}
VIEW = "demo"
#: The job's message contains this once it reads the topics.
STREAMS = "keeping it"
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


class LocalSystem:
    """Processes in one directory, ended together at the end of `with`."""

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        load: Load,
        protocol: str,
        job: str = "",
        on: Kind = "simulated",
        progress: Progress = silent,
    ) -> None:
        """`job`: lines of the configuration's section of that name. `on`: the kind of sources."""
        self.directory, self.load = directory, load
        self._job, self._bootstrap, self._protocol = job, bootstrap, protocol
        self._processes = Processes(directory)
        kinds = dict(zip(load.sources, cycle(_KINDS[on]), strict=False))
        self._sources: list[LocalSources] = []
        for kind in dict.fromkeys(kinds.values()):
            names = [name for name in load.sources if kinds[name] == kind]
            self._sources.append(self._of_kind(kind, names, progress))

    def _of_kind(self, kind: str, names: Sequence[str], progress: Progress) -> LocalSources:
        place = self._processes, names, self._bootstrap, self.topic
        if kind == "simulated":
            return SimulatedSources(*place)
        databases = PostgresDatabases if kind == "postgres" else MariaDBDatabases
        return databases(*place, progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def start(self, name: str, arguments: str) -> OwnedProcess:
        """Runs one viewsweep command in the directory, its output in NAME.log."""
        return self._processes.start(name, arguments)

    def make_sources(self) -> None:
        """The sources' databases, filled for the workload."""
        for sources in self._sources:
            sources.make(self.load)

    def serve(self, at_rest: bool = False) -> dict[str, str]:
        """Starts the sources, which begin to commit at once, or with `begin` if `at_rest`.

        Returns their addresses.
        """
        found: dict[str, str] = {}
        for sources in self._sources:
            found |= sources.serve(self.load, at_rest)
        self._write_configuration()
        return {name: found[name] for name in self.load.sources}

    def begin(self) -> None:
        """Lets sources that were started with `at_rest` begin to commit."""
        (self.directory / BEGIN).touch()

    def stop_sources(self) -> None:
        """Ends them; `serve` starts them again."""
        for sources in self._sources:
            sources.stop()

    def topic(self, source: str) -> str:
        """A topic name of this run's own: a given broker may have topics of earlier runs."""
        return f"{source}-{self.directory.name}"

    def _write_configuration(self) -> None:
        lines: dict[str, str] = {}
        for each in self._sources:
            lines |= each.settings()
        sources = "".join(
            f'\n[sources.{name}]\n{lines[name]}\ntopic = "{self.topic(name)}"\n'
            for name in self.load.sources
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
        if time.monotonic() - since > PATIENCE_SECONDS + self.load.transactions / self.load.rate:
            raise Unreachable(f"the job is not catching up:\n{job.last_words()}")
