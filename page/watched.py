"""The job that a page is about: the one in this process, one at an address, or none."""

import threading
import time
from typing import Protocol

from page.asking import status_at
from protocols.errors import ViewsweepError
from streaming.figures.status import JobStatus
from streaming.job.job import Job
from streaming.job.recording import Recording
from streaming.settings.pagesection import PageSettings


class Watched(Protocol):
    """Where a page gets its status from."""

    @property
    def here(self) -> bool:
        """Whether the job is in this process, which knows the answers to its last questions."""
        ...

    @property
    def recording(self) -> Recording | None:
        """The answers to these questions, if they are kept."""
        ...

    def status(self) -> JobStatus | None:
        """The status at this moment; None if there is no job."""
        ...


class JobHere:
    """The job in this process."""

    here = True

    def __init__(self, job: Job) -> None:
        self._job = job

    @property
    def recording(self) -> Recording | None:
        return self._job.recording

    def status(self) -> JobStatus | None:
        return self._job.status()


class JobElsewhere:
    """A job that shows itself at an address, or does not; asked once a second at most."""

    here = False
    recording = None
    _EVERY_SECONDS = 1.0

    def __init__(self, page: PageSettings | None, token: str | None) -> None:
        self._page = page
        self._token = token
        self._asked = -self._EVERY_SECONDS
        self._last: JobStatus | None = None
        self._asking = threading.Lock()

    def status(self) -> JobStatus | None:
        if self._page is None:
            return None
        with self._asking:
            if time.monotonic() - self._asked >= self._EVERY_SECONDS:
                try:
                    self._last = status_at(self._page, self._token, seconds=1.0)
                except ViewsweepError:
                    self._last = None
                self._asked = time.monotonic()
            return self._last
