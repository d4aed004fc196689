"""A database server on this machine, for demos and tests; its data are thrown away."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from infra.errors import InfraError
from infra.localbroker import free_port
from infra.owned import OwnedProcess, StartedInWith

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


class LocalServer(StartedInWith, ABC):
    """One server. `start`, `stop`, `kill` and `restart` may follow each other; `close` is final."""

    #: Its name for messages, and that of its program.
    name: ClassVar[str]
    program: ClassVar[str]
    #: The file in `held` that begins with its process id.
    pid_file: ClassVar[str]
    #: How it is told to end, and to end at once.
    to_stop: ClassVar[signal.Signals]
    to_kill: ClassVar[signal.Signals]

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.data = Path(tempfile.mkdtemp(prefix=f"viewsweep-{self.program}-"))
        #: The directory of the database.
        self.held = self.data / "held"
        self.port = free_port()
        self._process: OwnedProcess | None = None

    @abstractmethod
    def _create(self) -> None:
        """Makes an empty directory a database."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The program with its options."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it accepts connections."""

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    def start(self) -> None:
        """Starts it on its data; returns when it answers."""
        if not self.held.exists():
            self._create()
        self._process = OwnedProcess(self.program, self._command(), self.log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.ended() is not None or time.monotonic() > deadline:
                said = self._process.last_words()
                self.kill()
                raise InfraError(f"{self.name} in {self.data} did not start:\n{said}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stops it cleanly: its clients are disconnected, their transactions rolled back."""
        self._signal(self.to_stop)

    def kill(self) -> None:
        """Stops it as a crash would: at its next start it recovers from its log."""
        self._signal(self.to_kill)

    def _signal(self, number: signal.Signals) -> None:
        running, self._process = self._process, None
        if running is None:
            return
        try:
            os.kill(int((self.held / self.pid_file).read_text().split()[0]), number)
            running.wait(_STOP_SECONDS)
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
            running.kill()

    def restart(self) -> None:
        """Starts again on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it and removes its data."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
