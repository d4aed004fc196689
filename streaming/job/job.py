"""A job over its life: checked, then running.

Checked    sources, topics and tables have been asked; nothing is written
Running    every view has its state, and its protocol keeps it
"""

from collections.abc import Sequence

from streaming.figures.measuring import Measures
from streaming.figures.status import JobStatus, status_of
from streaming.job.checked import Checked
from streaming.job.context import Context, Report
from streaming.job.recording import Recording
from streaming.job.running import Running
from streaming.job.sweeping import Cluster
from streaming.settings.configuration import Configuration, ViewSettings


class Job:
    """The job that keeps these views; `close` ends it in whatever phase it is."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Sequence[ViewSettings],
        report: Report,
        executors: Cluster | None = None,
    ) -> None:
        recording = None if configuration.page is None else Recording()
        self._context = Context(configuration, report, recording=recording)
        self._settings = tuple(settings)
        self._executors = executors
        self._checked: Checked | None = None
        self._running: Running | None = None
        #: Set from outside to end the job; every wait gives up then.
        self.stopping = self._context.stopping

    @property
    def measures(self) -> Measures:
        """The figures that its threads note."""
        return self._context.measures

    @property
    def recording(self) -> Recording | None:
        """The answers of the last positions, if they are kept."""
        return self._context.recording

    def check(self) -> Checked:
        """Checks everything that can be checked before any work is begun."""
        self._checked = Checked(self._context, self._settings)
        return self._checked

    def prepare(self) -> Running:
        """Gives every view its state; then batches can come."""
        self._running = Running(self._context, self.checked, self._executors)
        return self._running

    @property
    def checked(self) -> Checked:
        """The result of `check`."""
        assert self._checked is not None, "check comes first"
        return self._checked

    @property
    def running(self) -> Running:
        """The views at work."""
        assert self._running is not None, "prepare comes first"
        return self._running

    def status(self) -> JobStatus:
        """Everything that is known at this moment; any thread may ask."""
        running = self._running
        return status_of(self.measures, *(running.status() if running is not None else ((), ())))

    @property
    def failure(self) -> BaseException | None:
        """The error of the first view that failed while others went on."""
        return None if self._running is None else self._running.failure

    def close(self) -> None:
        """Releases all connections, also those that something still waits for."""
        self.stopping.set()
        for phase in (self._running, self._checked):
            if phase is not None:
                phase.close()
