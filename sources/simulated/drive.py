"""Runs a workload: commits its transactions to a source at a given rate."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from protocols.errors import ViewsweepError
from protocols.failures import as_ours
from sources.transaction import Transaction

#: A workload that lags behind its rate commits the due transactions in groups of at most this size.
_GROUP = 500
#: Seconds of a workload that are committed as one group. A commit of any size costs about 8 ms and
#: a disk sync: four sources with 500 transactions/s each would be busy with commits alone.
_TOGETHER = 0.05


@dataclass(frozen=True)
class Drive:
    """A running workload: transactions to commit, their rate, and when to stop."""

    transactions: Iterator[Transaction]
    #: Transactions per second.
    rate: float
    #: The total number over all runs of the process; None for no end.
    total: int | None = None
    #: It begins when this file exists.
    after: Path | None = None


class Driven(Protocol):
    """A database that a workload changes."""

    @property
    def driven(self) -> int:
        """The number of transactions that it has of the workload already."""
        ...

    def commit_many(self, transactions: Sequence[Transaction], *, driven: bool = ...) -> int:
        """Commits transactions."""
        ...


class WorkloadDriver:
    """Commits the transactions of a workload at its rate; resumes where the database stands.

    The time since the start determines how many are due, so it catches up after a slow commit.
    """

    def __init__(self, database: Driven, drive: Drive) -> None:
        self._database = database
        self._rate = drive.rate
        self._after = drive.after
        self._left = drive.total
        if self._left is not None:
            self._left = max(self._left - database.driven, 0)
        self._transactions = islice(drive.transactions, database.driven, None)
        self._stop = threading.Event()
        #: The error that ended the workload early.
        self.error: ViewsweepError | None = None
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the workload after the current commit."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def finished(self) -> bool:
        """Whether the workload has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._after is not None and not self._after.exists():
            if self._stop.wait(_TOGETHER):
                return
        start, done = time.monotonic(), 0
        try:
            while not self._stop.is_set() and self._left != 0:
                due = int((time.monotonic() - start) * self._rate) + 1 - done
                if due > 0:
                    done += self._commit(min(due, _GROUP))
                if due < _GROUP:
                    next_due = (done / self._rate) - (time.monotonic() - start)
                    self._stop.wait(max(next_due, _TOGETHER))
        except BaseException as error:
            self.error = as_ours(error)

    def _commit(self, due: int) -> int:
        group = list(
            islice(self._transactions, due if self._left is None else min(due, self._left))
        )
        self._database.commit_many(group, driven=True)
        if self._left is not None:
            self._left -= len(group)
        if not group:
            self._left = 0
        return len(group)
