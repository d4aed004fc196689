"""Stores what one view installs: its tables in a running job, and the two threads that write them.

    job ─ hand_over ─> queue ─> commits of VIEW   `changes`, then `progress`
                                      └ look ─>   upkeep of VIEW   `current`, small files, the logs

Each table has one handle, and one thread that uses it. To tidy `changes` and `progress`, the upkeep
opens handles of its own. What other threads read here are frozen values.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from protocols.exchange.deliveries import Deliveries, Numbers
from streaming.figures.measuring import Measures
from streaming.job.commits import Commits
from streaming.job.storedview import StoredView
from warehouse.files import WrittenFile
from warehouse.standing import Standing
from warehouse.upkeep import Upkeep


@dataclass(frozen=True)
class Commit:
    """The states that become visible together."""

    #: The changes of the view, each with its position.
    changes: pl.DataFrame
    #: Files with further changes, which executors have written.
    written: Sequence[WrittenFile]
    #: The standing after them.
    standing: Standing
    order: Deliveries
    #: The positions that have a state of their own; None if all have one.
    shown: Numbers | None
    #: The rows of `progress`.
    delivered: pl.DataFrame


class Storing:
    """The threads that write the tables of one view."""

    def __init__(
        self,
        stored: StoredView,
        standing: Standing,
        measures: Measures,
        report: Callable[[str], None],
    ) -> None:
        """From now on only these threads touch the tables."""
        self._tables = stored.tables
        self._measures = measures
        #: The standing that is committed and visible to readers.
        self.committed = standing
        #: The time of the last commit, in seconds since the epoch; None before the first.
        self.committed_at: float | None = None
        self._upkeep = Upkeep(stored.tables, stored.upkeep, report)
        self._commits = Commits(f"commits of {stored.view.name}")

    def hand_over(self, commit: Commit) -> None:
        """Enqueues the next commit; raises the error of an earlier one."""
        self._commits.hand_over(partial(self._make, commit))

    def _make(self, commit: Commit) -> None:
        """`changes` first, then what is derived from it."""
        with self._measures.step("commit"):
            self._tables.install(
                commit.changes, commit.standing, commit.order, commit.shown, commit.written
            )
        self._measures.freshness.installed(commit.delivered["committed_at"])
        with self._measures.step("progress"):
            self._tables.record(commit.delivered)
        self.committed = commit.standing
        self.committed_at = time.time()
        self._upkeep.look(quiet=False)

    @property
    def idle(self) -> bool:
        """Whether all commits handed over are made."""
        return self._commits.idle

    def settle(self) -> None:
        """Waits until all commits handed over are made; raises the error if one failed."""
        self._commits.settle()

    def tend(self) -> None:
        """Lets `current` follow and the upkeep run, when they are due.

        Raises the error that stopped one of the threads.
        """
        if self._commits.idle:
            self._commits.hand_over(partial(self._upkeep.look, quiet=True))

    def finish(self) -> None:
        """Brings `current` to the last position, after the last commit."""
        self._commits.hand_over(self._tables.catch_up)
        self.settle()
        self._upkeep.finish()
        self._measures.spend("current", self._upkeep.following.total)
        self._measures.spend("upkeep", self._upkeep.tidying.total)

    def close(self) -> None:
        """Ends the threads after the commits handed over and the current step of the upkeep."""
        self._commits.close()
        self._upkeep.close()
