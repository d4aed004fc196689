"""The viewsweep commands that a local system consists of, all in one directory."""

import contextlib
import sys
import time
from pathlib import Path

from infra.owned import OwnedProcess
from protocols.errors import ViewsweepError

PATIENCE_SECONDS = 240.0


class Processes(contextlib.ExitStack):
    """Processes and whatever else ends with them, in reverse order, at the end of `with`."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def start(self, name: str, arguments: str) -> OwnedProcess:
        """Runs one viewsweep command in the directory, its output in NAME.log."""
        viewsweep = [sys.executable, "-m", "cli.main"]
        command = ["env", "-C", str(self.directory), *viewsweep, *arguments.split()]
        process = OwnedProcess(name, command, self.directory / f"{name}.log")
        self.callback(process.stop)
        return process

    def finish(self, processes: list[OwnedProcess]) -> None:
        """Waits for commands that end by themselves."""
        for process in processes:
            if process.wait(PATIENCE_SECONDS):
                raise ViewsweepError(f"{process.name} failed:\n{process.last_words()}")

    def written(self, file: str, by: OwnedProcess) -> str:
        """The content of a file, once the process has written it."""
        path = self.directory / file
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not path.exists():
            if by.ended() is not None or time.monotonic() > deadline:
                raise ViewsweepError(f"{by.name} did not start:\n{by.last_words()}")
            time.sleep(0.05)
        return path.read_text().strip()
