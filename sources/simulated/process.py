"""The process of one source: query server, publisher and optionally a workload.

The three share only the database. The workload commits whether or not the broker is up; the
publisher resumes the outbox where it left off; questions are answered all the time. A broker that
is down or a workload that fails is reported once and does not stop the other parts. The process
ends only when publishing has become impossible for good.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from sources.simulated.database import SourceDatabase
from sources.simulated.drive import WorkloadDriver
from sources.simulated.publisher import Publisher
from sources.simulated.queryserver import QueryServer

#: Seconds between two progress lines.
_REPORT_EVERY = 5.0
#: Seconds to keep publishing committed transactions after a stop request.
_FLUSH = 10.0


class SourceProcess:
    """All parts that serve one database, from `run` until the stop request."""

    def __init__(
        self,
        database: SourceDatabase,
        server: QueryServer,
        publisher: Publisher,
        driver: WorkloadDriver | None,
        say: Callable[[str], None],
    ) -> None:
        self._database = database
        self._server = server
        self._publisher = publisher
        self._driver = driver
        self._say = say
        #: Whether the end of the workload has been reported.
        self._told = False

    def run(self, stop: threading.Event) -> None:
        """Serves until `stop` is set; then publishes the rest as far as possible."""
        self._publisher.start()
        if self._driver is not None:
            self._driver.start()
        try:
            self._watch(stop)
        finally:
            self._shut_down()

    def _watch(self, stop: threading.Event) -> None:
        version, moment = self._database.version, time.monotonic()
        while not stop.wait(0.2):
            if self._publisher.error is not None:
                # Answers would contain commits that no warehouse ever receives.
                raise self._publisher.error
            self._say_once_that_the_workload_ended()
            elapsed = time.monotonic() - moment
            if elapsed < _REPORT_EVERY:
                continue
            rate = (self._database.version - version) / elapsed
            version, moment = self._database.version, time.monotonic()
            self._say(
                f"source {self._database.source}: version {version},"
                f" published {self._database.published}, {rate:.1f} transactions/s"
            )

    def _say_once_that_the_workload_ended(self) -> None:
        if self._driver is None or not self._driver.finished or self._told:
            return
        self._told = True
        end = "is done" if self._driver.error is None else f"ended: {self._driver.error}"
        self._say(
            f"source {self._database.source}: the workload {end}; questions are still answered"
        )

    def _shut_down(self) -> None:
        if self._driver is not None:
            self._driver.stop()
        until = time.monotonic() + _FLUSH
        while self._publishing() and time.monotonic() < until:
            time.sleep(0.02)
        self._publisher.stop()
        self._server.stop()
        version, published = self._database.version, self._database.published
        rest = f", {version - published} to be published after the next start"
        self._say(
            f"source {self._database.source} stopped at version {version}"
            + (rest if version > published else "")
        )

    def _publishing(self) -> bool:
        """Whether more committed transactions will reach the topic soon."""
        hindered = self._publisher.error or self._publisher.outage
        return not hindered and self._database.published < self._database.version


def write_atomically(file: Path, text: str) -> None:
    """Writes the text so that a reader sees all of it or no file."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text)
    part.replace(file)
