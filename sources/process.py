"""The process of one source: query server, publisher and, if wanted, a workload, together.

The three share nothing but the database. The workload commits whether or not the broker is there;
the publisher reads the outbox from where it left off; questions are answered all the time. A broker
that is away or a workload that fails is said once and stops nobody else. Only when publishing has
become impossible for good the process ends.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from sources.database import SourceDatabase
from sources.drive import Driver
from sources.publisher import Publisher
from sources.queryserver import QueryServer

#: Seconds between two lines about how it goes.
_REPORT_EVERY = 5.0
#: How long to go on publishing what is committed when told to stop.
_FLUSH = 10.0


class SourceProcess:
    """Everything that serves one database, from `run` until it is told to stop."""

    def __init__(
        self,
        database: SourceDatabase,
        server: QueryServer,
        publisher: Publisher,
        driver: Driver | None,
        say: Callable[[str], None],
    ) -> None:
        self._database = database
        self._server = server
        self._publisher = publisher
        self._driver = driver
        self._say = say
        #: Whether it has been said that the workload ended.
        self._told = False

    def run(self, stop: threading.Event) -> None:
        """Serves until `stop` is set; then publishes what is committed, as far as that works."""
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
                # Answers would contain commits that no warehouse ever hears of.
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
        """Whether waiting brings more of what is committed into the topic."""
        hindered = self._publisher.error or self._publisher.outage
        return not hindered and self._database.published < self._database.version


def write_atomically(file: Path, text: str) -> None:
    """Puts the text into the file so that a reader sees all of it or no file."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text)
    part.replace(file)
