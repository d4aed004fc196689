"""Processes that end with their owner: the sources and the job of a demo or a test."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from infra import watchdog

_HERE = Path(__file__).parent


class StartedInWith:
    """Starts at the beginning of `with`; closes at its end, or if the start fails."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OwnedProcess:
    """One program under a watchdog, its output in a file; Ctrl-C reaches the owner only."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "watchdog.py"), *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of the watchdog, the parent of the program and of all that it starts."""
        return self._watchdog.pid

    def ended(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._watchdog.poll()

    def wait(self, seconds: float) -> int:
        """Waits until it ends by itself; its exit code."""
        code = self._watchdog.wait(seconds)
        self._close()
        return code

    def stop(self) -> int:
        """Ends it with SIGTERM, and by force if it does not end."""
        return self._order(watchdog.STOP)

    def kill(self) -> int:
        """Ends it with SIGKILL, as a crash would."""
        return self._order(watchdog.KILL)

    def abort(self) -> int:
        """Ends it with SIGABRT: with PYTHONFAULTHANDLER set it prints its threads' stacks."""
        return self._order(watchdog.ABORT)

    def _order(self, order: bytes) -> int:
        assert self._watchdog.stdin is not None
        if self._watchdog.poll() is None:
            try:
                self._watchdog.stdin.write(order)
                self._watchdog.stdin.flush()
            except BrokenPipeError:
                pass  # it has just ended by itself
        code = self._watchdog.wait()
        self._close()
        return code

    def _close(self) -> None:
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()

    def last_words(self, lines: int = 15) -> str:
        """The last lines of its output."""
        text = self.log.read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])
