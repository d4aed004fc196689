"""Simulated sources as processes of this machine."""

from collections.abc import Callable, Sequence

from infra.owned import OwnedProcess
from streaming.local.load import Load
from streaming.local.processes import Processes


class SimulatedSources:
    """A file and a process for each source, as README, "By hand", starts them."""

    def __init__(
        self,
        processes: Processes,
        names: Sequence[str],
        bootstrap: str,
        topic: Callable[[str], str],
    ) -> None:
        self._processes, self._names = processes, names
        self._bootstrap, self._topic = bootstrap, topic
        self._servers: dict[str, OwnedProcess] = {}
        self._addresses: dict[str, str] = {}
        #: The ports so far: a running job expects the sources there after a restart.
        self._ports: dict[str, str] = {}

    def make(self, load: Load) -> None:
        """The files."""
        start = self._processes.start
        self._processes.finish(
            [
                start(f"init-{name}", f"sources init {name}.db --source {name} {load.content}")
                for name in self._names
            ]
        )

    def serve(self, load: Load, at_rest: bool) -> dict[str, str]:
        """Starts query servers and publishers."""
        for name in self._names:
            (self._processes.directory / f"{name}.address").unlink(missing_ok=True)
        self._servers = {
            name: self._processes.start(
                name,
                f"sources serve {name}.db --broker {self._bootstrap} --topic {self._topic(name)}"
                f" --address-file {name}.address --port {self._ports.get(name, '0')}"
                f" --workload {load.workload} {load.commits(at_rest)}",
            )
            for name in self._names
        }
        self._addresses = {
            name: self._processes.written(f"{name}.address", server)
            for name, server in self._servers.items()
        }
        self._ports = {name: at.rpartition(":")[2] for name, at in self._addresses.items()}
        return self._addresses

    def settings(self) -> dict[str, str]:
        """Their addresses."""
        return {name: f'address = "{address}"' for name, address in self._addresses.items()}

    def stop(self) -> None:
        """Ends them; they go on with the workload at the same ports."""
        for server in self._servers.values():
            server.stop()
