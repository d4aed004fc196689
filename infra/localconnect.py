"""Kafka Connect with Debezium on this machine: one process, one connector for each database."""

import json
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.errors import InfraError
from infra.jars import connect_jars
from infra.java import java
from infra.localbroker import LOOPBACK, free_port
from infra.owned import OwnedProcess, StartedInWith
from infra.progress import Progress, on_stderr

_START_SECONDS = 90.0
_MOMENT = 0.1
_LOG4J = Path(__file__).parent / "localbroker-log4j2.properties"


class LocalConnect(StartedInWith):
    """One Connect process. `start`, `stop` and `kill` may follow each other; `close` is final."""

    def __init__(
        self,
        bootstrap: str,
        connectors: Mapping[str, Mapping[str, str]],
        progress: Progress = on_stderr,
        keeps_offsets: bool = False,
    ) -> None:
        """`connectors`: name → its configuration.

        Without offsets a database's slot says where to go on, and a transaction that was published
        in part is published again as a whole. MariaDB has no slots.
        """
        self._bootstrap = bootstrap
        self._connectors = {name: dict(each) for name, each in connectors.items()}
        self._progress, self._keeps_offsets = progress, keeps_offsets
        self._directory = Path(tempfile.mkdtemp(prefix="viewsweep-connect-"))
        self._port = free_port()
        self._process: OwnedProcess | None = None

    @property
    def log(self) -> Path:
        return self._directory / "connect.log"

    def start(self) -> None:
        """Starts it; returns when the tasks of all connectors run."""
        files = [self._worker(), *(self._connector(name) for name in self._connectors)]
        class_path = os.pathsep.join(map(str, connect_jars(self._progress)))
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [
            *(str(java()), *options, f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"),
            *("-cp", class_path, main, *map(str, files)),
        ]
        self._process = OwnedProcess("connect", command, self.log)
        deadline = time.monotonic() + _START_SECONDS
        while not all(self.state(name) == "RUNNING" for name in self._connectors):
            if self._process.ended() is not None or time.monotonic() > deadline:
                said = self._process.last_words()
                self.kill()
                raise InfraError(f"Kafka Connect did not start:\n{said}")
            time.sleep(_MOMENT)

    def state(self, connector: str) -> str:
        """The state of a connector's task: it may have failed while the connector runs."""
        try:
            found = self._asked(f"/connectors/{connector}/status")
        except (OSError, ValueError):
            return "UNKNOWN"
        return str(found["tasks"][0]["state"]) if found["tasks"] else "UNKNOWN"

    def restart_failed(self) -> dict[str, str]:
        """Restarts the tasks that have failed; connector → the last cause that Connect names."""
        found: dict[str, str] = {}
        for name in self._connectors:
            if self.state(name) != "FAILED":
                continue
            trace = self._asked(f"/connectors/{name}/status")["tasks"][0].get("trace", "")
            causes = [line for line in trace.splitlines() if line.startswith("Caused by")]
            found[name] = (causes or trace.splitlines() or [""])[-1]
            self._asked(f"/connectors/{name}/tasks/0/restart", "POST")
        return found

    def _asked(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://{LOOPBACK}:{self._port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read() or b"null")

    def _worker(self) -> Path:
        """The worker's file."""
        if not self._keeps_offsets:
            self.forget()
        return self._written(
            "worker",
            {
                "bootstrap.servers": self._bootstrap,
                "listeners": f"http://{LOOPBACK}:{self._port}",
                "key.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "offset.storage.file.filename": str(self._offsets),
                "offset.flush.interval.ms": "1000",
                "plugin.discovery": "service_load",
                "producer.linger.ms": "0",
            },
        )

    @property
    def _offsets(self) -> Path:
        return self._directory / "offsets"

    def _connector(self, name: str) -> Path:
        return self._written(name, {"name": name, "tasks.max": "1", **self._connectors[name]})

    def _written(self, name: str, settings: Mapping[str, str]) -> Path:
        file = self._directory / f"{name}.properties"
        # The format escapes with backslashes.
        lines = (f"{key}={value}\n".replace("\\", "\\\\") for key, value in settings.items())
        file.write_text("".join(lines))
        return file

    def forget(self) -> None:
        """Removes the stored offsets of connectors that do not run."""
        self._offsets.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stops it cleanly."""
        self._end(OwnedProcess.stop)

    def kill(self) -> None:
        """Kills it, as a crash would."""
        self._end(OwnedProcess.kill)

    def _end(self, way: Any) -> None:
        running, self._process = self._process, None
        if running is not None:
            way(running)

    def close(self) -> None:
        """Kills it and removes its files."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
