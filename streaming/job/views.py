"""The views of a job: one that fails is named, and the others go on.

A view fails with an error of its protocol, of its commits or of the upkeep of its tables. An error
of a source fails all views that read it. Nothing more of a failed view is installed, and nothing is
kept in memory for it. Its tables stay as they are, and the next start goes on from them. Any other
error ends the job, and so does the failure of the last view.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from protocols.algebra.frame import Frame
from protocols.errors import ViewsweepError
from protocols.exchange.driver import Driver
from protocols.exchange.maintained import Asker
from protocols.failures import as_ours
from protocols.telling import Told
from streaming.job.context import Report
from streaming.job.keptview import KeptView
from streaming.stopping import Stopped

T = TypeVar("T")


class Views:
    """All views of a job, and those of them that it still keeps."""

    def __init__(self, views: Sequence[KeptView], driver: Driver[Frame], report: Report) -> None:
        self.all = tuple(views)
        self._driver = driver
        self._report = report
        #: The error of the first view that failed.
        self.failure: BaseException | None = None
        driver.failed = self._failed_at_work

    @property
    def kept(self) -> list[KeptView]:
        """The views that have not failed; any thread may ask."""
        return [view for view in self.all if view.failure is None]

    def each(self, do: Callable[[KeptView], T]) -> list[T]:
        """Does something for each view that is kept; returns the results of those that stay so."""
        done = []
        for view in self.kept:
            try:
                done.append(do(view))
            except BaseException as error:
                self._fail([view], error)
        return done

    def without_faulty_sources(self, do: Callable[[], None]) -> None:
        """Does something for all views; after an error of a source again, without its views."""
        while True:
            try:
                return do()
            except ViewsweepError as error:
                concerned = [view for view in self.kept if error.sources & set(view.view.sources)]
                if not concerned:
                    raise
                self._fail(concerned, error)

    def _failed_at_work(self, asker: Asker[Frame], error: BaseException) -> None:
        failing = [view for view in self.kept if view.work is asker]
        if not failing:
            raise error
        self._fail(failing, error)

    def _fail(self, failing: Sequence[KeptView], error: BaseException) -> None:
        """Keeps these views no longer; raises the first failure when no view is left."""
        if isinstance(error, Stopped):
            raise error
        for view in failing:
            view.fail(error)
            self._driver.drop(view.work)
        self.failure = self.failure or error
        if len(self.all) > 1:
            names = " and ".join(view.view.name for view in failing)
            rest = "the others go on" if self.kept else "no view is left"
            words = f"view {names} failed, and {rest}: {as_ours(error)}"
            self._report(
                Told(words, view=names, source=" and ".join(as_ours(error).sources) or None)
            )
        if not self.kept:
            raise self.failure
